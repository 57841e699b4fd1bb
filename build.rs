//! Passes the current commit to the compiler, for `src/version.rs`.
//!
//! If this package has no repository of its own (a tarball, `cargo package`), or if Git fails, the script passes
//! nothing, and the version contains no commit. The build does not fail then. The result depends only on the commit and
//! on whether the sources differ from the commit, so the same commit always produces the same program.
//! `SOURCE_DATE_EPOCH` overrides the time of the commit.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The sources of the program. Changes to other files do not mark the version as dirty.
const SOURCES: [&str; 5] = ["src", "config", "Cargo.toml", "Cargo.lock", "build.rs"];

/// Files in the Git directory that change when another commit is checked out. Not every repository has all of them.
const HEAD: [&str; 3] = ["HEAD", "logs/HEAD", "packed-refs"];

/// The length of the abbreviated hash. It is fixed, because the length that Git chooses depends on the repository.
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
        // Programs that cargo runs see these variables too. The names must not begin with the prefix of channeld's
        // own variables, because channeld would read them as configuration keys.
        println!("cargo::rustc-env=BUILD_COMMIT={commit}");
        println!("cargo::rustc-env=BUILD_COMMIT_TIME={}", source_date().unwrap_or(time));
    }
}

/// Whether this package has a repository of its own. A repository of a parent directory does not count.
fn is_repository() -> bool {
    let here = env::var("CARGO_MANIFEST_DIR").ok().and_then(|here| fs::canonicalize(here).ok());
    let top = git(&["rev-parse", "--show-toplevel"]).and_then(|top| fs::canonicalize(top).ok());
    here.is_some() && here == top
}

/// The hash of the commit, with a mark if the sources differ from the commit, and the time of the commit.
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
    // Cargo would run this script before every build if one of the paths did not exist.
    let paths =
        names.filter_map(|name| git(&["rev-parse", "--git-path", name])).filter(|path| Path::new(path).exists());
    paths.for_each(|path| println!("cargo::rerun-if-changed={path}"));
}

/// See <https://reproducible-builds.org/specs/source-date-epoch/>.
fn source_date() -> Option<String> {
    let date = env::var("SOURCE_DATE_EPOCH").ok()?;
    if date.parse::<i64>().is_err() {
        println!("cargo::warning=SOURCE_DATE_EPOCH is not a number of seconds: the time of the commit is used");
        return None;
    }
    Some(date)
}

/// The output of Git without the final line break, or `None` if Git fails.
fn git(arguments: &[&str]) -> Option<String> {
    // Without optional locks, Git writes nothing and does not disturb other processes that use the repository.
    let output = Command::new("git").arg("--no-optional-locks").args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim_end().to_owned())
}
