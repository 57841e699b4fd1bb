//! The program of the image works when it is run as a container engine runs it: with the instructions of the Dockerfile, and
//! with no files except the files of the image.
//!
//! `deploy/image/test` builds the image, and runs this test with the files of the image. In other runs, the tested program and
//! its libraries replace the image.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use simulator::{Options, Simulator};
use tempfile::TempDir;

use super::read;
use crate::support::{LONGEST_WAIT, Setup, eventually, free_address, programs, run, skip};

/// The variable that names the directory with the files of a built image.
const IMAGE: &str = "CHANNELD_TEST_IMAGE";

/// The files of the image and of its volume.
struct Image {
    directory: TempDir,
}

/// The user id of the program in the image.
const NONROOT: u32 = 65532;

/// Enters the root as a container engine does: read-only except for the volume, with its own `/proc`, as an
/// unprivileged user. `exec` makes the program the first process.
const ENGINE: &str = r#"
    mount --bind "$0/root" "$0/root" && mount -o remount,bind,ro "$0/root" &&
    mount --bind "$0/state" "$0/root/var/lib/channeld" && mount -t proc proc "$0/root/proc" &&
    exec chroot --userspec=65532:65532 "$0/root" "$@"
"#;

/// Copies the tested program and its libraries, and nothing else.
fn stand_in(root: &Path) {
    let program = env!("CARGO_BIN_EXE_channeld");
    let linked = String::from_utf8(run(Command::new("ldd").arg(program))).unwrap();
    for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        place(Path::new(library), root, library);
    }
    place(Path::new(program), root, "/usr/bin/channeld");
}

fn place(file: &Path, root: &Path, inside: &str) {
    let inside = root.join(inside.trim_start_matches('/'));
    std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
    std::fs::copy(file, &inside).unwrap();
    // The dynamic loader must be executable too.
    std::fs::set_permissions(&inside, PermissionsExt::from_mode(0o755)).unwrap();
}

impl Image {
    fn with(config: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        match std::env::var_os(IMAGE) {
            Some(built) => drop(run(Command::new("cp").arg("-a").arg(built).arg(&root))),
            None => stand_in(&root),
        }
        place(config, &root, "/etc/channeld/channeld.toml");
        for empty in ["proc", "var/lib/channeld"] {
            std::fs::create_dir_all(root.join(empty)).unwrap();
        }
        let image = Self { directory };
        std::fs::create_dir(image.state()).unwrap();
        chown(image.state(), Some(NONROOT), Some(NONROOT)).unwrap();
        std::fs::set_permissions(image.state(), PermissionsExt::from_mode(0o700)).unwrap();
        // A temporary directory is accessible only to its owner, but the program runs as another user.
        std::fs::set_permissions(image.directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        image
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Runs the entry point of the Dockerfile with its arguments.
    fn start(&self) -> Container {
        let mut unshare = tokio::process::Command::new("unshare");
        unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--", "sh", "-c", ENGINE]);
        unshare.arg(self.directory.path()).args(instruction("\nENTRYPOINT ")).args(instruction("\nCMD "));
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        Container {
            engine: unshare
                .env_clear()
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
                .stderr(log)
                .kill_on_drop(true)
                .spawn()
                .unwrap(),
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }
}

/// The arguments of an instruction in the Dockerfile, which must be in exec form.
fn instruction(name: &str) -> Vec<String> {
    let dockerfile = read("Dockerfile");
    let (_, list) = dockerfile.split_once(name).unwrap();
    serde_json::from_str(list.lines().next().unwrap()).unwrap()
}

struct Container {
    engine: tokio::process::Child,
}

impl Container {
    /// The process id, as seen from outside, of the container's first process. `None` until this process is channeld.
    fn first(&self) -> Option<u32> {
        let engine = self.engine.id().unwrap();
        children(engine).first().copied().filter(|first| {
            std::fs::read_to_string(format!("/proc/{first}/comm")).is_ok_and(|name| name.trim() == "channeld")
        })
    }

    /// Runs the health check of the Dockerfile in the container. Returns its exit code and its output.
    fn health(&self) -> Option<(i32, String)> {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--pid", "--mount", "--root", "--setuid", "65532", "--setgid", "65532", "--target"]);
        nsenter.arg(self.first()?.to_string()).arg("--").args(instruction("\n    CMD "));
        let output = nsenter.env_clear().env("PATH", "/usr/bin:/bin").output().unwrap();
        Some((output.status.code()?, String::from_utf8(output.stdout).unwrap()))
    }
}

fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let children: Vec<_> = threads.map(|thread| of(thread.unwrap())).collect();
    children.iter().flat_map(|of| of.split_whitespace()).map(|child| child.parse().unwrap()).collect()
}

#[tokio::test]
async fn as_pid_1_of_a_container_it_is_healthy_and_stops_cleanly_on_sigterm() {
    if !programs(&["unshare", "nsenter", "ldd"]) {
        return;
    }
    let unshared = Command::new("unshare").args(["--mount", "--pid", "--fork", "true"]).output().unwrap();
    if !rustix::process::geteuid().is_root() || !unshared.status.success() {
        return skip("root, and the right to mount and to create namespaces");
    }
    let simulator = Simulator::start(Options { events: 30, ..Options::default() }).await.unwrap();
    let port = free_address().port();
    let setup = Setup::reading(&simulator)
        .with("state.path", "/var/lib/channeld")
        .with("sinks.file.path", "/var/lib/channeld/events.jsonl")
        .with("admin.listen", format!("0.0.0.0:{port}"));
    let image = Image::with(&setup.write());
    let mut container = image.start();
    let lines = || std::fs::read_to_string(image.state().join("events.jsonl")).map_or(0, |text| text.lines().count());
    eventually("all events arrive", || (lines() == 30).then_some(())).await;
    let healthy = eventually("the health check succeeds", || container.health().filter(|(code, _)| *code == 0)).await;
    assert_eq!(healthy.1, "ok\n");

    let first = container.first().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    assert_eq!(numbers.split_whitespace().last(), Some("1"), "{status}");
    assert_eq!(children(first), [0; 0], "channeld leaves no ended child process");

    run(Command::new("kill").args(["-TERM", &first.to_string()]));
    let ended = tokio::time::timeout(LONGEST_WAIT, container.engine.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", image.log());
    assert!(image.log().contains(r#""outcome":"everything that was delivered is recorded""#), "{}", image.log());
    let recorded = std::fs::read_to_string(image.state().join("cursors.json")).unwrap();
    assert!(recorded.contains(r#""file": 30"#), "{recorded}");
    assert!(!Path::new(&format!("/proc/{first}")).exists());
}
