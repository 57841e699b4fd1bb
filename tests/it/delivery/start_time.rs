//! `start` can be a time: reading begins at the first event that was created at this time or later.

use simulator::Window;

use crate::support::{LAST_SECOND, Receiver, Reply, Setup, created, deliverable, offsets, past_events};

const FOUND: &str = "reading begins at the first event since the start time";

#[tokio::test]
async fn reading_begins_at_the_first_event_since_the_start_time_and_a_restart_does_not_move_it() {
    // The Unix second 1,759,999,970 in two notations.
    for (start, window) in [("@1759999970", Window::Oldest), ("2025-10-09T08:52:50Z", Window::Newest)] {
        let simulator = past_events(600, window).await;
        let mut setup = Setup::reading(&simulator).with("channels.c0.start", start).with("api.page_limit", 50);
        setup.write();
        let first = created(&setup, "--created-gte", start).await[0];
        assert!(first > 400 && first < 520, "the test begins within the backlog: {first}");
        let expected =
            || -> Vec<_> { deliverable(&simulator, 0).into_iter().filter(|offset| *offset >= first).collect() };

        let mut daemon = setup.start();
        daemon.until("the events since the start time arrive", |_| setup.lines() >= expected().len()).await;
        let log = daemon.stop().await;
        let found = log.lines(FOUND).remove(0)["first_event"].to_string();
        assert!(found.contains(&format!("offset {first}, event ")), "{found}");
        assert_eq!(setup.offsets("c0"), expected(), "{start}");

        for later in ["@1759999900", "7d", "earliest"] {
            setup.set("channels.c0.start", later);
            simulator.publish(0, 2);
            setup.run_until_lines(setup.lines() + 2).await;
        }
        assert_eq!(setup.offsets("c0"), expected(), "{start}: an existing cursor takes precedence");
    }
}

#[tokio::test]
async fn the_start_is_recorded_before_anything_is_delivered() {
    let simulator = past_events(200, Window::Oldest).await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("channels.c0.start", "@1759999980");
    setup.write();
    let first = created(&setup, "--created-gte", "@1759999980").await[0];
    receiver.always(Some(Reply::Refuse(503, None)));
    let mut daemon = setup.start();
    daemon.until("the sink refuses the first event", |_| receiver.requests() > 0).await;
    daemon.kill().await;

    receiver.always(None);
    setup.set("channels.c0.start", "latest");
    let expected: Vec<_> = deliverable(&simulator, 0).into_iter().filter(|offset| *offset >= first).collect();
    let mut daemon = setup.start();
    daemon.until("the events since the recorded start arrive", |_| receiver.received() >= expected.len()).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), expected);
}

#[tokio::test]
async fn without_an_event_since_the_start_time_reading_begins_at_the_next_event() {
    let simulator = past_events(20, Window::Oldest).await;
    let start = format!("@{}", LAST_SECOND + 10);
    let setup = Setup::reading(&simulator).with("channels.c0.start", start);
    let mut daemon = setup.start();
    daemon.until_logged(FOUND).await;
    simulator.publish(0, 3);
    daemon.until("the new events arrive", |_| setup.lines() >= 3).await;
    let log = daemon.stop().await;
    assert_eq!(log.lines(FOUND)[0]["first_event"], "none yet: the newest event is at offset 20");
    assert_eq!(setup.offsets("c0"), [21, 22, 23]);
}
