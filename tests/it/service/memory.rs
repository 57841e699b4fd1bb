//! Answers of the service use at most `limits.memory`, and no channel keeps memory that another one needs.

use simulator::{Misbehaviour, Options, Simulator};

use crate::support::{Setup, deliverable};

const LIMIT: u64 = 64 << 20;

/// The memory that the rest of the process may use.
const REST: u64 = 64 << 20;

/// One healthy channel, and others that all misbehave in the same way.
async fn crowd(others: usize, how: Misbehaviour) -> (Simulator, Setup) {
    let options = Options { channels: 1 + others, events: 1_000, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let mut setup = Setup::reading(&simulator).with("limits.memory", "64MiB").with("sinks.other.type", "file");
    setup.set("sinks.other.path", setup.path("others.jsonl").display().to_string());
    setup.set("sinks.other.rotate_size", "20MiB");
    setup.set("sinks.other.keep_files", 1);
    for other in 1..=others {
        simulator.misbehave(other, Some(how));
        setup.set(&format!("channels.c{other}.sinks"), vec!["other"]);
    }
    (simulator, setup)
}

#[tokio::test]
async fn large_pages_use_and_release_their_memory_share() {
    for how in [Misbehaviour::LargeNotices, Misbehaviour::WithheldProofs, Misbehaviour::DeepJson] {
        let (simulator, setup) = crowd(8, how).await;
        let mut daemon = setup.start();
        daemon.until("the healthy channel's backlog arrives", |_| setup.lines() == 1_000).await;
        daemon.until("the others are read", |_| simulator.requests().poll > 40).await;
        let peak = daemon.memory("VmHWM");
        assert!(peak < LIMIT + REST, "{how:?}: {peak} bytes");
        (1..=8).for_each(|other| simulator.misbehave(other, None));
        // `RssAnon` excludes the pages of the executable, which is large in a debug build.
        daemon.until("the memory is released", |daemon| daemon.memory("RssAnon") < REST).await;
        daemon.stop().await;
        assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0), "{how:?}");
    }
}

#[tokio::test]
async fn blocked_channels_release_memory_that_others_need() {
    for how in [Misbehaviour::WithheldProofs, Misbehaviour::SamePage, Misbehaviour::SlowBody] {
        let (simulator, mut setup) = crowd(8, how).await;
        // Each event of this channel needs memory from the shared budget.
        simulator.misbehave(1, Some(Misbehaviour::LargeNotices));
        setup.set("channels.c1.sinks", vec!["file"]);
        setup.set("channels.c0.sinks", vec!["other"]);
        let mut daemon = setup.start();
        daemon.until("the others are read", |_| simulator.requests().poll > 40).await;
        let before = setup.lines();
        daemon.until("large events keep arriving", |_| setup.lines() > before + 4).await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_crowd_that_has_recovered_uses_little_more_memory_than_an_idle_crowd() {
    const CROWD: usize = 100;
    const MORE: u64 = 32 << 20;
    const EVERY_KIND: [Misbehaviour; 8] = [
        Misbehaviour::LargeNotices,
        Misbehaviour::LargeEvents,
        Misbehaviour::WithheldProofs,
        Misbehaviour::DeepJson,
        Misbehaviour::LargeError,
        Misbehaviour::GzipBomb,
        Misbehaviour::SlowBody,
        Misbehaviour::SamePage,
    ];
    let options = Options { channels: CROWD, events: 20, ..Options::default() };
    let simulator = Simulator::start(options.clone()).await.unwrap();
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the healthy crowd is idle", |_| setup.lines() == 20 * CROWD).await;
    let idle = daemon.memory("RssAnon");
    daemon.stop().await;

    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator).with("sinks.file.rotate_size", "20MiB").with("sinks.file.keep_files", 1);
    for (channel, how) in (0..CROWD).zip(EVERY_KIND.into_iter().cycle()) {
        simulator.misbehave(channel, Some(how));
        simulator.publish(channel, 20);
    }
    let mut daemon = setup.start();
    daemon.until("each channel has been read twice", |_| simulator.requests().poll > 2 * CROWD as u64).await;
    (0..CROWD).for_each(|channel| simulator.misbehave(channel, None));
    daemon.until("the memory is released", |daemon| daemon.memory("RssAnon") < idle + MORE).await;
    daemon.stop().await;
}
