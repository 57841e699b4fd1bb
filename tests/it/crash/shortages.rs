//! The machine lacks descriptors or space for a while: the daemon waits, no event becomes a dead letter, and no event is lost.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use rustix::process::Resource;
use serde_json::json;
use simulator::{Options, Simulator};

use crate::support::{Admin, Daemon, LONGEST_WAIT, Mount, Receiver, Reply, Setup, deliverable, fill, offsets};

const REFUSED: &str = "sink refused: its events wait and will be offered again";
/// After this time, the admin listener ends a connection without a request.
const IDLE: Duration = Duration::from_secs(5);

const NOT_WRITABLE: &str = "the state cannot be written: channels wait, retrying";

/// The limit of open files that is in force for a daemon, and the highest that it can set.
fn descriptor_limits(daemon: &Daemon) -> (String, String) {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().map(str::to_owned);
    (numbers.next().unwrap(), numbers.next().unwrap())
}

async fn service(channels: usize, events: u64) -> Simulator {
    Simulator::start(Options { channels, events, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn a_daemon_without_a_free_descriptor_waits_and_gives_up_on_no_event() {
    let simulator = service(1, 0).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("sinks.hook.give_up_after", "1ms");
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    let polls = simulator.requests().poll;
    daemon.until("the channel polls", |_| simulator.requests().poll > polls).await;

    // The open files and the connection to the service stay open. The webhook needs a connection, and the state needs files.
    daemon.limit(Resource::Nofile, Some(3));
    simulator.publish(0, 10);
    let refused = |daemon: &Daemon| {
        let lines = daemon.log().lines(REFUSED);
        lines.iter().any(|line| line["sink"] == "hook" && line.to_string().contains("Too many open files"))
    };
    daemon.until("the webhook has no descriptor", refused).await;
    assert_eq!(receiver.received(), 0);

    daemon.limit(Resource::Nofile, None);
    daemon.until("everything arrives", |_| receiver.received() == 10 && setup.lines() == 10).await;
    assert_eq!(setup.tell(&["dead-letters", "list", "--json"]).await.json().len(), 0);
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
}

#[tokio::test]
async fn status_without_a_free_descriptor_is_answered_and_names_the_shortage() {
    let simulator = service(1, 5).await;
    let setup = Setup::reading(&simulator).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("everything arrives", |_| setup.lines() == 5).await;
    let warnings = async || setup.tell(&["status", "--json"]).await.json()[0]["warnings"].to_string();
    assert_eq!(warnings().await, "null");
    let kept = daemon.kept_descriptors();

    let least = daemon.least_descriptors();
    daemon.limit(Resource::Nofile, Some(least));
    let started = Instant::now();
    let (mut clients, mut began) = (admin.idle_clients(100), started);
    let said = loop {
        let said = warnings().await;
        let are_served = began.elapsed() < IDLE / 2;
        if said != "null" && are_served {
            break said;
        }
        assert!(started.elapsed() < LONGEST_WAIT, "no shortage is visible: {said}");
        if !are_served {
            // The listener ends idle clients. The next clients must not wait behind them.
            clients.clear();
            (clients, began) = (admin.idle_clients(100), Instant::now());
        }
    };
    assert!(said.contains("no file or connection can be opened; ") && said.contains("LimitNOFILE"), "{said}");
    // The reserve of the listener is a client. The reserve of the control socket is the connection that was answered: its
    // descriptor was never free, so no sink could take it.
    assert_eq!(daemon.kept_descriptors(), kept - 2);
    assert!(warnings().await.contains("no file or connection can be opened"));

    drop(clients);
    daemon.limit(Resource::Nofile, None);
    assert_eq!(warnings().await, "null");
    daemon.stop().await;
}

#[tokio::test]
async fn hanging_requests_and_slow_clients_that_take_all_descriptors_stop_nothing_else() {
    const CHANNELS: usize = 8;
    let simulator = service(CHANNELS, 20).await;
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Hang));
    let setup = Setup::reading(&simulator)
        .with_admin()
        .with_webhook("hook", &receiver)
        .with("sinks.hook.concurrency", 16)
        .with("sinks.hook.timeout", "3s")
        .with("sinks.hook.retry_wait_max", "2s");
    // Too few for up to 128 requests that hang.
    let mut daemon = setup.start_after("ulimit -n 64");
    let admin = Admin::of(&mut daemon).await;
    let slow = admin.idle_clients(100);
    daemon.until("descriptors are used up", |daemon| daemon.log().0.contains("Too many open files")).await;
    for _ in 0..3 {
        assert_eq!(admin.get("/livez").await.status, 200);
    }
    for channel in 0..CHANNELS {
        simulator.publish(channel, 5);
    }
    daemon.until("the file receives everything", |_| setup.lines() == CHANNELS * 25).await;

    drop(slow);
    receiver.always(None);
    daemon.until("the webhook receives everything", |_| receiver.received() >= CHANNELS * 25).await;
    daemon.stop().await;
    for channel in 0..CHANNELS {
        assert_eq!(setup.offsets(&format!("c{channel}")), deliverable(&simulator, channel), "channel {channel}");
    }
}

#[tokio::test]
async fn a_file_that_reaches_the_limit_of_its_size_is_like_a_full_disk() {
    let simulator = service(1, 20).await;
    let mut setup = Setup::reading(&simulator);
    setup.set("sinks.table.type", "sqlite");
    setup.set("sinks.table.path", setup.path("events.db").display().to_string());
    setup.set("channels.c0.sinks", json!(["file", "table"]));
    let rows = || {
        // Only the daemon creates the database.
        let reader = Connection::open_with_flags(setup.path("events.db"), OpenFlags::SQLITE_OPEN_READ_WRITE);
        let count =
            |reader: Connection| reader.query_row("select count(*) from events", [], |row| row.get::<_, i64>(0));
        reader.and_then(count).unwrap_or_default()
    };
    let mut daemon = setup.start();
    daemon.until("the first events arrive", |_| setup.lines() == 20 && rows() == 20).await;
    // The state must not be written after the limit is set.
    let is_recorded = |daemon: &Daemon, sink: &str| {
        daemon.log().lines("batch recorded").iter().any(|line| line["sink"] == sink && line["offset"] == 20)
    };
    daemon
        .until("both lanes have recorded", |daemon| ["file", "table"].iter().all(|sink| is_recorded(daemon, sink)))
        .await;

    daemon.limit(Resource::Fsize, Some(std::fs::metadata(setup.path("events.jsonl")).unwrap().len() + 1));
    simulator.publish(0, 5);
    let refused = |daemon: &Daemon, sink: &str| {
        let lines = daemon.log().lines(REFUSED);
        lines.into_iter().find(|line| line["sink"] == sink).map(|line| line["error"].to_string())
    };
    daemon
        .until("both sinks refuse", |daemon| ["file", "table"].iter().all(|sink| refused(daemon, sink).is_some()))
        .await;
    let said = refused(&daemon, "file").unwrap();
    assert!(said.contains("File too large"), "{said}");
    assert_eq!((setup.lines(), rows()), (20, 20), "no part of a batch stays");

    daemon.limit(Resource::Fsize, None);
    daemon.until("everything arrives", |_| setup.lines() == 25 && rows() == 25).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_state_that_reaches_the_limit_of_its_size_is_written_again() {
    let simulator = service(1, 20).await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    // The channel has no sink that writes files, so only the state reaches the limit.
    setup.set("channels.c0.sinks", json!(["hook"]));
    let mut daemon = setup.start();
    // A write in progress would reach the limit in its middle, which no check can prevent.
    let is_recorded =
        |daemon: &Daemon| daemon.log().lines("batch recorded").last().is_some_and(|last| last["offset"] == 20);
    daemon.until("the first events are recorded", is_recorded).await;

    daemon.limit(Resource::Fsize, Some(1));
    simulator.publish(0, 5);
    daemon.until_logged(NOT_WRITABLE).await;
    let said = daemon.log().lines(NOT_WRITABLE);
    assert!(said[0]["error"].as_str().unwrap().contains("File too large"), "{said:?}");

    daemon.limit(Resource::Fsize, None);
    daemon.until_logged("the state is writable again").await;
    daemon.until("everything arrives", |_| receiver.received() == 25).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_start_waits_until_the_disk_of_the_state_has_room() {
    let simulator = service(1, 5).await;
    let mut setup = Setup::reading(&simulator);
    let Some(mount) = Mount::new(setup.path("small"), "8m") else { return };
    setup.set("state.path", mount.at.join("state").display().to_string());
    let filling = fill(&mount.at);
    let mut daemon = setup.start();
    daemon.until_logged("the state cannot be opened yet: retrying for a minute").await;
    assert!(daemon.log().0.contains("No space left on device"), "{}", daemon.log().tail());
    std::fs::remove_file(&filling).unwrap();
    daemon.until("everything arrives", |_| setup.lines() == 5).await;
    daemon.stop().await;

    let filling = fill(&mount.at);
    let mut daemon = setup.start();
    daemon.until_logged("the state cannot be opened yet: retrying for a minute").await;
    daemon.stop().await;
    std::fs::remove_file(&filling).unwrap();
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised_and_a_strict_umask_stays() {
    let simulator = service(1, 5).await;
    let setup = Setup::reading(&simulator);
    let mode = |name: &str| std::fs::metadata(setup.path(name)).unwrap().permissions().mode() & 0o777;
    for (umask, expected) in [("077", 0o600), ("000", 0o640), ("022", 0o640)] {
        let _ = std::fs::remove_file(setup.path("events.jsonl"));
        let _ = std::fs::remove_dir_all(setup.path("state"));
        let mut daemon = setup.start_after(&format!("ulimit -S -n 64 && umask {umask}"));
        daemon.until("everything arrives", |_| setup.lines() == 5).await;
        let (soft, hard) = descriptor_limits(&daemon);
        assert!(soft == hard && soft != "64", "{soft} of {hard}");
        assert_eq!(mode("events.jsonl"), expected, "umask {umask}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn an_environment_that_excludes_everything_from_the_proxy_also_excludes_addresses() {
    let simulator = service(1, 5).await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    // Nothing listens at this port.
    setup.set_environment("HTTP_PROXY", "http://127.0.0.1:1");
    setup.set_environment("http_proxy", "http://127.0.0.1:1");
    setup.set_environment("NO_PROXY", "*");
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| setup.lines() == 5 && receiver.received() == 5).await;
    daemon.stop().await;
}
