//! `channeld init` writes what works and nothing else, and overwrites nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use channeld::simulator::{Options, Simulator};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

/// The exit code, and all that was said.
async fn init(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.arg("init").args(arguments).current_dir(directory).env_clear().stdin(Stdio::null());
    let output = command.output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// A service, and a directory with what it has announced.
async fn service() -> (Simulator, TempDir) {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let announced = serde_json::to_string(simulator.announcement()).unwrap();
    std::fs::write(directory.path().join("simulated.json"), announced).unwrap();
    (simulator, directory)
}

#[tokio::test]
async fn what_is_written_for_a_trial_works_and_is_not_overwritten() {
    let (simulator, directory) = service().await;
    let at = directory.path();
    let (code, said) = init(at, &["--demo", "simulated.json"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("offset 5; of the newest 5: 5 verified"), "{said}");
    assert!(!said.contains(&simulator.announcement().api_key), "{said}");
    let mode = std::fs::metadata(at.join("api-key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let check = ["check", "--connect", "--config", "channeld.toml"];
    let checked = Command::new(env!("CARGO_BIN_EXE_channeld")).args(check).current_dir(at).env_clear().output().await;
    assert!(checked.unwrap().status.success());

    std::fs::write(at.join("channeld.toml"), "mine").unwrap();
    let (code, said) = init(at, &["--demo", "simulated.json"]).await;
    assert!(code == Some(64) && said.contains("--force"), "{said}");
    assert_eq!(std::fs::read_to_string(at.join("channeld.toml")).unwrap(), "mine");
    assert_eq!(init(at, &["--demo", "simulated.json", "--force"]).await.0, Some(0));
    assert_ne!(std::fs::read_to_string(at.join("channeld.toml")).unwrap(), "mine");
}

#[tokio::test]
async fn a_channel_that_does_not_exist_is_said_and_nothing_is_written() {
    let (simulator, directory) = service().await;
    let mut announced = json!(simulator.announcement());
    announced["channels"] = json!(["00000000-0000-0000-0000-000000000001"]);
    std::fs::write(directory.path().join("simulated.json"), announced.to_string()).unwrap();
    let (code, said) = init(directory.path(), &["--demo", "simulated.json"]).await;
    assert!(code == Some(69) && said.contains("does not exist"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the announcement alone");
}

#[tokio::test]
async fn where_nobody_can_be_asked_each_flag_that_is_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (code, said) = init(directory.path(), &[]).await;
    assert_eq!(code, Some(64), "{said}");
    assert!(["--org-id", "--channel", "--api-key-stdin"].iter().all(|flag| said.contains(flag)), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
