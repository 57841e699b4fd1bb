//! The version contains the commit if the sources are in a repository, and a build without a repository or Git
//! succeeds.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{programs, run};

/// The build script, compiled to a program that can run in any directory.
struct Script {
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Script {
    fn build() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("build");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
        run(Command::new("rustc").args(["--edition", "2024", script, "-o"]).arg(&program));
        Self { directory, program }
    }

    /// Creates a package with the files that the build script examines.
    fn package(&self, name: &str) -> PathBuf {
        let package = self.directory.path().join(name);
        std::fs::create_dir_all(package.join("src")).unwrap();
        for file in ["src/main.rs", "Cargo.toml", "notes"] {
            std::fs::write(package.join(file), "").unwrap();
        }
        package
    }

    /// The variables that the build script passes to the compiler.
    fn tells(&self, package: &Path, variables: &[(&str, &str)]) -> Vec<String> {
        let mut command = Command::new(&self.program);
        command.current_dir(package).env("CARGO_MANIFEST_DIR", package).env_remove("SOURCE_DATE_EPOCH");
        let said = String::from_utf8(run(command.envs(variables.iter().copied()))).unwrap();
        said.lines().filter_map(|line| line.strip_prefix("cargo::rustc-env=")).map(str::to_owned).collect()
    }
}

fn git(package: &Path, arguments: &[&str]) -> String {
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let mut command = Command::new("git");
    command.current_dir(package).args(author).args(arguments).env("GIT_COMMITTER_DATE", "1795132800 +0000");
    String::from_utf8(run(&mut command)).unwrap().trim_end().to_owned()
}

/// Creates a repository with one commit, and returns its abbreviated hash.
fn repository(package: &Path) -> String {
    git(package, &["init", "--quiet"]);
    git(package, &["add", "."]);
    git(package, &["commit", "--quiet", "--message", "first"]);
    git(package, &["rev-parse", "HEAD"])[..7].to_owned()
}

#[test]
fn the_version_names_commit_time_and_whether_sources_were_modified() {
    if !programs(&["git", "rustc"]) {
        return;
    }
    let script = Script::build();
    let package = script.package("package");
    let commit = repository(&package);
    let told = |commit: &str, time: &str| [format!("BUILD_COMMIT={commit}"), format!("BUILD_COMMIT_TIME={time}")];
    assert_eq!(script.tells(&package, &[]), told(&commit, "1795132800"));
    assert_eq!(script.tells(&package, &[("SOURCE_DATE_EPOCH", "86400")]), told(&commit, "86400"));
    assert_eq!(script.tells(&package, &[("SOURCE_DATE_EPOCH", "soon")]), told(&commit, "1795132800"));

    std::fs::write(package.join("notes"), "this file is not a source of the program").unwrap();
    assert_eq!(script.tells(&package, &[]), told(&commit, "1795132800"));
    std::fs::write(package.join("src/more.rs"), "").unwrap();
    assert_eq!(script.tells(&package, &[]), told(&format!("{commit}-dirty"), "1795132800"));
}

#[test]
fn without_its_own_repository_or_git_the_version_names_no_commit() {
    if !programs(&["git", "rustc"]) {
        return;
    }
    let script = Script::build();
    let package = script.package("around");
    assert_eq!(script.tells(&package, &[]), [""; 0], "a tarball");
    git(&package, &["init", "--quiet"]);
    assert_eq!(script.tells(&package, &[]), [""; 0], "no commit yet");
    repository(&package);
    assert_eq!(script.tells(&package, &[("PATH", "/nowhere")]), [""; 0], "no git");
    let inner = script.package("around/target/package");
    assert_eq!(script.tells(&inner, &[]), [""; 0], "another project's repository");
}

#[test]
fn the_program_names_its_own_commit() {
    if !programs(&["git"]) {
        return;
    }
    let said = run(Command::new(env!("CARGO_BIN_EXE_channeld")).arg("--version"));
    let said = String::from_utf8(said).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = concat!("channeld ", env!("CARGO_PKG_VERSION"));
    let features = if cfg!(feature = "kafka") { "kafka" } else { "none" };
    assert!(said.ends_with(&format!("\nfeatures: {features}\n")), "{said}");
    if here.join(".git").exists() {
        let commit = &git(here, &["rev-parse", "HEAD"])[..7];
        assert!(said.starts_with(&format!("{version} ({commit}")), "{said}");
    } else {
        assert!(said.starts_with(&format!("{version}\n")), "{said}");
    }
}
