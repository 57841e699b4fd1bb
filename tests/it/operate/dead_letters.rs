//! Dead letters are stored and shown, and an operator can replay or drop them.

use std::collections::BTreeMap;

use ledger::{Change, Commit, DEAD_LETTERS, DeadLetter, DeadLetterFacts};
use proof::event::{ChannelId, Offset};
use simulator::{Options, Simulator};

use super::{PROVED, service};
use crate::support::{Delivered, FILLER, Receiver, Reply, Setup, offsets, records};

const GIVEN_UP: &str =
    "the sink refused the event for too long: the event is a dead letter now, see `channeld dead-letters list`";

/// A webhook that turns an event into a dead letter after one second of refusals.
fn giving_up_soon(simulator: &Simulator, receiver: &Receiver) -> Setup {
    Setup::reading(simulator).with_webhook("hook", receiver).with("sinks.hook.give_up_after", "1s")
}

#[tokio::test]
async fn an_event_refused_too_long_becomes_a_dead_letter_and_keeps_its_id_on_replay() {
    let simulator = service(&[PROVED; 3]).await;
    let receiver = Receiver::start().await;
    let setup = giving_up_soon(&simulator, &receiver);
    receiver.always(Some(Reply::Refuse(422, None)));
    let mut daemon = setup.start();
    daemon.until("all events become dead letters", |daemon| daemon.log().lines(GIVEN_UP).len() == 3).await;
    assert_eq!((setup.lines(), receiver.received()), (3, 0), "the other sink has the events");

    let listed = setup.tell(&["dead-letters", "list", "--json"]).await;
    assert_eq!(listed.each("offset"), [1, 2, 3]);
    assert_eq!(listed.each("reason"), ["answered 422"; 3]);
    assert!(listed.each("attempts").iter().all(|attempts| attempts.as_u64() > Some(1)), "{listed:?}");
    let ids = listed.each("event_id");
    let truth = records(&simulator, 0).await;
    let shown = setup.tell(&["dead-letters", "show", "c0", "2", "--sink", "hook"]).await;
    assert!(String::from_utf8(shown.out).unwrap().contains(&truth[&2]));
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!(report["dead_letters"]["events"], 3);
    assert_eq!(report["channels"][0]["lanes"][1]["cursor"], 3, "the cursor has passed the dead letters");

    receiver.always(None);
    let replay = ["dead-letters", "replay", "c0", "--sink", "hook"];
    assert_eq!(setup.tell(&[&replay[..], &["2"]].concat()).await.code, Some(0));
    daemon.until("the replayed event arrives", |_| receiver.received() == 1).await;
    assert_eq!(setup.tell(&["dead-letters", "list", "--json"]).await.each("offset"), [1, 3]);
    assert_eq!(setup.tell(&[&replay[..], &["--since", "2020-01-01T00:00:00Z"]].concat()).await.code, Some(0));
    daemon.until("all events arrive", |_| receiver.received() == 3).await;
    daemon.stop().await;

    assert_eq!(offsets(&receiver.delivered()), [2, 1, 3]);
    let received =
        |of: &[Delivered]| of.iter().map(|one| (one.offset, one.received.clone())).collect::<BTreeMap<_, _>>();
    assert_eq!(
        received(&receiver.delivered()),
        received(&setup.delivered()),
        "the times at which the events were first read"
    );
    assert_eq!(receiver.ids(), [&ids[1], &ids[0], &ids[2]].map(|id| id.as_str().unwrap()));
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty());
}

#[tokio::test]
async fn an_always_refused_event_delays_no_other_and_is_dropped_only_on_confirmation() {
    let simulator = service(&[PROVED; 3]).await;
    let receiver = Receiver::start().await;
    let setup = giving_up_soon(&simulator, &receiver);
    let poison = id_of(&simulator, 2).await;
    receiver.refuse(Some(Box::new(move |body| body.contains(&poison))));
    let mut daemon = setup.start();
    daemon.until("the other events arrive", |_| receiver.received() == 2).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), [1, 3]);

    // The daemon is stopped, so the command opens the state itself.
    let drop = ["dead-letters", "drop", "c0", "--sink", "hook", "--all"];
    assert_eq!(setup.tell(&drop).await.code, Some(64));
    assert_eq!(setup.tell(&["dead-letters", "list", "c0", "--sink", "hook", "--json"]).await.each("offset"), [2]);
    assert_eq!(setup.tell(&[&drop[..], &["--yes"]].concat()).await.code, Some(0));
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty());
}

/// Fills the dead letters of a channel completely.
async fn fill_dead_letters(setup: &Setup, channel: ChannelId) {
    let (offset, reason) = (Offset::new(FILLER).unwrap(), "a test".to_owned());
    let facts =
        DeadLetterFacts { offset, event_id: None, reason, attempts: 1, since: 0, at: 0, received: None, bytes: 0 };
    let json = "x".repeat(DEAD_LETTERS.bytes.try_into().unwrap()).into();
    let letter = DeadLetter { facts, json };
    setup.commit(channel, Commit(vec![Change::GiveUp { sink: "hook".into(), letter }])).await;
}

#[tokio::test]
async fn full_dead_letters_block_the_channel_until_there_is_room() {
    let simulator = Simulator::start(Options { channels: 2, ..Options::default() }).await.unwrap();
    simulator.publish_one(0, PROVED);
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Refuse(422, None)));
    let setup = giving_up_soon(&simulator, &receiver);
    fill_dead_letters(&setup, simulator.announcement().channels[0]).await;
    let mut daemon = setup.start();
    let refused = "sink refused: its events wait and will be offered again";
    daemon.until_logged(refused).await;
    // The event of c0 is refused for longer than the events of c1, which become dead letters.
    simulator.publish(1, 3);
    daemon.until("the events of c1 become dead letters", |daemon| daemon.log().lines(GIVEN_UP).len() >= 3).await;
    assert!(daemon.log().lines(GIVEN_UP).iter().all(|line| line["channel"] == "c1"), "{}", daemon.log().0);
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!((&report["channels"][0]["lanes"][1]["cursor"], &report["ready"]), (&().into(), &false.into()));

    let dropped = setup.tell(&["dead-letters", "drop", "c0", &FILLER.to_string(), "--sink", "hook", "--yes"]).await;
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    daemon.until("the event of c0 becomes a dead letter", |daemon| daemon.log().lines(GIVEN_UP).len() == 4).await;
    daemon.stop().await;
    assert_eq!(setup.tell(&["dead-letters", "list", "c0", "--json"]).await.each("offset"), [1]);
}

async fn id_of(simulator: &Simulator, offset: i64) -> String {
    let record: serde_json::Value = serde_json::from_str(&records(simulator, 0).await[&offset]).unwrap();
    record["event_id"].as_str().unwrap().to_owned()
}
