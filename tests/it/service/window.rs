//! The service shows the newest events first and omits older ones. The daemon skips no event because of this.

use simulator::{Options, Simulator, Window};

use crate::support::{Setup, crowded_second, deliverable};

const READ_FAILED: &str = "failed: an operator must act; retrying";

#[tokio::test]
async fn a_backlog_is_delivered_in_every_reading_window() {
    for (inclusive, sparse) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = Options { events: 300, window: Window::Newest, inclusive, sparse, ..Options::default() };
        let simulator = Simulator::start(options).await.unwrap();
        let setup = Setup::reading(&simulator).with("api.page_limit", 20);
        let mut daemon = setup.start();
        daemon.until("the backlog arrives", |_| setup.lines() == 300).await;

        simulator.publish(0, 100);
        daemon.until("the burst arrives", |_| setup.lines() == 400).await;
        daemon.stop().await;

        assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0), "inclusive {inclusive}, sparse {sparse}");
    }
}

#[tokio::test]
async fn an_ambiguous_range_is_reported_as_in_doubt_and_never_skipped() {
    let (simulator, setup, mut daemon) = crowded_second().await;
    let before = simulator.requests().search;
    daemon
        .until("the doubt is logged, and the range is read again", |daemon| {
            daemon.has_logged(READ_FAILED) && simulator.requests().search > before + 100
        })
        .await;
    let said = daemon.stop().await.lines(READ_FAILED);
    assert_eq!(said.len(), 1, "it is logged once: {said:?}");
    assert_eq!((&said[0]["level"], &said[0]["kind"]), (&"ERROR".into(), &"range-in-doubt".into()));
    let delivered = setup.offsets("c0");
    assert!(delivered.iter().copied().eq(1..=i64::try_from(delivered.len()).unwrap()), "{delivered:?}");
}
