//! The machine fails under the daemon: a full disk, or a state directory that is gone or read-only. The daemon waits or
//! exits with a clear message, and no event is lost.

use rustix::process::Signal;
use simulator::{Options, Simulator};

use crate::support::{Mount, Receiver, Reply, Setup, deliverable, fill, offsets};

const REFUSED: &str = "sink refused: its events wait and will be offered again";
const PAGE: usize = 10;

async fn service(events: u64) -> Simulator {
    Simulator::start(Options { events, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn a_full_disk_of_the_file_sink_is_retried() {
    let simulator = service(20).await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", PAGE);
    let Some(mount) = Mount::new(setup.path("small"), "256k") else { return };
    let path = mount.at.join("events.jsonl");
    setup.set("sinks.file.path", path.display().to_string());
    let lines = || crate::support::Delivered::read(&path);
    let mut daemon = setup.start();
    daemon.until("the first events arrive", |_| receiver.received() == 20 && lines().len() == 20).await;

    let filling = fill(&mount.at);
    simulator.publish(0, 40);
    daemon.until("the other sink continues", |_| receiver.received() == 60).await;
    daemon.until_logged(REFUSED).await;
    let log = daemon.log();
    let said = log.lines(REFUSED);
    assert!(said[0]["error"].as_str().unwrap().contains("No space left on device"), "{said:?}");
    std::fs::remove_file(filling).unwrap();
    daemon.until("the file has the events that waited", |_| lines().len() == 60).await;
    daemon.stop().await;

    assert_eq!(offsets(&lines()), deliverable(&simulator, 0));
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_state_on_a_full_disk_waits_until_there_is_room_and_loses_nothing() {
    let simulator = service(20).await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", PAGE);
    let Some(mount) = Mount::new(setup.path("small"), "8m") else { return };
    setup.set("state.path", mount.at.join("state").display().to_string());
    let mut daemon = setup.start();
    daemon.until("the first events arrive", |_| receiver.received() == 20 && setup.lines() == 20).await;

    let filling = fill(&mount.at);
    simulator.publish(0, 40);
    daemon.until_logged("the state cannot be written: channels wait, retrying").await;
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    let said = status["reasons"].to_string();
    assert!(status["ready"] == false && said.contains("the state cannot be written"), "{status:#}");
    assert!(said.contains("No space left on device"), "{said}");

    std::fs::remove_file(filling).unwrap();
    daemon.until("everything arrives", |_| receiver.received() == 60 && setup.lines() == 60).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_state_on_a_read_only_disk_ends_the_daemon_with_the_reason_and_loses_nothing() {
    let simulator = service(20).await;
    let mut setup = Setup::reading(&simulator).with("api.page_limit", PAGE);
    let Some(mount) = Mount::new(setup.path("small"), "8m") else { return };
    setup.set("state.path", mount.at.join("state").display().to_string());
    let mut daemon = setup.start();
    daemon.until("the first events arrive", |_| setup.lines() == 20).await;
    // A file system cannot become read-only while a file is open for writing, so it is remounted between two runs.
    daemon.until_logged("batch recorded").await;
    daemon.stop().await;
    mount.remount("ro");
    // While the fault lasts, the daemon does not start, and logs the reason.
    let ended = setup.start().ended().await;
    assert_eq!(ended.code, Some(1), "{}", ended.log.0);
    let why = "Read-only file system";
    assert!(ended.log.at("ERROR").iter().any(|line| line.to_string().contains(why)), "{}", ended.log.0);

    mount.remount("rw");
    simulator.publish(0, 5);
    let expected = deliverable(&simulator, 0);
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| setup.lines() >= expected.len()).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), expected);
}

#[tokio::test]
async fn a_removed_state_directory_ends_the_daemon_with_the_reason_and_loses_nothing() {
    let simulator = service(20).await;
    let setup = Setup::reading(&simulator).with("api.page_limit", PAGE);
    let mut daemon = setup.start();
    daemon.until("the first events arrive", |_| setup.lines() == 20).await;
    daemon.until("the first events are recorded", |_| recorded(&setup, 20)).await;

    std::fs::remove_dir_all(setup.path("state")).unwrap();
    simulator.publish(0, 5);
    let ended = daemon.ended().await;
    assert_eq!(ended.code, Some(1), "{}", ended.log.0);
    let said = ended.log.at("ERROR");
    assert!(said.iter().any(|line| line.to_string().contains("No such file or directory")), "{said:?}");

    // The state is gone, so the daemon continues from the position of the file.
    let mut daemon = setup.start();
    daemon.until("everything is recorded", |_| recorded(&setup, 25)).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_failed_state_ends_the_daemon_at_once_although_another_sink_does_not_answer() {
    let simulator = service(20).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator)
        .with_webhook("hook", &receiver)
        .with("sinks.hook.timeout", "10m")
        .with("shutdown_grace", "10m")
        .with("api.page_limit", PAGE);
    let mut daemon = setup.start();
    daemon.until("the first events are recorded", |_| recorded(&setup, 20) && receiver.received() == 20).await;

    receiver.always(Some(Reply::Hang));
    let requests = receiver.requests();
    simulator.publish(0, 1);
    daemon.until("the webhook hangs", |_| receiver.requests() > requests).await;
    std::fs::rename(setup.path("state"), setup.path("elsewhere")).unwrap();
    simulator.publish(0, 5);

    let ended = daemon.ended().await;
    assert_eq!(ended.code, Some(1), "{}", ended.log.0);
    let said = ended.log.at("ERROR");
    assert!(said.iter().any(|line| line.to_string().contains("nothing more can be recorded")), "{said:?}");
}

#[tokio::test]
async fn a_state_that_fails_during_a_stop_decides_the_exit_code_although_the_grace_period_expires_too() {
    let options = Options { channels: 2, events: 5, unsigned: 0.2, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let (hangs, answers) = (Receiver::start().await, Receiver::start().await);
    let mut setup = Setup::reading(&simulator)
        .with("channels.c0.sinks", vec!["hangs"])
        .with("channels.c1.sinks", vec!["answers"])
        .with("shutdown_grace", "2s");
    setup.remove("sinks.file");
    for (sink, receiver) in [("hangs", &hangs), ("answers", &answers)] {
        setup.define_webhook(sink, receiver);
        setup.set(&format!("sinks.{sink}.timeout"), "10m");
        receiver.always(Some(Reply::Hang));
    }
    let mut daemon = setup.start();
    daemon.until("both webhooks hang", |_| hangs.requests() == 1 && answers.requests() == 1).await;
    daemon.signal(Signal::TERM);
    daemon.until_logged("stopping: finishing and recording the current batch").await;
    std::fs::rename(setup.path("state"), setup.path("elsewhere")).unwrap();
    answers.always(None);
    answers.release();

    let ended = daemon.ended().await;
    assert_eq!(ended.code, Some(1), "{}", ended.log.0);
    let (failed, expired) = (ended.log.at("ERROR"), ended.log.at("WARN"));
    assert!(failed.iter().any(|line| line.to_string().contains("nothing more can be recorded")), "{failed:?}");
    assert!(expired.iter().any(|line| line.to_string().contains("did not finish in time")), "{expired:?}");
    assert_eq!(ended.log.lines("channeld ends")[0]["outcome"], "the state failed");
}

fn recorded(setup: &Setup, offset: i64) -> bool {
    let mirror = std::fs::read_to_string(setup.path("state/cursors.json")).unwrap_or_default();
    mirror.contains(&format!(r#""file": {offset}"#))
}
