//! The image, the trial and the cluster: what cannot be built without an engine is looked over by its linters, and its
//! program is run as an engine would run it.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use channeld::simulator::{Options, Simulator};
use serde_json::Value;
use tempfile::TempDir;

use super::{read, shipped};
use crate::support::{Daemon, PATIENCE, Setup, eventually, programs, run, skipped};

/// A linter, where `.ci/run` puts it.
fn linter(name: &str) -> Command {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin");
    assert!(
        tools.join(name).exists(),
        "this test needs {name}: python3 -m venv target/tools && target/tools/bin/pip install -r \
         tests/it/deploy/requirements.txt, or leave such tests out with CHANNELD_TEST_SKIP=programs"
    );
    Command::new(tools.join(name))
}

#[test]
fn the_linters_of_what_is_shipped_have_nothing_to_say() {
    if !programs(&["python3"]) {
        return;
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/deploy/yamllint.yaml");
    run(linter("yamllint").arg("--strict").arg("-c").arg(rules).arg(shipped("")));
    run(linter("hadolint").arg(shipped("Dockerfile")));
    run(linter("check-jsonschema").args(["--builtin-schema", "vendor.compose-spec"]).arg(shipped("compose.yaml")));
    run(linter("kubernetes-validate").arg("--strict").args(manifests()));
}

/// The files of the cluster but the one that names them.
fn manifests() -> Vec<PathBuf> {
    let files = std::fs::read_dir(shipped("kubernetes")).unwrap().map(|entry| entry.unwrap().path());
    let manifest = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "yaml");
    files.filter(|path| manifest(path) && !path.ends_with("kustomization.yaml")).collect()
}

#[test]
fn nothing_of_the_cluster_is_forgotten() {
    let named = read("kubernetes/kustomization.yaml");
    let manifests = manifests();
    assert!(manifests.len() >= 4, "{manifests:?}");
    for manifest in manifests {
        let name = manifest.file_name().unwrap().to_str().unwrap();
        assert!(named.contains(&format!("\n  - {name}\n")), "{name}");
    }
}

/// The operator's environment of a container, whose secrets are mounted at other places.
fn command(arguments: &[&str], file: &str, secrets: &[(&str, &Path)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.env_clear().args(arguments).arg("--config").arg(shipped(file)).envs(secrets.iter().copied());
    command
}

#[test]
fn the_configuration_of_the_cluster_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let secret = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (key, ledger) = (secret("key", "a-key"), secret("ledger", "whsec_b25seSBhIHRlc3Qga25vd3MgdGhpcyBzZWNyZXQ="));
    let secrets = [("CHANNELD_API__API_KEY_FILE", &*key), ("CHANNELD_SINKS__LEDGER__SECRET_FILE", &*ledger)];
    let said = String::from_utf8(run(&mut command(&["check"], "kubernetes/channeld.toml", &secrets))).unwrap();
    assert!(said.contains("admin    0.0.0.0:9464"), "{said}");
}

/// The simulated service as the trial runs it, but for its address, and what it says of itself.
struct Service {
    process: std::process::Child,
    base_url: String,
}

impl Service {
    fn start() -> Self {
        let compose = read("compose.yaml");
        let (_, command) = compose.split_once("    command: ").unwrap();
        let (command, _) = command.split_once(']').unwrap();
        let mut arguments: Vec<String> = serde_json::from_str(&format!("{command}]")).unwrap();
        *arguments.iter_mut().find(|argument| *argument == "0.0.0.0:8080").unwrap() = "127.0.0.1:0".to_owned();
        let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
        let mut process = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(process.stdout.take().unwrap()), &mut said).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        Self { process, base_url: said["base_url"].as_str().unwrap().to_owned() }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test]
async fn the_trial_reads_the_service_that_it_simulates() {
    let (service, directory) = (Service::start(), tempfile::tempdir().unwrap());
    let place = |name: &str| directory.path().join(name).into_os_string();
    let elsewhere = [
        ("CHANNELD_API__BASE_URL", service.base_url.clone().into()),
        ("CHANNELD_API__API_KEY_FILE", shipped("trial-key").into_os_string()),
        ("CHANNELD_STATE__PATH", place("state")),
        ("CHANNELD_SINKS__AUDIT__PATH", place("events.jsonl")),
        ("CHANNELD_ADMIN__LISTEN", "".into()),
        ("CHANNELD_LOG__FORMAT", "json".into()),
    ];
    let mut daemon = Daemon::run_in(&["run"], &shipped("trial.toml"), &[], &elsewhere.into());
    let verified = || {
        let lines = std::fs::read_to_string(place("events.jsonl")).unwrap_or_default();
        lines.matches(r#""verification":{"status":"verified""#).count()
    };
    daemon.until("the trial's events arrive, verified", |_| verified() > 100).await;
    daemon.stop().await;
}

/// The image's files, with the program that is tested: it, what it is linked to, and nothing else.
struct Image {
    directory: TempDir,
}

/// Who the image's program runs as.
const NONROOT: u32 = 65532;

/// What an engine does with a directory: read-only but for the volume, with its own processes, as nobody in particular.
/// The program takes the shell's place, and so is the first process.
const ENGINE: &str = r#"
    mount --bind "$0/root" "$0/root" && mount -o remount,bind,ro "$0/root" &&
    mount --bind "$0/state" "$0/root/var/lib/channeld" && mount -t proc proc "$0/root/proc" &&
    exec chroot --userspec=65532:65532 "$0/root" "$@"
"#;

impl Image {
    fn with(config: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        let program = env!("CARGO_BIN_EXE_channeld");
        let linked = String::from_utf8(run(Command::new("ldd").arg(program))).unwrap();
        let libraries = linked.split_whitespace().filter(|word| word.starts_with('/'));
        let config = ("/etc/channeld/channeld.toml", config.to_str().unwrap());
        for (inside, outside) in
            libraries.map(|library| (library, library)).chain([("/usr/bin/channeld", program), config])
        {
            let inside = root.join(inside.trim_start_matches('/'));
            std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
            std::fs::copy(outside, &inside).unwrap();
            // The loader of libraries is a program too.
            std::fs::set_permissions(&inside, PermissionsExt::from_mode(0o755)).unwrap();
        }
        for empty in ["proc", "var/lib/channeld"] {
            std::fs::create_dir_all(root.join(empty)).unwrap();
        }
        let image = Self { directory };
        std::fs::create_dir(image.state()).unwrap();
        chown(image.state(), Some(NONROOT), Some(NONROOT)).unwrap();
        // A temporary directory is its maker's alone.
        std::fs::set_permissions(image.directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        image
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Runs the command of the Dockerfile.
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

/// What the Dockerfile says, in its exec form.
fn instruction(name: &str) -> Vec<String> {
    let dockerfile = read("Dockerfile");
    let (_, list) = dockerfile.split_once(name).unwrap();
    serde_json::from_str(list.lines().next().unwrap()).unwrap()
}

struct Container {
    engine: tokio::process::Child,
}

impl Container {
    /// The first process, as it is known outside.
    fn first(&self) -> Option<u32> {
        let engine = self.engine.id().unwrap();
        children(engine).first().copied().filter(|first| {
            std::fs::read_to_string(format!("/proc/{first}/comm")).is_ok_and(|name| name.trim() == "channeld")
        })
    }

    /// Runs the health check of the Dockerfile in the container: its exit code and what it prints.
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
async fn as_the_first_process_of_a_container_it_is_healthy_and_ends_on_sigterm_with_nothing_left() {
    if skipped("mount") || !programs(&["unshare", "nsenter", "ldd"]) {
        return;
    }
    let simulator = Simulator::start(Options { events: 30, ..Options::default() }).await.unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let setup = Setup::reading(&simulator)
        .with("state.path", "/var/lib/channeld")
        .with("sinks.file.path", "/var/lib/channeld/events.jsonl")
        .with("admin.listen", format!("0.0.0.0:{port}"));
    let image = Image::with(&setup.write());
    let mut container = image.start();
    let lines = || std::fs::read_to_string(image.state().join("events.jsonl")).map_or(0, |text| text.lines().count());
    eventually("all arrive", || (lines() == 30).then_some(())).await;
    let healthy = eventually("it is asked", || container.health().filter(|(code, _)| *code == 0)).await;
    assert_eq!(healthy.1, "ok\n");

    let first = container.first().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    assert_eq!(numbers.split_whitespace().last(), Some("1"), "{status}");
    assert_eq!(children(first), [0; 0], "nothing that ended waits for it");

    run(Command::new("kill").args(["-TERM", &first.to_string()]));
    let ended = tokio::time::timeout(PATIENCE, container.engine.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", image.log());
    assert!(image.log().contains(r#""outcome":"Drained""#), "{}", image.log());
    let recorded = std::fs::read_to_string(image.state().join("cursors.json")).unwrap();
    assert!(recorded.contains(r#""file": 30"#), "{recorded}");
    assert!(!Path::new(&format!("/proc/{first}")).exists());
}
