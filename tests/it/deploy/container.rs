//! The image, the trial and the cluster are looked over by their linters, and what they configure works.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{read, shipped};
use crate::support::{Daemon, run, skip};

/// Where `.ci/run` puts the linters.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin")
}

#[test]
fn the_linters_of_what_is_shipped_have_nothing_to_say() {
    let linter = |name: &str| Command::new(tools().join(name));
    let linters = ["yamllint", "hadolint", "check-jsonschema", "kubernetes-validate"];
    let missing: Vec<_> = linters.into_iter().filter(|name| !tools().join(name).exists()).collect();
    if !missing.is_empty() {
        return skip(&format!("linters that .ci/run puts into target/tools: {}", missing.join(", ")));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (rules, workflow) = (root.join("tests/it/deploy/yamllint.yaml"), root.join(".github/workflows/ci.yml"));
    run(linter("yamllint").arg("--strict").arg("-c").arg(rules).arg(shipped("")).arg(root.join(".github")));
    run(linter("hadolint").arg(shipped("Dockerfile")));
    run(linter("check-jsonschema").args(["--builtin-schema", "vendor.compose-spec"]).arg(shipped("compose.yaml")));
    run(linter("kubernetes-validate").arg("--strict").args(manifests()));
    run(linter("check-jsonschema").args(["--builtin-schema", "vendor.github-workflows"]).arg(workflow));
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
        assert!(command.contains("0.0.0.0:8080"), "{command}");
        let command = command.replace("0.0.0.0:8080", "127.0.0.1:0");
        let arguments: Vec<String> = serde_json::from_str(&format!("{command}]")).unwrap();
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
