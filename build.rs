//! Tells the compiler which commit this is, for `src/version.rs`.
//!
//! Where there is no repository of this package's own (a tarball, `cargo package`), or git does not know it, nothing is
//! told and the version is the bare one: a build never fails for it. Only the commit and whether the sources differ
//! from it count, so that the same commit gives the same program. `SOURCE_DATE_EPOCH` goes before the commit's time.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What the program is made of. Nothing else makes it dirty, and nothing else is looked at again before each build.
const SOURCES: [&str; 5] = ["src", "config", "Cargo.toml", "Cargo.lock", "build.rs"];

/// What changes with the commit that is checked out. Not all of them are there in every repository.
const HEAD: [&str; 3] = ["HEAD", "logs/HEAD", "packed-refs"];

/// How much of a commit's hash is shown, whatever else is in the repository.
const SHOWN: usize = 7;

fn main() {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    if is_repository()
        && let Some((commit, time)) = commit()
    {
        watch_head();
        // What runs under cargo sees them too: nothing that begins as our own variables do, which are keys.
        println!("cargo::rustc-env=BUILD_COMMIT={commit}");
        println!("cargo::rustc-env=BUILD_COMMIT_TIME={}", source_date().unwrap_or(time));
    }
}

/// Whether there is one, and it is not that of a directory around this package.
fn is_repository() -> bool {
    let here = env::var("CARGO_MANIFEST_DIR").ok().and_then(|here| fs::canonicalize(here).ok());
    let top = git(&["rev-parse", "--show-toplevel"]).and_then(|top| fs::canonicalize(top).ok());
    here.is_some() && here == top
}

/// The commit, marked where the sources differ from it, and its time.
fn commit() -> Option<(String, String)> {
    let commit = git(&["rev-parse", "--verify", "HEAD"])?;
    let time = git(&["show", "--no-patch", "--format=%ct", "HEAD"])?;
    let differs = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat())?;
    let mark = if differs.is_empty() { "" } else { "-dirty" };
    Some((format!("{}{mark}", commit.get(..SHOWN)?), time))
}

fn watch_head() {
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let names = HEAD.iter().copied().chain(branch.as_deref());
    // A path that does not exist would be a reason to build again each time.
    let paths =
        names.filter_map(|name| git(&["rev-parse", "--git-path", name])).filter(|path| Path::new(path).exists());
    paths.for_each(|path| println!("cargo::rerun-if-changed={path}"));
}

/// See <https://reproducible-builds.org/specs/source-date-epoch/>.
fn source_date() -> Option<String> {
    let date = env::var("SOURCE_DATE_EPOCH").ok()?;
    if date.parse::<i64>().is_err() {
        println!("cargo::warning=SOURCE_DATE_EPOCH is no number of seconds: the commit's own time counts");
        return None;
    }
    Some(date)
}

/// What git prints, without the line break at its end; `None` where it fails.
fn git(arguments: &[&str]) -> Option<String> {
    // Without optional locks it writes nothing, also where somebody else works in the repository at the same time.
    let output = Command::new("git").arg("--no-optional-locks").args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim_end().to_owned())
}
