//! An operator shows and moves cursors. The command first says which events will be repeated or skipped.

use super::{PROVED, service};
use crate::support::{Receiver, Setup, offsets};

#[tokio::test]
async fn a_cursor_moved_back_repeats_the_announced_events_on_that_sink_only() {
    let simulator = service(&[PROVED; 6]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| setup.lines() == 6 && receiver.received() == 6).await;
    daemon.stop().await;
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [6, 6]);

    let set = ["cursor", "set", "c0", "--sink", "hook", "--to", "4", "--json"];
    let asked = setup.tell(&set).await;
    assert_eq!(asked.code, Some(64), "{asked:?}");
    assert!(asked.errors.contains("--yes"), "{asked:?}");
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [6, 6]);
    let done = setup.tell(&[&set[..], &["--yes"]].concat()).await;
    assert_eq!(done.each("repeated"), [2]);
    assert!(done.errors.contains("cursor set by an operator"), "{done:?}");
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [6, 4]);
    let back = setup.tell(&["cursor", "set", "c0", "--back-to", "5", "--yes", "--json"]).await;
    assert_eq!((back.each("repeated"), back.each("passed_over")), (vec![1.into(), 0.into()], vec![0.into(), 0.into()]));
    assert_eq!(
        setup.tell(&["cursor", "show", "--json"]).await.each("cursor"),
        [5, 4],
        "a cursor below the target does not move"
    );

    let mut daemon = setup.start();
    daemon.until("the repeated events arrive", |_| receiver.received() == 8).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), [1, 2, 3, 4, 5, 6, 5, 6]);
    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_cursor_set_to_latest_skips_existing_events() {
    let simulator = service(&[PROVED; 2]).await;
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(2).await;
    simulator.publish(0, 3);

    let done = setup.tell(&["cursor", "set", "c0", "--to", "latest", "--yes", "--json"]).await;
    assert_eq!((done.each("passed_over"), done.each("to")), (vec![3.into()], vec![5.into()]));
    simulator.publish_one(0, PROVED);
    setup.run_until_lines(3).await;
    assert_eq!(setup.offsets("c0"), [1, 2, 6]);
}
