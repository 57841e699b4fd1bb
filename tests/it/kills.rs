//! kill -9 in the large: a backlog flows through a service full of faults into a file and a webhook that keeps failing,
//! and the daemon is killed at random moments all the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use channeld::event::Offset;
use channeld::simulator::{Fault, Honesty, LateProofs, Options, Route, Simulator};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::support::{Receiver, Reply, Setup, deliverable, everything};

const PAGE: usize = 50;

/// What a webhook's lane has in hand: requests between two records of what has arrived.
const IN_HAND: usize = 8;

/// Events, and kills.
const SAMPLE: (usize, usize) = (2_000, 12);
const FULL: (usize, usize) = (50_000, 60);

/// What the service does instead of answering, between two kills.
fn troubles(simulator: &Simulator, moments: &mut StdRng) {
    let faults = [
        Fault::Reset,
        Fault::Status(500),
        Fault::TruncatedJson,
        Fault::ResetMidway,
        Fault::WrongShape,
        Fault::Html,
        Fault::EmptyBody,
        Fault::RateLimited { retry_after: Some("0".to_owned()) },
    ];
    for _ in 0..3 {
        let fault = faults[moments.random_range(0..faults.len())].clone();
        let route = if moments.random_bool(0.8) { Route::Poll } else { Route::Event };
        simulator.fail_next_on(route, fault, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_under_load_it_loses_nothing_and_repeats_no_more_than_a_batch_a_kill() {
    let (events, kills) = if everything() { FULL } else { SAMPLE };
    let late_proofs = Some(LateProofs { share: 0.02, delay: Duration::from_secs(2) });
    let backlog = u64::try_from(events).unwrap();
    let options = Options { events: backlog, unsigned: 0.2, forged: 0.01, late_proofs, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let late_at_first = deliverable_late(&simulator);
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", PAGE);
    let setup = setup.with("log.level", "info");
    let mut moments = StdRng::seed_from_u64(23);
    // Repeats that can be told from what follows a kill: the requests accepted by then.
    let mut accepted_at = vec![0];
    for kill in 1..=kills {
        troubles(&simulator, &mut moments);
        receiver.reply(Reply::Refuse(503, None), moments.random_range(0..3));
        let mut daemon = setup.start();
        // The way to go is divided among the kills; where in its share each one falls is chance.
        let share = events / (kills + 1);
        let enough = (share * (kill - 1) + moments.random_range(1..=share)).max(receiver.received() + 1);
        let refusals = moments.random_range(0..4);
        daemon.until("some events have arrived", |_| receiver.received() >= enough).await;
        receiver.reply(Reply::Refuse(500, None), refusals);
        // A moment of its own: so many more requests, whatever becomes of them.
        let requests = receiver.requests() + moments.random_range(0..PAGE);
        daemon.until("the moment comes", |_| receiver.requests() >= requests).await;
        daemon.kill().await;
        accepted_at.push(receiver.received());
    }

    let forged = |honesty| honesty == Honesty::Forged;
    let all = simulator.offsets(0).into_iter().filter(|(_, honesty)| !forged(*honesty)).count();
    let mut daemon = setup.start();
    daemon.until("everything is posted", |_| receiver.received() >= all && distinct(&receiver.ids()) >= all).await;
    daemon.until("everything is in the file", |_| setup.lines() >= all).await;
    let log = daemon.stop().await;
    assert!(log.lines("channel panicked: starting it again").is_empty());

    let expected = deliverable(&simulator, 0);
    assert!(!late_at_first.is_empty() && expected.len() < events, "late and forged events were there");
    in_the_file(&setup, &expected, &late_at_first);
    let repeats = in_the_webhook(&receiver, &expected, &accepted_at);
    let forged: Vec<_> = simulator.offsets(0).into_iter().filter(|(_, honesty)| forged(*honesty)).collect();
    let quarantined = setup.state().quarantined(simulator.announcement().channels[0]).unwrap();
    let quarantined: Vec<_> = quarantined.into_keys().map(Offset::get).collect();
    assert_eq!(
        quarantined,
        forged.into_iter().map(|(offset, _)| offset).collect::<Vec<_>>(),
        "the forged ones, no other"
    );
    println!("{events} events, {kills} kills, {repeats} repeats at the webhook");
}

fn deliverable_late(simulator: &Simulator) -> BTreeSet<i64> {
    let late = simulator.offsets(0).into_iter().filter(|(_, honesty)| *honesty == Honesty::Pending);
    late.map(|(offset, _)| offset).collect()
}

fn distinct(ids: &[String]) -> usize {
    ids.iter().collect::<BTreeSet<_>>().len()
}

fn in_the_file(setup: &Setup, expected: &[i64], late: &BTreeSet<i64>) {
    let mut in_file = setup.offsets("c0");
    let in_time: Vec<_> = in_file.iter().filter(|offset| !late.contains(*offset)).collect();
    assert!(in_time.is_sorted(), "ascending apart from late events");
    in_file.sort_unstable();
    assert_eq!(in_file, expected, "each exactly once");
}

/// Everything came, each repeat with its first id, and after a kill, and no more than a batch of them.
fn in_the_webhook(receiver: &Receiver, expected: &[i64], accepted_at: &[usize]) -> usize {
    let (posted, ids) = (receiver.delivered(), receiver.ids());
    let mut id_of: BTreeMap<i64, &str> = BTreeMap::new();
    let mut repeats = vec![0; accepted_at.len()];
    for (place, (delivered, id)) in posted.iter().zip(&ids).enumerate() {
        let life = accepted_at.partition_point(|began| *began <= place) - 1;
        if let Some(first) = id_of.insert(delivered.offset, id) {
            assert_eq!(first, id, "a repeat has the same id");
            repeats[life] += 1;
        }
    }
    assert_eq!(id_of.into_keys().collect::<Vec<_>>(), expected, "each at least once");
    assert_eq!(repeats[0], 0, "nothing twice before the first kill");
    assert!(repeats.iter().all(|repeats| *repeats <= IN_HAND), "more than a batch after a kill: {repeats:?}");
    repeats.iter().sum()
}
