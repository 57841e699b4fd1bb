//! `install.sh` installs an archive of `deploy/archive` completely, or changes nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::shipped;
use crate::support::{programs, run};

/// Builds the same files as `deploy/debian/build`, but very small ones. The program is a shell script.
const BUILD: &str = r"#!/bin/sh
set -e
built=target/debian-build/release
mkdir -p $built/package/man $built/package/completions
cp program $built/channeld
for page in channeld.1 channeld.toml.5; do echo page | gzip -n >$built/package/man/$page.gz; done
touch $built/package/completions/channeld.bash $built/package/completions/_channeld $built/package/completions/channeld.fish
echo package >$built/channeld.deb
echo $built/channeld.deb
";

/// A directory with a release, and an empty directory into which it is installed.
struct Release {
    directory: TempDir,
}

impl Release {
    /// The release with this version, made by `deploy/archive`. The program is a shell script that executes `command`.
    fn new(version: &str, command: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let release = Self { directory };
        let (root, tree) = (Path::new(env!("CARGO_MANIFEST_DIR")), release.path("tree"));
        std::fs::create_dir(&tree).unwrap();
        let shipped = ["README.md", "CHANGELOG.md", "LICENSE", "config", "systemd", "deploy"];
        run(Command::new("cp").arg("-r").args(shipped.map(|name| root.join(name))).arg(&tree));
        std::fs::write(tree.join("Cargo.toml"), format!("version = \"{version}\"\n")).unwrap();
        std::fs::write(tree.join("program"), format!("#!/bin/sh\n{command}\n")).unwrap();
        std::fs::write(tree.join("deploy/debian/build"), BUILD).unwrap();
        run(Command::new(tree.join("deploy/archive")).arg(release.path("files")).env("SOURCE_DATE_EPOCH", "0"));
        release
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The archive.
    fn archive(&self) -> PathBuf {
        let files = std::fs::read_dir(self.path("files")).unwrap().map(|entry| entry.unwrap().path());
        files.into_iter().find(|file| file.to_str().unwrap().ends_with("-linux.tar.gz")).unwrap()
    }

    /// Replaces the archive, and corrects its checksum.
    fn replace(&self, content: &[u8]) {
        std::fs::write(self.archive(), content).unwrap();
        let sums = "cd \"$0\" && sha256sum -- *.tar.gz >SHA256SUMS";
        run(Command::new("sh").args(["-c", sums]).arg(self.path("files")));
    }
}

/// Runs `install.sh`. Returns its exit code and its output.
fn install(prefix: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut script = Command::new("sh");
    script.arg(shipped("install.sh")).arg("--prefix").arg(prefix).args(arguments);
    let output = script.env("HOME", prefix).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// The SHA-256 checksum of a file.
fn hash(file: &Path) -> String {
    String::from_utf8(run(Command::new("sha256sum").arg(file))).unwrap()[..64].to_owned()
}

/// Every file, link and directory below a directory, with the target of each link.
fn tree(directory: &Path) -> String {
    String::from_utf8(run(Command::new("find").arg(directory).args(["-printf", "%P %l\n"]))).unwrap()
}

/// The first line that the installed program prints.
fn installed(prefix: &Path) -> String {
    let said = run(Command::new(prefix.join("bin/channeld")).arg("--version"));
    String::from_utf8(said).unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn an_archive_is_installed_then_replaced_by_a_newer_one_and_removed() {
    let (old, new) = (
        Release::new("0.1.0", "echo channeld 0.1.0"),
        Release::new("0.2.0", "echo channeld 0.2.0; echo features: none"),
    );
    let [old, new] = [&old, &new].map(|release| release.archive().to_str().unwrap().to_owned());
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("my programs");
    std::fs::create_dir(&prefix).unwrap();

    let (code, said) = install(&prefix, &["--dry-run", &old]);
    assert!(code == Some(0) && said.contains("The archive is valid: channeld 0.1.0"), "{said}");
    assert_eq!(tree(&prefix), " \n", "a dry run changes nothing");

    for version in ["0.1.0", "0.1.0", "0.2.0"] {
        let (code, said) = install(&prefix, &[if version == "0.1.0" { &old } else { &new }]);
        assert!(code == Some(0) && said.contains(&format!("channeld {version} is installed: ")), "{said}");
        assert_eq!(installed(&prefix), format!("channeld {version}"));
        let versions = std::fs::read_dir(prefix.join("lib/channeld")).unwrap().count();
        assert_eq!(versions, 2, "one version and the link to it: {}", tree(&prefix));
    }
    for file in [
        "share/man/man1/channeld.1.gz",
        "share/man/man5/channeld.toml.5.gz",
        "share/bash-completion/completions/channeld",
        "share/zsh/site-functions/_channeld",
        "share/fish/vendor_completions.d/channeld.fish",
        "lib/channeld/current/config/default.toml",
        "lib/channeld/current/systemd/channeld.service",
        "lib/channeld/current/deploy/OPERATIONS.md",
    ] {
        assert!(prefix.join(file).is_file(), "{file}: {}", tree(&prefix));
    }

    std::fs::write(prefix.join("bin/other"), "a program of the user").unwrap();
    let remove = prefix.join("lib/channeld/current/install.sh");
    run(Command::new("sh").arg(remove).arg("--uninstall").arg("--prefix").arg(&prefix));
    let left = run(Command::new("find").arg(&prefix).args(["!", "-type", "d", "-printf", "%P\n"]));
    assert_eq!(String::from_utf8(left).unwrap(), "bin/other\n");
}

#[test]
fn a_wrong_archive_or_place_is_refused_and_changes_nothing() {
    let good = Release::new("0.1.0", "echo channeld 0.1.0");
    let archive = good.archive();
    let content = std::fs::read(&archive).unwrap();
    let (empty, used, foreign) = (good.path("empty"), good.path("used"), good.path("foreign"));
    for prefix in [&empty, &used, &foreign.join("bin")] {
        std::fs::create_dir_all(prefix).unwrap();
    }
    std::fs::write(foreign.join("bin/channeld"), "another program").unwrap();
    assert_eq!(install(&used, &[archive.to_str().unwrap()]).0, Some(0));

    let broken = Release::new("0.2.0", "echo no such library; exit 127");
    let killed = Release::new("0.2.0", "kill -TERM $PPID");
    let truncated = Release::new("0.2.0", "true");
    truncated.replace(&std::fs::read(truncated.archive()).unwrap()[..content.len() / 2]);
    let damaged = Release::new("0.2.0", "true");
    std::fs::write(damaged.archive(), &content).unwrap();
    let text = Release::new("0.2.0", "true");
    text.replace(b"<html>404</html>");
    let elsewhere = good.path("other.tar.gz");
    let pack = "cp -r tree channeld-0.1.0-s390x-linux && touch channeld-0.1.0-s390x-linux/channeld && tar -czf \"$0\" channeld-*";
    run(Command::new("sh").args(["-c", pack]).arg(&elsewhere).current_dir(good.path(".")));

    let file = |release: &Release| release.archive().to_str().unwrap().to_owned();
    for (arguments, code, message) in [
        (vec![file(&damaged)], 1, "the file is damaged or was replaced"),
        (vec![file(&good), "--sha256=0000".to_owned()], 1, "instead of 0000"),
        (vec![file(&good), "--checksums=/dev/null".to_owned()], 1, "/dev/null has no checksum of channeld-0.1.0"),
        (vec![file(&truncated)], 1, "is damaged: "),
        (vec![file(&text)], 1, "is damaged: "),
        (
            vec![elsewhere.to_str().unwrap().to_owned(), format!("--sha256={}", hash(&elsewhere))],
            1,
            "is for another machine",
        ),
        (vec![file(&broken)], 1, "does not run on this machine; it needs Linux with glibc 2.31 or newer: no such"),
        (vec![file(&killed)], 143, ""),
        (vec!["/nowhere/a.tar.gz".to_owned()], 1, "/nowhere/SHA256SUMS could not be read; name the checksums"),
        (vec!["/nowhere/a.tar.gz".to_owned(), "--sha256=00".to_owned()], 1, "/nowhere/a.tar.gz could not be read"),
        (vec![], 64, "name the archive"),
        (vec![file(&good), "--prefix".to_owned()], 64, "--prefix needs a value"),
    ] {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        for (prefix, before) in [(&empty, None), (&used, Some("channeld 0.1.0"))] {
            let files = tree(prefix);
            let (ended, said) = install(prefix, &arguments);
            assert!(ended == Some(code) && said.contains(message), "{arguments:?}: {ended:?} {said}");
            assert_eq!(tree(prefix), files, "{arguments:?}");
            assert!(before.is_none_or(|version| installed(prefix) == version));
        }
    }
    let (code, said) = install(&foreign, &[&file(&good)]);
    assert!(code == Some(1) && said.contains("bin/channeld exists and was not installed by this script"), "{said}");
    assert_eq!(tree(&foreign), " \nbin \nbin/channeld \n");
}

/// Serves the files of a directory, until the process ends. Returns the address.
fn serve(directory: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let name = request[0].split([' ', '/']).find(|part| part.starts_with("channeld-")).unwrap();
            let content = std::fs::read(directory.join(name)).unwrap();
            write!(stream, "HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n", content.len()).unwrap();
            stream.write_all(&content).unwrap();
        }
    });
    format!("http://{address}")
}

#[test]
fn an_archive_is_downloaded_and_its_checksum_never_comes_over_plain_http() {
    if !programs(&["curl"]) {
        return;
    }
    let release = Release::new("0.1.0", "echo channeld 0.1.0");
    let (archive, prefix) = (release.archive(), release.path("prefix"));
    let url = format!("{}/{}", serve(release.path("files")), archive.file_name().unwrap().to_str().unwrap());
    let (code, said) = install(&prefix, &[&url]);
    assert!(code == Some(1) && said.contains("use https, or give --sha256"), "{said}");
    assert!(!prefix.exists());
    let (code, said) = install(&prefix, &[&url, "--sha256", &hash(&archive).to_uppercase()]);
    assert!(code == Some(0), "{said}");
    assert_eq!(installed(&prefix), "channeld 0.1.0");
}
