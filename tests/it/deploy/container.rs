//! The files for the image, the trial and Kubernetes pass their linters, and their configurations work.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::{read, shipped};
use crate::support::{Daemon, Database, LONGEST_WAIT, programs, run, skip};

/// The directory into which `.ci/run` installs the linters.
pub(super) fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin")
}

#[test]
fn linters_accept_every_shipped_file() {
    let linter = |name: &str| Command::new(tools().join(name));
    let linters =
        ["yamllint", "hadolint", "check-jsonschema", "kubernetes-validate", "actionlint", "mypy", "shellcheck"];
    let missing: Vec<_> = linters.into_iter().filter(|name| !tools().join(name).exists()).collect();
    if !missing.is_empty() {
        return skip(&format!("linters that .ci/run puts into target/tools: {}", missing.join(", ")));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = root.join("tests/it/deploy/yamllint.yaml");
    let workflows = ["ci.yml", "release.yml"].map(|name| root.join(".github/workflows").join(name));
    run(linter("yamllint").arg("--strict").arg("-c").arg(rules).arg(shipped("")).arg(root.join(".github")));
    run(linter("hadolint").arg(shipped("Dockerfile")));
    run(linter("check-jsonschema").args(["--builtin-schema", "vendor.compose-spec"]).arg(shipped("compose.yaml")));
    run(linter("kubernetes-validate").arg("--strict").args(CLUSTERS.into_iter().flat_map(manifests)));
    run(linter("check-jsonschema").args(["--builtin-schema", "vendor.github-workflows"]).args(&workflows));
    run(linter("actionlint").args(workflows));
    let scripts = ["install.sh", "archive", "site/build", "debian/build", "debian/test/run", "image/test"].map(shipped);
    run(linter("shellcheck").args(scripts).arg(root.join(".ci/run")));
    run(linter("mypy").args(["--strict", "--cache-dir=/dev/null"]).arg(shipped("clients/python")));
}

/// The folders with Kubernetes manifests: for one pod, and for several instances.
const CLUSTERS: [&str; 2] = ["kubernetes", "kubernetes-instances"];

/// The manifests in a folder, without `kustomization.yaml`.
fn manifests(cluster: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(shipped(cluster)).unwrap().map(|entry| entry.unwrap().path());
    let manifest = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "yaml");
    files.filter(|path| manifest(path) && !path.ends_with("kustomization.yaml")).collect()
}

#[test]
fn the_kustomization_lists_every_cluster_file() {
    for (cluster, least) in CLUSTERS.into_iter().zip([4, 1]) {
        let named = read(&format!("{cluster}/kustomization.yaml"));
        let manifests = manifests(cluster);
        assert!(manifests.len() >= least, "{manifests:?}");
        for manifest in manifests {
            let name = manifest.file_name().unwrap().to_str().unwrap();
            assert!(named.contains(&format!("\n  - {name}\n")), "{name}");
        }
    }
}

#[test]
fn the_kubernetes_grace_period_exceeds_the_daemons() {
    let deployment = read("kubernetes-instances/deployment.yaml");
    for line in [
        "  replicas: 3",
        "    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}",
        "      terminationGracePeriodSeconds: 45",
        "            httpGet: {path: /readyz, port: admin}",
    ] {
        assert!(deployment.lines().any(|said| said == line), "{line}");
    }
    assert!(include_str!("../../../config/default.toml").contains("shutdown_grace = \"30s\""));
}

/// A command with a shipped configuration. Its environment contains only these variables, which name the secret files.
fn command(arguments: &[&str], file: &str, secrets: &[(&str, &Path)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.env_clear().args(arguments).arg("--config").arg(shipped(file)).envs(secrets.iter().copied());
    command
}

#[test]
fn the_cluster_configuration_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let secret = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (key, ledger) = (secret("key", "a-key"), secret("ledger", "whsec_b25seSBhIHRlc3Qga25vd3MgdGhpcyBzZWNyZXQ="));
    let url = secret("url", "postgresql://channeld@db.internal/channeld");
    let secrets = [
        ("CHANNELD_API__API_KEY_FILE", &*key),
        ("CHANNELD_SINKS__LEDGER__SECRET_FILE", &*ledger),
        ("CHANNELD_STATE__URL_FILE", &*url),
    ];
    for (cluster, state) in
        CLUSTERS.into_iter().zip(["/var/lib/channeld/state", "schema channeld of a shared database"])
    {
        let mut check = command(&["check"], &format!("{cluster}/channeld.toml"), &secrets);
        let refused = check.output().unwrap();
        assert!(
            String::from_utf8(refused.stderr).unwrap().contains("placeholder"),
            "the operator must set the organization"
        );
        check.env("CHANNELD_VERIFICATION__ORG_ID", "org_1");
        let said = String::from_utf8(run(&mut check)).unwrap();
        let state = format!("\nstate    {state}");
        assert!(said.contains("admin    0.0.0.0:9464") && said.contains(&state), "{said}");
    }
}

/// The simulated service, started with the arguments of the trial (except for the address), and its base URL.
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

/// The variables that adapt the trial to the test. The state and the events are stored in this directory.
fn trial(service: &Service, directory: &Path) -> BTreeMap<&'static str, OsString> {
    let place = |name: &str| directory.join(name).into_os_string();
    BTreeMap::from([
        ("CHANNELD_API__BASE_URL", service.base_url.clone().into()),
        ("CHANNELD_API__API_KEY_FILE", shipped("trial-key").into_os_string()),
        ("CHANNELD_STATE__PATH", place("state")),
        ("CHANNELD_SINKS__AUDIT__PATH", place("events.jsonl")),
        ("CHANNELD_ADMIN__LISTEN", "".into()),
        ("CHANNELD_LOG__FORMAT", "json".into()),
    ])
}

/// The number of verified events in the trial's file.
fn verified(directory: &Path) -> usize {
    let lines = std::fs::read_to_string(directory.join("events.jsonl")).unwrap_or_default();
    lines.matches(r#""verification":{"status":"verified""#).count()
}

/// The environment of a service in `compose.yaml`.
fn environment<'c>(compose: &'c str, service: &str) -> BTreeMap<&'c str, &'c str> {
    let (_, service) = compose.split_once(&format!("\n  {service}:\n")).unwrap();
    let (_, environment) = service.split_once("\n    environment:\n").unwrap();
    let environment = environment.lines().take_while(|line| line.starts_with("      "));
    environment
        .filter(|line| !line.trim_start().starts_with('#'))
        .map(|line| line.trim().split_once(": ").unwrap())
        .map(|(name, value)| (name, value.trim_matches('"')))
        .collect()
}

#[tokio::test]
async fn the_trial_reads_its_own_simulated_service() {
    let (service, directory) = (Service::start(), tempfile::tempdir().unwrap());
    let elsewhere = trial(&service, directory.path());
    let mut daemon = Daemon::run_in(&["run"], &shipped("trial.toml"), &[], &elsewhere);
    daemon.until("verified events of the trial arrive", |_| verified(directory.path()) > 100).await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_instances_of_the_trial_share_its_channels_and_a_killed_instance_is_replaced() {
    let Some(database) = Database::new().await else { return };
    let (service, directories) = (Service::start(), [(); 3].map(|()| tempfile::tempdir().unwrap()));
    let compose = read("compose.yaml");
    let said = environment(&compose, "instances");
    assert!(said["CHANNELD_STATE__URL"].starts_with("postgresql://channeld@postgres/"), "{said:?}");
    let mut daemons: Vec<_> = directories
        .iter()
        .zip(["one", "two", "three"])
        .map(|(directory, name)| {
            let mut elsewhere = trial(&service, directory.path());
            elsewhere.extend(said.iter().map(|(name, value)| (*name, OsString::from(value))));
            elsewhere.insert("CHANNELD_STATE__URL", database.url().into());
            elsewhere.insert("CHANNELD_CLUSTER__INSTANCE", name.into());
            Daemon::run_in(&["run"], &shipped("trial.toml"), &[], &elsewhere)
        })
        .collect();
    let mut owner = 0;
    let all = || directories.iter().map(|directory| verified(directory.path())).collect::<Vec<_>>();
    daemons[0]
        .until("events of the channel with the file sink arrive", |_| {
            owner = all().iter().position(|events| *events > 100).unwrap_or(3);
            owner < 3
        })
        .await;
    daemons.remove(owner).kill().await;
    let others = || all().iter().enumerate().filter(|(at, _)| *at != owner).map(|(_, events)| events).sum::<usize>();
    let before = others();
    daemons[0].until("another instance takes the channel over", |_| others() > before).await;
    for daemon in daemons {
        daemon.stop().await;
    }
}

#[tokio::test]
async fn the_trial_database_has_one_row_per_event_and_answers_its_documented_query() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql"]) {
        return;
    }
    let (service, directory) = (Service::start(), tempfile::tempdir().unwrap());
    let compose = read("compose.yaml");
    let said = environment(&compose, "warehouse");
    assert!(said["CHANNELD_SINKS__WAREHOUSE__URL"].starts_with("postgresql://channeld@postgres/"), "{said:?}");
    let mut elsewhere = trial(&service, directory.path());
    elsewhere.extend(said.iter().map(|(name, value)| (*name, OsString::from(value))));
    elsewhere.insert("CHANNELD_SINKS__WAREHOUSE__URL", database.url().into());
    let mut daemon = Daemon::run_in(&["run"], &shipped("trial.toml"), &[], &elsewhere);
    let (_, question) = compose.split_once("psql -U channeld -c '").unwrap();
    let (question, _) = question.split_once('\'').unwrap();
    let rows = async |what: &str| {
        let rows = database.try_query(&format!("select from events where {what}")).await;
        rows.map_or(0, |rows| rows.len())
    };
    let deadline = Instant::now() + LONGEST_WAIT;
    for channel in ["settlements", "treasury"] {
        while rows(&format!("channel = '{channel}' and verification = 'verified'")).await < 100 {
            assert!(Instant::now() < deadline, "the events of {channel} do not arrive: {}", daemon.log().0);
            daemon.until("the daemon runs", |_| true).await;
        }
    }
    daemon.stop().await;
    assert!(verified(directory.path()) > 100, "the file contains events too");
    let shown = database.psql(question);
    assert!(shown.len() == 20 && shown.iter().any(|row| row.ends_with("|verified")), "{shown:?}");
}
