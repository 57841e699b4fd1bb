//! Standard output as a sink. The daemon ends when the reader closes the pipe. After a restart, it continues with the first
//! event that the reader has not read.

use std::process::Stdio;

use simulator::{Options, Simulator};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::{Delivered, LONGEST_WAIT, Setup, deliverable};

#[tokio::test]
async fn a_reader_of_standard_output_can_leave_and_return() {
    let simulator = Simulator::start(Options { events: 60, unsigned: 0.2, ..Options::default() }).await.unwrap();
    let mut setup = Setup::reading(&simulator).with("sinks.out.type", "stdout").with("channels.c0.sinks", vec!["out"]);
    setup.remove("sinks.file");
    let (daemon, stdout) = setup.start_piped();
    let mut lines = BufReader::new(stdout).lines();
    for offset in 1..=3 {
        let line = lines.next_line().await.unwrap().unwrap();
        assert_eq!(Delivered::parse(&line).offset, offset);
    }
    drop(lines);
    let ended = daemon.ended().await;
    assert_eq!(ended.code, Some(0));
    assert!(ended.log.at("ERROR").is_empty(), "{:?}", ended.log.at("ERROR"));

    let (daemon, stdout) = setup.start_piped();
    let mut lines = BufReader::new(stdout).lines();
    let mut seen = Vec::new();
    while seen.last() != deliverable(&simulator, 0).last() {
        let line = tokio::time::timeout(LONGEST_WAIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        seen.push(Delivered::parse(&line).offset);
    }
    daemon.stop().await;
    assert!(seen[0] <= 4, "the unread records are written again: {}", seen[0]);
    assert!(seen.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seen:?}");
}

#[tokio::test]
async fn a_standard_output_closed_at_the_start_is_refused() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let mut setup = Setup::reading(&simulator).with("sinks.out.type", "stdout").with("channels.c0.sinks", vec!["out"]);
    setup.remove("sinks.file");
    let config = setup.write();
    for arguments in [&["run"][..], &["check"], &["check", "--connect"]] {
        let mut closed = Command::new("sh");
        closed.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_channeld")]).args(arguments);
        closed.arg("--config").arg(&config).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        let ended = tokio::time::timeout(LONGEST_WAIT, closed.output()).await.unwrap().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("standard output was closed at the start"), "{arguments:?}: {said}");
        assert_eq!(ended.status.success(), arguments == ["check"], "{arguments:?}: {said}");
    }

    let (daemon, stdout) = setup.start_piped();
    let mut lines = BufReader::new(stdout).lines();
    for offset in deliverable(&simulator, 0) {
        let line = tokio::time::timeout(LONGEST_WAIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert_eq!(Delivered::parse(&line).offset, offset);
    }
    daemon.stop().await;
}
