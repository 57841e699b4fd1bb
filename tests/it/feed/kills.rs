//! The daemon, the clients and the database are killed at random moments. Each client is an application that uses the Python client.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use rand::Rng;
use rand::rngs::StdRng;
use simulator::{Honesty, LateProofs, Options};
use tokio::process::{Child, Command};

use super::Served;
use super::reading::NEVER;
use crate::support::{
    Daemon, Database, LONGEST_WAIT, LOOK_AGAIN, Server, deliverable, everything, free_address, programs, random, skip,
};

/// The number of events, and the number of kills.
const SAMPLE: (usize, usize) = (1_200, 8);
const FULL: (usize, usize) = (6_000, 25);

const CHANNEL: &str = "c0";

/// What is killed, in turn.
const VICTIMS: [Victim; 4] = [Victim::Daemon, Victim::ExactlyOnce, Victim::AtLeastOnce, Victim::Database];

#[derive(Clone, Copy, Debug)]
enum Victim {
    Daemon,
    ExactlyOnce,
    AtLeastOnce,
    Database,
}

/// The applications, and what they have processed.
struct Applications {
    served: Served,
    database: Database,
    exactly_once: Child,
    at_least_once: Child,
}

/// An event that an application has processed: its position and its offset.
type Processed = (i64, i64);

impl Applications {
    async fn start(served: Served, server: &Arc<Server>) -> Self {
        let database = Database::on(server.clone()).await;
        database
            .change(
                "create table processed (n bigint generated always as identity, position bigint, event_offset bigint); \
                 create table progress (position bigint); insert into progress values (0)",
            )
            .await;
        let exactly_once = exactly_once(&served, &database);
        let at_least_once = at_least_once(&served);
        Self { served, database, exactly_once, at_least_once }
    }

    /// Kills a client, and starts it again.
    async fn kill(&mut self, victim: Victim) {
        let (client, again) = match victim {
            Victim::ExactlyOnce => (&mut self.exactly_once, exactly_once(&self.served, &self.database)),
            _ => (&mut self.at_least_once, at_least_once(&self.served)),
        };
        client.kill().await.unwrap();
        *client = again;
    }

    /// The events in the file, in the order in which they were processed.
    fn in_file(&self) -> Vec<Processed> {
        let text = std::fs::read_to_string(file(&self.served)).unwrap_or_default();
        // A kill can leave an incomplete line.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|line| processed(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    async fn in_database(&self) -> Vec<Processed> {
        let rows = self.database.query("select position, event_offset from processed order by n").await;
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

fn processed(line: &str) -> Option<Processed> {
    let (position, offset) = line.split_once(' ')?;
    Some((position.parse().ok()?, offset.parse().ok()?))
}

fn file(served: &Served) -> PathBuf {
    served.setup.path("processed")
}

fn exactly_once(served: &Served, database: &Database) -> Child {
    let psql = database.server.command_of("psql").get_program().to_owned();
    client(served, "exactly-once", [psql, database.url().into()])
}

fn at_least_once(served: &Served) -> Child {
    client(served, "at-least-once", [file(served).into_os_string()])
}

fn client<const N: usize>(served: &Served, kind: &str, rest: [OsString; N]) -> Child {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new("python3");
    python.arg(root.join("tests/it/feed/kills.py")).arg(kind).arg(format!("http://{}", served.listen));
    python.arg(served.setup.path("ledger.token")).arg(CHANNEL).args(rest);
    python.env("PYTHONPATH", root.join("deploy/clients/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap()
}

/// Asserts that the positions ascend by one, except where events come again after a kill. Returns the number of repeats.
fn repeats(processed: &[Processed]) -> usize {
    let (mut newest, mut repeats) = (0, 0);
    let mut before = 0;
    for (position, _) in processed {
        let is_next = *position == before + 1;
        assert!(is_next || *position <= newest, "position {position} after {before}: {newest} was the newest");
        repeats += usize::from(*position <= newest);
        newest = newest.max(*position);
        before = *position;
    }
    repeats
}

/// The progress at which the next kill happens. The remaining kills are spread evenly over the remaining events.
fn moment(random: &mut StdRng, (done, all): (usize, usize), kills: usize) -> usize {
    let share = all.saturating_sub(done).div_ceil(kills + 1);
    (done + random.random_range(0..=2 * share)).min(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_daemon_clients_and_database_lose_nothing() {
    let (events, kills) = if everything() { FULL } else { SAMPLE };
    if !programs(&["python3"]) {
        return;
    }
    let Some(server) = Server::start().map(Arc::new) else { return skip("PostgreSQL") };
    let late_proofs = Some(LateProofs { share: 0.05, delay: NEVER });
    let backlog = u64::try_from(events).unwrap();
    let options = Options { events: backlog, unsigned: 0.1, forged: 0.05, late_proofs, ..Options::default() };
    let mut served = Served::on(Database::on(server.clone()).await, options).await;
    served.listen_on(free_address());
    let setup = &mut served.setup;
    setup.set("feed.lease", "1s");
    setup.set("api.page_limit", 20);
    let truth = served.simulator.offsets(0);
    let mut unproved: BTreeSet<_> =
        truth.iter().filter(|(_, honesty)| *honesty == Honesty::Pending).map(|(offset, _)| *offset).collect();
    let all = deliverable(&served.simulator, 0).len();

    let mut daemon = served.setup.start();
    daemon.until_logged("the feed is served").await;
    let mut applications = Applications::start(served, &server).await;
    let (mut random, mut killed) = (random(39), Vec::new());
    for kill in 0..kills {
        let moment = moment(&mut random, (applications.in_file().len(), all), kills - kill);
        daemon
            .while_it_moves("the moment of the kill comes", |_| {
                Some(applications.in_file().len()).filter(|done| *done < moment)
            })
            .await;
        let victim = VICTIMS[kill % VICTIMS.len()];
        match victim {
            Victim::Daemon => {
                daemon.kill().await;
                daemon = applications.served.setup.start();
            }
            Victim::Database => {
                server.kill();
                server.run();
            }
            client => applications.kill(client).await,
        }
        killed.push((moment, victim));
        prove(&mut unproved, &applications, |_| random.random_bool(0.3));
        if kill == kills / 2 {
            replay(&mut daemon, &applications, 20).await;
        }
    }
    prove(&mut unproved, &applications, |_| true);

    let expected = deliverable(&applications.served.simulator, 0);
    let last = i64::try_from(expected.len()).unwrap();
    daemon
        .while_it_moves("the clients process everything", |_| {
            let processed = applications.in_file();
            let is_complete = processed.last().is_some_and(|(position, _)| *position == last);
            let written = applications.database.psql("select position from progress")[0].parse::<usize>().unwrap();
            (!is_complete || written < expected.len()).then(|| processed.len() + written)
        })
        .await;
    replay(&mut daemon, &applications, 300).await;
    daemon.until_logged("replay finished").await;
    daemon.stop().await;

    let once = applications.in_database().await;
    let positions: Vec<_> = once.iter().map(|(position, _)| *position).collect();
    assert_eq!(positions, (1..=last).collect::<Vec<_>>(), "exactly once, and in order: {killed:?}");
    let mut offsets: Vec<_> = once.iter().map(|(_, offset)| *offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, expected, "every event, and no forged one");
    let in_file = applications.in_file();
    let repeats = repeats(&in_file);
    let distinct: BTreeSet<_> = in_file.into_iter().collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), once, "{killed:?}");
    println!("{events} events, {repeats} repeats at least once, killed: {killed:?}");
}

/// Proves some of the events whose proofs are late.
fn prove(unproved: &mut BTreeSet<i64>, applications: &Applications, mut is_proved: impl FnMut(i64) -> bool) {
    unproved.retain(|offset| {
        let is_proved = is_proved(*offset);
        if is_proved {
            applications.served.simulator.prove(0, *offset);
        }
        !is_proved
    });
}

/// Replays events. The table has them already, so this must change nothing. Waits for the end of an earlier replay, which can last until
/// the last proof has arrived.
async fn replay(daemon: &mut Daemon, applications: &Applications, last: i64) {
    daemon.until_logged("channel started").await;
    let (setup, to, deadline) = (&applications.served.setup, last.to_string(), Instant::now() + LONGEST_WAIT);
    loop {
        let told = setup.tell(&["replay", "--channel", CHANNEL, "--sink", "table", "--from", "1", "--to", &to]).await;
        if told.code == Some(0) {
            return;
        }
        assert!(Instant::now() < deadline, "{told:?}");
        daemon.until("it runs", |_| true).await;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
