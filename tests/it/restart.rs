//! What was delivered and recorded is not delivered again, what was not is: across stops, and across kills.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use channeld::simulator::{Fault, LateProofs, Options, Route, Simulator};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::support::{Receiver, Setup, deliverable, offsets};

const KILLS: usize = 10;
const PAGE: usize = 10;

#[tokio::test]
async fn a_restart_goes_on_where_it_stopped_and_repeats_nothing() {
    let simulator = Simulator::start(Options { events: 30, unsigned: 0.3, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 7);
    for more in [0, 1, 0, 20] {
        simulator.publish(0, more);
        let expected = deliverable(&simulator, 0);
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        daemon
            .until("everything arrives", |_| setup.lines() == expected.len() && receiver.received() == expected.len())
            .await;
        daemon.stop().await;
        assert_eq!(setup.offsets("c0"), expected);
        assert_eq!(offsets(&receiver.delivered()), expected);
    }
}

#[tokio::test]
async fn killed_at_any_moment_it_loses_nothing_and_the_file_has_everything_once() {
    let late_proofs = Some(LateProofs { share: 0.05, delay: Duration::from_secs(2) });
    let options = Options { events: 400, unsigned: 0.2, forged: 0.05, late_proofs, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", PAGE);
    let mut moments = StdRng::seed_from_u64(7);
    for _ in 0..KILLS {
        for fault in [Fault::Reset, Fault::Status(500), Fault::TruncatedJson, Fault::ResetMidway, Fault::WrongShape] {
            simulator.fail_next_on(Route::Poll, fault, 1);
        }
        let mut daemon = setup.start();
        let enough = receiver.received() + moments.random_range(0..2 * PAGE);
        daemon.until("some events have arrived", |_| receiver.received() >= enough).await;
        daemon.kill().await;
    }

    let mut daemon = setup.start();
    let distinct = |ids: Vec<String>| ids.into_iter().collect::<BTreeSet<_>>().len();
    daemon
        .until("everything has arrived", |_| {
            let expected = deliverable(&simulator, 0).len();
            setup.lines() >= expected && receiver.received() >= expected && distinct(receiver.ids()) == expected
        })
        .await;
    daemon.stop().await;

    let expected = deliverable(&simulator, 0);
    let mut in_file = setup.offsets("c0");
    in_file.sort_unstable();
    assert_eq!(in_file, expected, "each once");

    let posted = receiver.delivered();
    let mut ids_of: BTreeMap<i64, Vec<&Option<String>>> = BTreeMap::new();
    for delivered in &posted {
        ids_of.entry(delivered.offset).or_default().push(&delivered.event_id);
    }
    assert_eq!(ids_of.keys().copied().collect::<Vec<_>>(), expected, "each at least once");
    assert!(ids_of.values().all(|ids| ids.windows(2).all(|pair| pair[0] == pair[1])), "a repeat has the same id");
    let repeats = posted.len() - expected.len();
    assert!(repeats <= KILLS * PAGE, "{repeats} repeats: more than a batch for each kill");
}
