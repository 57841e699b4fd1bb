//! A channel or a sink is paused and resumed: nothing is lost, and the others go on.

use super::{PROVED, service};
use crate::support::{Receiver, Setup, deliverable, offsets};

#[tokio::test]
async fn a_paused_channel_stands_still_and_its_cursors_can_be_set_until_it_is_resumed() {
    let simulator = service(&[PROVED; 4]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 4 && receiver.received() == 4).await;

    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(0));
    daemon.until_logged("channel paused").await;
    simulator.publish(0, 2);
    let polls = simulator.requests().poll;
    let set = setup.tell(&["cursor", "set", "c0", "--sink", "hook", "--to", "3", "--yes", "--json"]).await;
    assert_eq!(set.each("repeated"), [1]);
    assert_eq!((setup.lines(), receiver.received(), simulator.requests().poll), (4, 4, polls));

    assert_eq!(setup.tell(&["resume", "c0"]).await.code, Some(0));
    daemon.until("it goes on", |_| setup.lines() == 6 && receiver.received() == 7).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(offsets(&receiver.delivered()), [1, 2, 3, 4, 4, 5, 6]);
}

#[tokio::test]
async fn a_paused_sink_holds_up_no_other_and_gets_everything_when_it_is_resumed() {
    let simulator = service(&[PROVED; 2]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 3);
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 2 && receiver.received() == 2).await;

    assert_eq!(setup.tell(&["pause", "c0", "--sink", "hook"]).await.code, Some(0));
    assert_eq!(setup.tell(&["pause", "c0", "--sink", "nowhere"]).await.code, Some(64));
    simulator.publish(0, 40);
    daemon.until("the other gets all", |_| setup.lines() == 42).await;
    assert_eq!(receiver.received(), 2);

    assert_eq!(setup.tell(&["resume", "c0", "--sink", "hook"]).await.code, Some(0));
    daemon.until("it has caught up", |_| receiver.received() == 42).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(1), "nothing runs");
}
