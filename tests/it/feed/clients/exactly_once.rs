//! The example in the README that processes each event exactly once.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use rand::Rng;
use simulator::{EventSpec, Honesty, Kind, LateProofs, Options};
use tokio::process::{Child, Command};

use super::Feed;
use super::program::shipped;
use crate::feed::reading::NEVER;
use crate::support::{Database, LONGEST_WAIT, LOOK_AGAIN, Server, deliverable, everything, random, skip};

/// The application of the example, which is started again whenever it ends.
struct Application {
    python: PathBuf,
    program: PathBuf,
    process: Option<Child>,
    database: Database,
}

impl Application {
    fn start(&mut self) {
        let mut command = Command::new(&self.python);
        command.arg(&self.program).env("PYTHONPATH", shipped("clients/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        // It reports that its connection to the database is lost.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.kill_on_drop(true).spawn().unwrap());
    }

    async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().await.unwrap();
        }
    }

    async fn booked(&self) -> i64 {
        self.database.number("select count(*) from booking").await
    }

    /// Waits until the application has booked this number of events.
    async fn until_booked(&mut self, count: i64) {
        let deadline = Instant::now() + LONGEST_WAIT;
        while self.booked().await < count {
            assert!(Instant::now() < deadline, "{} of {count} events are booked", self.booked().await);
            if self.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some()) {
                self.start();
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// The block of the section in this language, with the addresses of a test.
fn adapted(language: &str, replaced: &[(&str, &str)]) -> String {
    let readme = std::fs::read_to_string(shipped("clients/README.md")).unwrap();
    let (_, section) = readme.split_once("\n## Exactly once\n").unwrap();
    let (_, text) = section.split_once(&format!("```{language}\n")).unwrap();
    let (text, _) = text.split_once("```").unwrap();
    replaced.iter().fold(text.to_owned(), |text, (shown, here)| {
        assert!(text.contains(shown), "{shown}: {text}");
        text.replace(shown, here)
    })
}

/// A Python with the PostgreSQL client, for example the Python that `.ci/run` installs into target/tools.
fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/python3");
    let has = |python: &PathBuf| {
        let found = std::process::Command::new(python).args(["-c", "import psycopg"]).output();
        found.is_ok_and(|it| it.status.success())
    };
    let found = [own, "python3".into()].into_iter().find(has);
    if found.is_none() {
        skip("the Python package psycopg");
    }
    found
}

#[tokio::test]
async fn each_event_is_booked_exactly_once_although_everything_is_killed() {
    let Some(python) = python() else { return };
    let Some(server) = Server::start().map(Arc::new) else { return skip("PostgreSQL") };
    let (events, kills) = if everything() { (5_000, 25) } else { (200, 9) };
    let late_proofs = Some(LateProofs { share: 0.1, delay: NEVER });
    let feed = Feed::of(Options { events, forged: 0.1, unsigned: 0.1, late_proofs, ..Options::default() }).await;
    let (simulator, setup) = (&feed.served.simulator, &feed.served.setup);
    let mut pending: Vec<_> = simulator.offsets(0);
    pending.retain(|(_, honesty)| *honesty == Honesty::Pending);

    let database = Database::on(server.clone()).await;
    database.change(&adapted("sql", &[("'settlements'", "'c0'")])).await;
    let program = setup.path("application.py");
    let (token_file, url) = (setup.path("ledger.token").display().to_string(), database.url());
    let replaced = [
        ("http://127.0.0.1:9465", &*feed.url),
        ("/etc/ledger/feed-token", &*token_file),
        ("dbname=ledger", &*url),
        ("'settlements'", "'c0'"),
        ("\"settlements\"", "\"c0\""),
    ];
    std::fs::write(&program, adapted("python", &replaced)).unwrap();
    let mut application = Application { python, program, process: None, database };

    let (mut daemon, mut rng) = (setup.start(), random(40));
    for kill in 0..kills {
        let booked = application.booked().await;
        let new = rng.random_range(1..30);
        for _ in 0..new {
            simulator.publish_one(0, EventSpec::Honest(Kind::OperationConfirmed));
        }
        for (offset, _) in pending.split_off(pending.len().saturating_sub(2)) {
            simulator.prove(0, offset);
        }
        application.until_booked(booked + rng.random_range(1..=new)).await;
        match kill % 3 {
            0 => application.kill().await,
            1 => {
                daemon.kill().await;
                daemon = setup.start();
            }
            _ => {
                server.kill();
                server.run();
            }
        }
    }
    for (offset, _) in pending {
        simulator.prove(0, offset);
    }
    let expected = deliverable(simulator, 0);
    let count = i64::try_from(expected.len()).unwrap();
    application.until_booked(count).await;
    // This event is booked after all others.
    simulator.publish_one(0, EventSpec::Honest(Kind::OperationConfirmed));
    application.until_booked(count + 1).await;
    let positions = "select (record::json ->> 'position')::bigint from booking order by 1";
    let positions: Vec<i64> = application.database.query(positions).await.iter().map(|row| row.get(0)).collect();
    assert_eq!(positions, (1..=count + 1).collect::<Vec<_>>());
    application.kill().await;
    daemon.stop().await;
}
