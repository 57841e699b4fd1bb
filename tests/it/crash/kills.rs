//! The daemon is killed at random moments while it delivers a backlog from a faulty service to a file and a faulty
//! webhook.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use simulator::{Fault, Honesty, LateProofs, Options, Requests, Route, Simulator};

use crate::support::{Receiver, Reply, Setup, deliverable, everything, random};

const PAGE: usize = 50;

/// The number of events that a webhook's lane delivers between two commits.
const IN_HAND: usize = 8;

/// The number of events, and the number of kills.
const SAMPLE: (usize, usize) = (2_000, 12);
const FULL: (usize, usize) = (50_000, 60);

/// A kill whose number is a multiple of this happens while the daemon starts.
const EARLY: usize = 6;
const STARTING: Duration = Duration::from_millis(60);

/// Longer than the test takes: proofs arrive when the test calls [`Rig::prove`].
const NEVER: Duration = Duration::from_secs(1_000_000);

/// The moment at which a run of the daemon is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// This long after its start.
    Early(Duration),
    /// When the file contains this number of lines.
    Written(usize),
    /// When the webhook has accepted this number of requests.
    Posted(usize),
}

/// Everything except the daemon.
struct Rig {
    simulator: Simulator,
    receiver: Receiver,
    setup: Setup,
    written: Lines,
    /// The number of events that must arrive in the end.
    expected: usize,
    /// The events whose proof has not arrived.
    unproved: BTreeSet<i64>,
    moments: StdRng,
    /// A separate generator, because the number of draws from it depends on the machine.
    troubles: StdRng,
    asked: Requests,
    posts: usize,
}

impl Rig {
    async fn new(events: usize) -> Self {
        let late_proofs = Some(LateProofs { share: 0.02, delay: NEVER });
        let backlog = u64::try_from(events).unwrap();
        let options = Options { events: backlog, unsigned: 0.2, forged: 0.01, late_proofs, ..Options::default() };
        let simulator = Simulator::start(options).await.unwrap();
        let receiver = Receiver::start().await;
        let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", PAGE);
        let setup = setup.with("log.level", "info");
        let truth = simulator.offsets(0);
        let unproved: BTreeSet<_> = of(&truth, Honesty::Pending).collect();
        let expected = events - of(&truth, Honesty::Forged).count();
        let written = Lines::of(setup.path("events.jsonl"));
        let (moments, troubles) = (random(23), random(29));
        let (asked, posts) = (simulator.requests(), 0);
        Self { simulator, receiver, setup, written, expected, unproved, moments, troubles, asked, posts }
    }

    /// Draws the moment of the next kill. The remaining kills are spread evenly over the remaining events. File and
    /// webhook take turns, because the webhook is slower.
    fn moment(&mut self, kill: usize, kills: usize) -> Moment {
        let (written, posted) = (self.written.count(), self.receiver.received());
        let all = self.expected - self.unproved.len();
        if kill.is_multiple_of(EARLY) || posted >= all {
            return Moment::Early(self.moments.random_range(Duration::ZERO..STARTING));
        }
        let mut draw = |done: usize| {
            let share = (all - done).div_ceil(kills - kill + 2);
            (done + self.moments.random_range(1..=2 * share)).min(all)
        };
        if kill.is_multiple_of(2) && written < all {
            Moment::Written(draw(written))
        } else {
            Moment::Posted(draw(posted))
        }
    }

    fn has_come(&mut self, moment: Moment) -> bool {
        match moment {
            Moment::Early(_) => true,
            Moment::Written(lines) => self.written.count() >= lines,
            Moment::Posted(requests) => self.receiver.received() >= requests,
        }
    }

    /// Makes the service and the webhook fail from time to time.
    fn make_trouble(&mut self) {
        let faults = [
            Fault::Reset,
            Fault::Status(500),
            Fault::TruncatedJson,
            Fault::ResetMidway,
            Fault::WrongShape,
            Fault::Html(502),
            Fault::EmptyBody,
            Fault::RateLimited { retry_after: Some("0".to_owned()) },
        ];
        let asked = self.simulator.requests();
        let posts = self.receiver.requests();
        let random = &mut self.troubles;
        // Add a fault only after a request since the last call. Otherwise unused faults would accumulate.
        for (route, was_asked) in
            [(Route::Poll, asked.poll > self.asked.poll), (Route::Event, asked.event > self.asked.event)]
        {
            if was_asked && random.random_bool(0.05) {
                let fault = faults[random.random_range(0..faults.len())].clone();
                self.simulator.fail_next_on(route, fault, 1);
            }
        }
        if posts > self.posts && random.random_bool(0.04) {
            let status = [500, 503, 400, 429][random.random_range(0..4)];
            self.receiver.reply(Reply::Refuse(status, None), random.random_range(1..3));
        }
        (self.asked, self.posts) = (asked, posts);
    }

    /// Proves about half of the late events that the daemon has already read.
    fn prove_some(&mut self) {
        let read = i64::try_from(self.receiver.received()).unwrap();
        let come: Vec<_> = self.unproved.range(..read).copied().filter(|_| self.moments.random_bool(0.5)).collect();
        for offset in come {
            self.prove(offset);
        }
    }

    fn prove(&mut self, offset: i64) {
        self.simulator.prove(0, offset);
        self.unproved.remove(&offset);
    }

    fn moved(&mut self) -> usize {
        self.written.count() + self.receiver.requests()
    }

    fn has_all(&mut self, last: i64) -> bool {
        let posted = || self.receiver.ids().into_iter().collect::<BTreeSet<_>>().len();
        self.written.count() >= self.expected
            && self.receiver.received() >= self.expected
            && posted() >= self.expected
            && self.has_recorded(last)
    }

    /// Whether both lanes have committed the last offset. Quarantined events are then recorded too, with their batch.
    fn has_recorded(&self, last: i64) -> bool {
        let mirror = std::fs::read_to_string(self.setup.path("state/cursors.json")).unwrap_or_default();
        ["file", "hook"].iter().all(|sink| mirror.contains(&format!(r#""{sink}": {last}"#)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_kills_under_load_lose_nothing_and_repeat_at_most_a_batch_each() {
    let began = Instant::now();
    let (events, kills) = if everything() { FULL } else { SAMPLE };
    let mut rig = Rig::new(events).await;
    let late = rig.unproved.clone();
    // The number of accepted requests at the start of each run.
    let mut lives = vec![0];
    let mut at = Vec::new();
    for kill in 1..=kills {
        let moment = rig.moment(kill, kills);

        let mut daemon = rig.setup.start();
        if let Moment::Early(after) = moment {
            // Not a wait for a result: the end of this sleep is the random moment.
            tokio::time::sleep(after).await;
        }
        daemon
            .while_it_moves("the moment of the kill comes", |_| {
                rig.make_trouble();
                if rig.has_come(moment) { None } else { Some(rig.moved()) }
            })
            .await;
        daemon.kill().await;
        lives.push(rig.receiver.received());
        at.push((rig.written.count(), rig.receiver.received()));
        rig.prove_some();
    }

    for offset in rig.unproved.clone() {
        rig.prove(offset);
    }
    let truth = rig.simulator.offsets(0);
    let last = truth.last().unwrap().0;
    let mut daemon = rig.setup.start();
    daemon
        .while_it_moves("everything arrives", |_| {
            rig.make_trouble();
            if rig.has_all(last) { None } else { Some(rig.moved()) }
        })
        .await;
    let log = daemon.stop().await;
    assert!(log.lines("channel failed because of a defect: restarting it").is_empty());

    let expected = deliverable(&rig.simulator, 0);
    assert!(!late.is_empty() && expected.len() < events, "some events were late and some were forged");
    in_the_file(&rig.setup, &expected, &late);
    let repeats = in_the_webhook(&rig.receiver, &expected, &lives);
    let ledger = rig.setup.ledger(rig.simulator.announcement().channels[0]).await;
    let quarantined: Vec<_> = ledger.quarantined().keys().map(|key| key.offset.get()).collect();
    assert_eq!(
        quarantined,
        of(&truth, Honesty::Forged).collect::<Vec<_>>(),
        "exactly the forged events are quarantined"
    );
    println!("killed at (lines, posts): {at:?}");
    println!(
        "{events} events, {} of them late, {kills} kills, {} repeats at the webhook, at most {} after one kill; {:?}",
        late.len(),
        repeats.iter().sum::<usize>(),
        repeats.iter().max().unwrap(),
        began.elapsed()
    );
}

/// The offsets of one kind of event.
fn of(truth: &[(i64, Honesty)], kind: Honesty) -> impl Iterator<Item = i64> {
    truth.iter().filter(move |(_, honesty)| *honesty == kind).map(|(offset, _)| *offset)
}

fn in_the_file(setup: &Setup, expected: &[i64], late: &BTreeSet<i64>) {
    let mut in_file = setup.offsets("c0");
    let in_time: Vec<_> = in_file.iter().filter(|offset| !late.contains(*offset)).collect();
    assert!(in_time.is_sorted(), "the order is ascending, except for late events");
    in_file.sort_unstable();
    assert_eq!(in_file, expected, "each event exactly once");
}

/// Asserts that every event arrived, that each repeat has the original id and comes in a later run, and that each kill
/// causes at most one batch of repeats. Returns the repeats after each kill.
fn in_the_webhook(receiver: &Receiver, expected: &[i64], lives: &[usize]) -> Vec<usize> {
    let (posted, ids) = (receiver.delivered(), receiver.ids());
    let mut seen: BTreeMap<i64, (&str, usize)> = BTreeMap::new();
    let mut repeats = vec![0; lives.len()];
    for (place, (delivered, id)) in posted.iter().zip(&ids).enumerate() {
        if let Some((first, before)) = seen.insert(delivered.offset, (id, place)) {
            assert_eq!(first, id, "a repeated event has the same id");
            let life = |place| lives.partition_point(|began| *began <= place);
            let mut life_before = life(before);
            if life_before == life(place) {
                // A request that was in flight during the kill can be recorded a moment later, as the first request of
                // the next run.
                assert_eq!(before, lives[life_before - 1], "delivered twice in one run: {id}");
                life_before -= 1;
            }
            repeats[life_before] += 1;
        }
    }
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), expected, "each event at least once");
    assert!(repeats.iter().all(|repeats| *repeats <= IN_HAND), "more than a batch after a kill: {repeats:?}");
    repeats
}

/// Counts the lines of a growing file. Reads only the new part of the file each time.
struct Lines {
    path: PathBuf,
    read: u64,
    whole: usize,
}

impl Lines {
    fn of(path: PathBuf) -> Self {
        Self { path, read: 0, whole: 0 }
    }

    fn count(&mut self) -> usize {
        let Ok(mut file) = File::open(&self.path) else { return 0 };
        file.seek(SeekFrom::Start(self.read)).unwrap();
        let mut more = Vec::new();
        file.read_to_end(&mut more).unwrap();
        // A kill can leave an incomplete line after the last line break. It is truncated later.
        let ends = more.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let (lines, end) = ends.fold((0, 0), |(lines, _), end| (lines + 1, end));
        self.whole += lines;
        self.read += end as u64;
        self.whole
    }
}
