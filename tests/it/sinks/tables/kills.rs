//! kill -9 at random moments, with forged and pending events.

use std::collections::BTreeSet;

use rand::Rng;
use simulator::{Honesty, LateProofs, Options};

use super::{NEVER, tables};
use crate::support::{deliverable, everything, random};

/// The number of events and of kills.
const SAMPLE: (u64, usize) = (600, 6);
const FULL: (u64, usize) = (6_000, 25);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_at_any_moment_leave_each_event_in_each_table_once() {
    let (events, kills) = if everything() { FULL } else { SAMPLE };
    let late_proofs = Some(LateProofs { share: 0.05, delay: NEVER });
    let options = Options { events, unsigned: 0.2, forged: 0.03, late_proofs, ..Options::default() };
    let Some((simulator, setup, tables)) = tables(options).await else { return };
    let setup = setup.with("api.page_limit", 40);
    let of =
        |kind| simulator.offsets(0).into_iter().filter(move |(_, honesty)| *honesty == kind).map(|(offset, _)| offset);
    let mut unproved: BTreeSet<_> = of(Honesty::Pending).collect();
    let forged = of(Honesty::Forged).count();
    assert!(!unproved.is_empty() && forged > 0);
    let mut moments = random(17);
    for kill in 0..kills {
        let share = usize::try_from(events).unwrap() / (kills + 1);
        let enough = kill * share + moments.random_range(1..=share);
        let enough = i64::try_from(enough).unwrap() - i64::try_from(forged + unproved.len()).unwrap();
        let mut daemon = setup.start();
        // Wait for the two tables alternately, so that sometimes one and sometimes the other is ahead.
        super::until(&mut daemon, "some rows are there", async || tables.rows().await[kill % 2] >= enough).await;
        daemon.kill().await;
        let come: Vec<_> = unproved.iter().copied().filter(|_| moments.random_bool(0.3)).collect();
        for offset in come {
            simulator.prove(0, offset);
            unproved.remove(&offset);
        }
    }
    for offset in unproved {
        simulator.prove(0, offset);
    }
    let expected = deliverable(&simulator, 0);
    let mut daemon = setup.start();
    tables.until(&mut daemon, expected.len()).await;
    let last = simulator.offsets(0).last().unwrap().0;
    super::until(&mut daemon, "both lanes are at the end", async || {
        let at_end = "select count(*) from events_progress where through = ";
        tables.both(&format!("{at_end}{last}")).iter().all(|found| *found == ["1"])
    })
    .await;
    daemon.stop().await;
    tables.assert_each_once(&expected, last);
    tables.assert_dense(expected.len());
    let wrong = "select count(*) from events where (verification = 'verified') <> (decoded is not null) \
                 or (verification = 'verified') <> (digest is not null) or record is null";
    assert_eq!(tables.both(wrong), [["0"], ["0"]]);
    let [one, other] =
        tables.both("select event_offset, name, service, status, event_id, watcher_id from events order by 1");
    assert_eq!(one, other, "both tables have the same values");
}
