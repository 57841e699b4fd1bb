//! File sinks in production: rotation, compression, deletion, files that other programs remove, full disks. All files
//! together contain each event exactly once.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use rand::Rng;
use rustix::process::Signal;
use serde_json::json;
use simulator::{Options, Simulator};

use crate::support::{Daemon, Files, Mount, Setup, deliverable, fill, place, programs, random, run};

const PAGE: usize = 10;

/// About the size of one page.
const SMALL: &str = "24KiB";

const NEGLECTED: &str = "closed files cannot be maintained: retrying, events are not affected";
const REFUSED: &str = "sink refused: its events wait and will be offered again";
const IN_FORCE: &str = "configuration reloaded";

async fn service(events: u64) -> Simulator {
    Simulator::start(Options { events, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

fn rotating(simulator: &Simulator) -> (Setup, Files) {
    let setup = Setup::reading(simulator).with("api.page_limit", PAGE).with("sinks.file.rotate_size", SMALL);
    let files = Files::of(setup.path("events.jsonl"));
    (setup, files)
}

/// Waits until the files contain all events and every closed file has its final ending.
async fn until_kept(daemon: &mut Daemon, files: &Files, lines: usize, ending: &str) {
    daemon
        .until("all events are there, and the closed files are compressed", |_| {
            files.lines() == lines && files.closed().iter().all(|path| path.to_str().unwrap().ends_with(ending))
        })
        .await;
}

#[tokio::test]
async fn gzip_and_zstd_read_the_closed_files_with_each_event_once() {
    if !programs(&["gzip", "zstd"]) {
        return;
    }
    for (compress, ending, program) in [("gzip", ".gz", "gzip"), ("zstd", ".zst", "zstd")] {
        let simulator = service(0).await;
        let (mut setup, files) = rotating(&simulator);
        let link = setup.path("latest");
        setup.set("sinks.file.compress", compress);
        setup.set("sinks.file.mode", "0604");
        setup.set("sinks.file.latest_link", link.display().to_string());
        let mut daemon = setup.start();
        // A file is closed after each step, no matter how the events are batched.
        for times in 1..=5 {
            simulator.publish(0, 20);
            until_kept(&mut daemon, &files, times * 20, ending).await;
        }
        daemon.stop().await;

        let closed = files.closed();
        assert!(closed.len() >= 5, "{closed:?}");
        let mut lines = Vec::new();
        for path in &closed {
            run(Command::new(program).arg("-t").arg(path));
            lines.extend(run(Command::new(program).arg("-dc").arg(path)));
            assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o604);
        }
        lines.extend(std::fs::read(&files.active).unwrap());
        let offsets: Vec<_> = String::from_utf8(lines).unwrap().lines().map(|line| place(line).1).collect();
        assert_eq!(offsets, deliverable(&simulator, 0));
        assert_eq!(std::fs::canonicalize(link).unwrap(), std::fs::canonicalize(closed.last().unwrap()).unwrap());
    }
}

#[tokio::test]
async fn kills_at_any_moment_leave_each_event_once_over_all_files_in_each_format() {
    let mut moments = random(5);
    for (format, compress) in [("json", "zstd"), ("cloudevents", "gzip"), ("raw", "zstd")] {
        let simulator = service(150).await;
        let (mut setup, files) = rotating(&simulator);
        setup.set("sinks.file.format", format);
        setup.set("sinks.file.filter.verification", vec!["verified", "unsigned"]);
        setup.set("sinks.file.compress", compress);
        for kill in 0..4 {
            let mut daemon = setup.start();
            let enough = kill * 30 + moments.random_range(0..30);
            daemon.until("some events have arrived", |_| files.lines() >= enough).await;
            daemon.kill().await;
        }
        let mut daemon = setup.start();
        until_kept(&mut daemon, &files, 150, if compress == "zstd" { ".zst" } else { ".gz" }).await;
        daemon.stop().await;
        assert_eq!(files.offsets(), deliverable(&simulator, 0), "{format}");
        let left: Vec<_> = std::fs::read_dir(setup.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let unfinished = |name: &&std::ffi::OsString| name.to_string_lossy().ends_with(".tmp");
        assert_eq!(left.iter().find(unfinished), None, "{left:?}");
    }
}

#[tokio::test]
async fn retention_deletes_files_beyond_the_limits_except_marked_ones() {
    let simulator = service(0).await;
    let (mut setup, files) = rotating(&simulator);
    let mut daemon = setup.start();
    // A file is closed after each step, no matter how the events are batched.
    for times in 1..=5 {
        simulator.publish(0, 20);
        daemon.until("the events arrive", |_| files.lines() == times * 20).await;
    }
    daemon.stop().await;
    let closed = files.closed();
    std::fs::write(format!("{}.keep", closed[1].display()), "").unwrap();
    setup.set("sinks.file.keep_files", 2);
    let mut daemon = setup.start();
    let kept = |files: &Files| files.closed().into_iter().filter(|path| path.extension().unwrap() == "jsonl").collect();
    let expected: Vec<PathBuf> = [&closed[1..2], &closed[closed.len() - 2..]].concat();
    daemon.until("the other files are deleted", |_| Vec::<PathBuf>::len(&kept(&files)) == 3).await;
    assert_eq!(kept(&files), expected);
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_is_closed_at_the_end_of_its_period_even_without_an_event() {
    let simulator = service(20).await;
    let setup = Setup::reading(&simulator).with("sinks.file.rotate_every", "1s");
    let files = Files::of(setup.path("events.jsonl"));
    let mut daemon = setup.start();
    let empty = |files: &Files| std::fs::metadata(&files.active).is_ok_and(|metadata| metadata.len() == 0);
    daemon.until("the file is closed after the first period", |_| files.lines() == 20 && empty(&files)).await;
    simulator.publish(0, 5);
    daemon.until("the next file is closed too", |_| files.lines() == 25 && empty(&files)).await;
    daemon.stop().await;
    assert!(files.closed().len() >= 2);
    assert_eq!(files.offsets(), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_full_disk_during_compression_blocks_the_lane_until_there_is_room() {
    let simulator = service(10).await;
    let (mut setup, _) = rotating(&simulator);
    let Some(mount) = Mount::new(setup.path("small"), "1m") else { return };
    let files = Files::of(mount.at.join("events.jsonl"));
    setup.set("sinks.file.path", files.active.display().to_string());
    setup.set("sinks.file.rotate_size", "8KiB");
    let mut daemon = setup.start();
    daemon.until("the first events arrive", |_| files.lines() == 10).await;
    // The file with these events is closed now, no matter how the events are batched.
    simulator.publish(0, 10);
    daemon.until("more events arrive", |_| files.lines() == 20).await;
    daemon.stop().await;

    // The disk is full: closed files cannot be compressed, and events cannot be written.
    setup.set("sinks.file.compress", "zstd");
    let filling = fill(&mount.at);
    let mut daemon = setup.start();
    daemon.until_logged(NEGLECTED).await;
    simulator.publish(0, 10);
    daemon.until_logged(REFUSED).await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let lane = &report["channels"][0]["lanes"][0];
    assert_eq!((&report["ready"], &lane["state"]), (&json!(false), &json!("blocked")), "{report:#}");
    assert!(report["reasons"][0].as_str().unwrap().contains("No space left on device"), "{report:#}");

    // Only some of the next events fit on the disk. The disk fills up again between two batches, during a rotation or
    // during a compression.
    let room = std::fs::OpenOptions::new().write(true).open(&filling).unwrap();
    room.set_len(room.metadata().unwrap().len() - 60 * 1024).unwrap();
    daemon.until("the waiting events arrive", |_| files.lines() == 30).await;
    simulator.publish(0, 50);
    let refused = |daemon: &Daemon| daemon.log().lines(REFUSED).len();
    daemon.until("more events arrive, or are refused", |daemon| files.lines() > 30 || refused(daemon) > 1).await;
    drop(room);
    std::fs::remove_file(filling).unwrap();
    until_kept(&mut daemon, &files, 80, ".zst").await;
    daemon.stop().await;
    assert_eq!(files.offsets(), deliverable(&simulator, 0));
}

#[tokio::test]
async fn only_root_can_change_the_owner_of_files() {
    let simulator = service(10).await;
    let setup = Setup::reading(&simulator).with("sinks.file.owner", "12345").with("sinks.file.group", 23456);
    let root = rustix::process::geteuid().is_root();
    let mut daemon = setup.start();
    if root {
        daemon.until("the events arrive", |_| setup.lines() == 10).await;
        let metadata = std::fs::metadata(setup.path("events.jsonl")).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12345, 23456));
    } else {
        daemon.until_logged(REFUSED).await;
        assert!(daemon.log().0.contains("only root, or a process with CAP_CHOWN"), "{}", daemon.log().0);
        assert_eq!(setup.lines(), 0);
    }
    daemon.signal(Signal::HUP);
    daemon.until_logged(IN_FORCE).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_reload_during_compression_loses_nothing() {
    let simulator = service(200).await;
    let (mut setup, files) = rotating(&simulator);
    setup.set("sinks.file.compress", "gzip");
    let mut daemon = setup.start();
    for step in 1..=4 {
        daemon.until("some events arrive", |_| files.lines() >= step * 30).await;
        daemon.signal(Signal::HUP);
    }
    until_kept(&mut daemon, &files, 200, ".gz").await;
    let log = daemon.stop().await;
    assert_eq!(files.offsets(), deliverable(&simulator, 0));
    assert!(log.lines(REFUSED).is_empty(), "{}", log.0);
}

#[tokio::test]
async fn a_file_in_the_directory_of_another_sink_is_not_opened() {
    let simulator = service(60).await;
    let (mut setup, files) = rotating(&simulator);
    let elsewhere = setup.path("elsewhere");
    setup.set("sinks.other.type", "file");
    setup.set("sinks.other.path", elsewhere.join("other.jsonl").display().to_string());
    for (key, value) in [("rotate_size", SMALL), ("rotated_name", "events-{time}.jsonl")] {
        setup.set(&format!("sinks.other.{key}"), value);
    }
    setup.set("sinks.other.keep_files", 1);
    setup.set("channels.c0.sinks", vec!["file", "other"]);
    // The directory of the other sink does not exist yet when the daemon reads its configuration.
    let mut daemon = setup.start();
    daemon.until("all events are in the first file", |_| files.lines() == 60).await;
    std::os::unix::fs::symlink(elsewhere.parent().unwrap(), &elsewhere).unwrap();
    let refused = "the files of this sink are, or could be mistaken for, files of the sink that writes to";
    daemon.until("the other file is refused", |daemon| daemon.log().0.contains(refused)).await;
    daemon.stop().await;
    assert_eq!(files.lines(), 60, "no closed file of the first sink was deleted");
}
