//! All mistakes are reported before anything starts. The exit code distinguishes a wrong configuration from wrong
//! arguments.

use proof::event::ChannelId;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use uuid::Uuid;

use crate::support::{Daemon, Setup};

mod table;

fn setup() -> Setup {
    Setup::of("http://127.0.0.1:9/v1", "key-of-a-test", &[ChannelId(Uuid::from_u128(1))])
}

/// The exit code, standard output and standard error.
async fn run(arguments: &[&str], setup: &Setup) -> (Option<i32>, String, String) {
    let secrets = ["key-of-a-test".to_owned()];
    let (daemon, mut stdout) = Daemon::run_piped(arguments, Some(&setup.write()), &secrets);
    let mut out = String::new();
    stdout.read_to_string(&mut out).await.unwrap();
    assert!(!out.contains(&secrets[0]));
    let ended = daemon.ended().await;
    (ended.code, out, ended.log.0.clone())
}

#[tokio::test]
async fn every_mistake_is_reported_and_nothing_starts() {
    let setup = setup()
        .with("api.page_limit", 0)
        .with("api.idle_wiat", "5s")
        .with("api.retry_wait", "soon")
        .with("verification.min_required_signatures", 11)
        .with("channels.c0.sinks", vec!["file", "ledger"])
        .with("channels.c0.start", "yesterday")
        .with("sinks.file.type", "fiel")
        .with("log.level", "loud");
    for command in ["run", "check"] {
        let (code, out, errors) = run(&[command], &setup).await;
        assert_eq!((code, out.as_str()), (Some(78), ""), "{errors}");
        for key in [
            "api.page_limit",
            "api.idle_wiat",
            "api.retry_wait",
            "verification.min_required_signatures",
            "channels.c0.sinks",
            "channels.c0.start",
            "sinks.file.type",
            "log.level",
        ] {
            assert_eq!(errors.lines().filter(|line| line.starts_with(key)).count(), 1, "{command}: {key} in\n{errors}");
        }
    }
    assert!(!setup.path("state").exists() && !setup.path("events.jsonl").exists());
}

#[tokio::test]
async fn a_missing_or_malformed_file_is_a_configuration_error() {
    let missing = setup();
    let daemon = Daemon::run(&["run"], Some(&missing.path("nowhere.toml")), &[]);
    let ended = daemon.ended().await;
    assert_eq!(ended.code, Some(78));
    assert!(ended.log.0.contains("nowhere.toml"), "{}", ended.log.0);

    let broken = setup();
    std::fs::write(broken.path("broken.toml"), "[api\nbase_url = 1").unwrap();
    let ended = Daemon::run(&["run"], Some(&broken.path("broken.toml")), &[]).ended().await;
    assert_eq!(ended.code, Some(78), "{}", ended.log.0);
}

#[tokio::test]
async fn a_file_comes_from_a_flag_or_variable_and_an_ignored_file_is_mentioned() {
    let setup = setup();
    let file = setup.write();
    let here = setup.path("");
    assert_eq!(file, here.join("channeld.toml"));
    let check = |arguments: &[&str], variable: Option<&str>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_channeld"));
        command.arg("check").args(arguments).current_dir(&here).env_clear();
        command.envs(variable.map(|value| ("CHANNELD_CONFIG", value)));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let unread = "no configuration file was read; to use the file in this directory, add -c channeld.toml";
    let (code, errors) = check(&[], None);
    assert!(code == Some(78) && errors.contains(unread), "{errors}");
    let none = "No configuration: /etc/channeld/channeld.toml does not exist and CHANNELD_CONFIG is not set. Use -c FILE or run \
                channeld init.";
    assert!(errors.contains(none), "{errors}");
    assert_eq!(check(&["-c", "channeld.toml"], None), (Some(0), String::new()));
    assert_eq!(check(&[], Some("channeld.toml")), (Some(0), String::new()));
    assert_eq!(check(&["--config", "channeld.toml"], Some("/nowhere")), (Some(0), String::new()));
    let (code, errors) = check(&[], Some("/nowhere"));
    assert!(code == Some(78) && errors.contains("/nowhere") && !errors.contains(unread), "{errors}");
}

#[tokio::test]
async fn wrong_arguments_are_a_usage_error() {
    for arguments in [&["rnu"][..], &["run", "--fast"], &["demo", "--events", "0"], &["simulate", "--forged", "2"], &[]]
    {
        let ended = Daemon::run(arguments, None, &[]).ended().await;
        assert_eq!(ended.code, Some(64), "{arguments:?}");
        assert!(!ended.log.0.is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn help_and_version_succeed() {
    for arguments in
        [&["--help"][..], &["--version"], &["run", "--help"], &["check", "--help"], &["simulate", "--help"]]
    {
        let (daemon, mut stdout) = Daemon::run_piped(arguments, None, &[]);
        let mut out = String::new();
        stdout.read_to_string(&mut out).await.unwrap();
        assert_eq!(daemon.ended().await.code, Some(0), "{arguments:?}");
        assert!(!out.is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_valid_configuration_is_summarized_and_nothing_starts() {
    let setup = setup();
    let (code, out, errors) = run(&["check"], &setup).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(out.contains("c0") && out.contains("file"), "{out}");

    let (code, out, _) = run(&["check", "--json"], &setup).await;
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &object["valid"]), (Some(0), &true.into()));
    assert!(!setup.path("state").exists() && !setup.path("events.jsonl").exists());
}

#[tokio::test]
async fn two_sinks_with_the_same_file_are_refused_however_the_paths_are_written() {
    let mut setup = setup();
    let (logs, link) = (setup.path("logs"), setup.path("link"));
    std::fs::create_dir(&logs).unwrap();
    std::os::unix::fs::symlink(&logs, &link).unwrap();
    std::fs::write(logs.join("a.jsonl"), "").unwrap();
    std::fs::hard_link(logs.join("a.jsonl"), logs.join("second-name")).unwrap();
    std::os::unix::fs::symlink(logs.join("a.jsonl"), setup.path("link-to-file")).unwrap();
    setup.set("sinks.a.type", "file");
    setup.set("sinks.a.path", logs.join("a.jsonl").display().to_string());
    setup.set("sinks.a.rotate_size", "1MiB");
    setup.set("sinks.a.rotated_name", "closed-{time}.jsonl");
    setup.set("sinks.a.keep_files", 1);
    setup.set("sinks.b.type", "file");
    let paths = ["logs/../link/a.jsonl", "logs/second-name", "link-to-file", "logs/./a.jsonl"];
    for path in paths {
        setup.set("sinks.b.path", setup.path(path).display().to_string());
        for command in ["check", "run"] {
            let (code, _, errors) = run(&[command], &setup).await;
            assert_eq!(code, Some(78), "{command}: {path}: {errors}");
            assert!(
                errors.contains("sinks.b.path") && errors.contains("is the file of sinks.a too"),
                "{command}: {path}: {errors}"
            );
        }
    }
    // A different file, but the names of its rotated files match the pattern of the first sink.
    setup.set("sinks.b.path", link.join("b.jsonl").display().to_string());
    setup.set("sinks.b.rotate_size", "1MiB");
    setup.set("sinks.b.rotated_name", "closed-{time}.jsonl");
    for command in ["check", "run"] {
        let (code, _, errors) = run(&[command], &setup).await;
        assert_eq!(code, Some(78), "{command}: {errors}");
        assert!(errors.contains("could not be distinguished from files of sinks.a"), "{errors}");
    }
    setup.set("sinks.b.rotated_name", "others-{time}.jsonl");
    assert_eq!(run(&["check"], &setup).await.0, Some(0));
}
