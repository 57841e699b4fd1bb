//! The configuration as teams keep it: in several files, and with secrets that a program prints.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::Signal;
use simulator::{Options, Simulator};

use crate::support::{Setup, deliverable};

const IN_FORCE: &str = "configuration reloaded";
const REJECTED: &str = "configuration rejected: the previous one stays in force";

async fn service() -> Simulator {
    Simulator::start(Options { channels: 2, events: 10, ..Options::default() }).await.unwrap()
}

/// A setup whose API key is printed by a shell script. The script runs with the path of the file that contains the key.
fn with_program(simulator: &Simulator, script: &str) -> (Setup, PathBuf) {
    let mut setup = Setup::reading(simulator);
    let (program, key) = (setup.path("program"), setup.path("key"));
    fs::write(&key, format!("{}\n", simulator.announcement().api_key)).unwrap();
    write_program(&setup, script);
    setup.remove("api.api_key");
    setup.set("api.api_key_command", vec![program.display().to_string(), key.display().to_string()]);
    (setup, key)
}

fn write_program(setup: &Setup, script: &str) {
    // Replaces the file by a rename, because the file of a running program cannot be written.
    let (program, new) = (setup.path("program"), setup.path("program.new"));
    fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o700)).unwrap();
    fs::rename(&new, &program).unwrap();
}

const PRINT: &str = "read -r key <\"$1\" && echo \"$key\"";

#[tokio::test]
async fn the_files_of_teams_are_one_configuration_that_is_reloaded_as_a_whole() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    let id = simulator.announcement().channels[1].to_string();
    let channel = format!("[channels.c1]\nid = {id:?}\nsinks = [\"file\"]\n");
    setup.remove("channels.c1");
    fs::create_dir(setup.path("conf.d")).unwrap();
    let mut daemon = setup.start();
    daemon.until("the channel of the main file arrives", |_| setup.lines() == 10).await;

    fs::write(setup.path("conf.d/10-team.toml"), &channel).unwrap();
    daemon.signal(Signal::HUP);
    daemon.until_logged(IN_FORCE).await;
    daemon.until("the channel of the team arrives", |_| setup.lines() == 20).await;

    let mistakes = [
        ("[channels.c1]\nstart = 1\n", "conf.d/10-team.toml, line 1"),
        ("[limits]\n\nmemry = \"64MiB\"\n", "conf.d/20-team.toml, line 3"),
        ("[channels", "conf.d/20-team.toml"),
    ];
    for (done, (text, mistake)) in mistakes.into_iter().enumerate() {
        fs::write(setup.path("conf.d/20-team.toml"), text).unwrap();
        daemon.signal(Signal::HUP);
        daemon.until("the mistake is logged", |daemon| daemon.log().lines(REJECTED).len() == done + 1).await;
        let rejected = daemon.log().lines(REJECTED);
        assert!(rejected[done]["error"].as_str().unwrap().contains(mistake), "{mistake}: {}", rejected[done]);
    }
    simulator.publish(0, 1);
    simulator.publish(1, 1);
    daemon.until("both channels continue", |_| setup.lines() == 22).await;

    fs::remove_file(setup.path("conf.d/20-team.toml")).unwrap();
    fs::remove_file(setup.path("conf.d/10-team.toml")).unwrap();
    let told = setup.tell(&["reload"]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    let log = daemon.stop().await;
    assert_eq!((log.lines(IN_FORCE).len(), log.lines(REJECTED).len()), (2, 3));
    for (number, channel) in ["c0", "c1"].into_iter().enumerate() {
        assert_eq!(setup.offsets(channel), deliverable(&simulator, number), "{channel}");
    }
}

#[tokio::test]
async fn a_program_prints_the_key_again_at_each_reload() {
    let simulator = service().await;
    let (mut setup, key) = with_program(&simulator, &format!("env >\"$0.environment\"; {PRINT}"));
    setup.set_environment("CHANNELD_LOG__LEVEL", "debug");
    setup.set_environment("NOTIFY_SOCKET", "/nowhere/notify");
    setup.set_environment("VAULT_ADDR", "https://vault.internal");
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20).await;
    let environment = fs::read_to_string(setup.path("program.environment")).unwrap();
    assert!(environment.contains("VAULT_ADDR=https://vault.internal"), "{environment}");
    assert!(!environment.contains("CHANNELD_") && !environment.contains("NOTIFY_SOCKET"), "{environment}");

    write_program(&setup, &format!("{PRINT}; echo 'the vault is sealed' >&2; exit 2"));
    let told = setup.tell(&["reload"]).await;
    assert!(told.code == Some(78) && told.errors.contains("the vault is sealed"), "{told:?}");
    assert!(told.errors.contains("api.api_key_command"), "{told:?}");
    simulator.publish(0, 1);
    daemon.until("the previous key is used", |_| setup.lines() == 21).await;

    simulator.set_api_key("rotated-key");
    setup.keep_secret("rotated-key");
    fs::write(&key, "rotated-key\n").unwrap();
    write_program(&setup, PRINT);
    simulator.publish(0, 1);
    let told = setup.tell(&["reload"]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    daemon.until("the new key is used", |_| setup.lines() == 22).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_program_that_hangs_at_the_start_does_not_delay_the_end() {
    let simulator = service().await;
    let (setup, _) = with_program(&simulator, "echo >\"$0.runs\"; exec sleep 60");
    let mut daemon = setup.start();
    daemon.until("the program runs", |_| setup.path("program.runs").exists()).await;
    daemon.stop().await;
    assert!(!setup.path("state").exists());
}

#[tokio::test]
async fn a_signal_while_the_configuration_loads_ends_until_caught_up_with_1() {
    let simulator = service().await;
    let (setup, _) = with_program(&simulator, "echo >\"$0.runs\"; exec sleep 60");
    let mut daemon = setup.start_until_caught_up();
    daemon.until("the program runs", |_| setup.path("program.runs").exists()).await;
    daemon.signal(Signal::TERM);
    let ended = daemon.ended().await;
    assert_eq!(ended.code, Some(1), "{}", ended.log.tail());
}

#[tokio::test]
async fn a_program_that_hangs_delays_neither_events_nor_the_end() {
    let simulator = service().await;
    let (setup, _) = with_program(&simulator, PRINT);
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20).await;

    write_program(&setup, "echo >\"$0.runs\"; exec sleep 60");
    daemon.signal(Signal::HUP);
    daemon.until("the program runs", |_| setup.path("program.runs").exists()).await;
    simulator.publish(0, 5);
    daemon.until("new events arrive", |_| setup.lines() == 25).await;
    let log = daemon.stop().await;
    assert!(log.lines(REJECTED).is_empty(), "the daemon ended while the program ran");
}
