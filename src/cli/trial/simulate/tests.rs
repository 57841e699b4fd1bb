use clap::Parser;

use super::*;
use simulator::{ApiVersion, HasMore, WatcherConfidence, WatcherStatus, Window};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

fn parse(line: &str) -> Result<Options, clap::Error> {
    Command::try_parse_from(line.split(' ')).map(|command| command.options)
}

#[test]
fn every_option_is_accepted() {
    let line = "simulate --listen 127.0.0.1:8080 --api-key k --org-id o --channels 3 --events 9 --rate 2.5 \
                --unsigned 0.1 --late-proofs 0.2:30s --forged 0.3 --faults 0.4 --seed 7 --window newest \
                --inclusive --has-more older --sparse --prepared --misbehave 2:hang --misbehave 1:404 \
                --watcher-status archive_failed --go-back 5:1m --api-version 0.7.0 --confidence mixed \
                --api-key l --revoke-key 1:30s --deny 2:watcher";
    let options = parse(line).expect("valid");
    assert_eq!((options.channels, options.events, options.seed), (3, 9, 7));
    assert_eq!((options.window, options.has_more), (Window::Newest, HasMore::Older));
    assert_eq!((options.misbehave.len(), options.watcher_status), (2, WatcherStatus::ArchiveFailed));
    assert!(options.go_back.is_some());
    assert_eq!(options.api_version, ApiVersion::V0_7_0);
    assert_eq!(parse("simulate").expect("valid").api_version, ApiVersion::V0_8_0);
    assert_eq!(options.confidence, WatcherConfidence::Mixed);
    assert_eq!(
        (options.accepted_keys(), options.revoke_key.len(), options.deny.len()),
        (vec!["k".to_owned(), "l".to_owned()], 1, 1)
    );
    assert!(options.inclusive && options.sparse && options.prepared && options.late_proofs.is_some());
}

#[test]
fn an_option_out_of_range_is_a_usage_error() {
    for option in [
        "--forged 1.1",
        "--faults -0.1",
        "--unsigned NaN",
        "--rate inf",
        "--channels 0",
        "--channels 1001",
        "--events -1",
        "--late-proofs 0.1",
        "--misbehave 1:shout",
        "--watcher-status asleep",
        "--go-back 5",
        "--revoke-key 1",
        "--deny 1:health",
        "--window middle",
        "--api-version 0.9.0",
        "--confidence certain",
        "--listen here",
    ] {
        assert!(parse(&format!("simulate {option}")).is_err(), "{option}");
    }
}

#[test]
fn the_key_follows_from_the_seed() {
    let key = |line| parse(line).expect("valid").accepted_keys().swap_remove(0);
    assert!(key("simulate --seed 1").starts_with("sim-"));
    assert_eq!(key("simulate --seed 1"), key("simulate --seed 1"));
    assert_ne!(key("simulate --seed 1"), key("simulate --seed 2"));
}
