//! The clients in `deploy/clients`. Each test runs once with each client.

use std::process::Command;

use serde_json::{Value, json};
use simulator::{EventSpec, Kind, Options};

use super::Served;
use crate::support::{free_address, printed_lines, run, skip};

mod access;
mod consuming;
mod exactly_once;
mod program;
mod reading;

/// Defines a test for each client. The function receives the language.
macro_rules! with_each_client {
    ($($test:ident),* $(,)?) => {
        mod python {
            $(#[tokio::test]
            async fn $test() { super::$test("python").await })*
        }
        mod typescript {
            $(#[tokio::test]
            async fn $test() { super::$test("typescript").await })*
        }
        mod go {
            $(#[tokio::test]
            async fn $test() { super::$test("go").await })*
        }
    };
}

use with_each_client;

/// A feed whose address is the same after a restart, and what the programs need to use it.
struct Feed {
    served: Served,
    url: String,
}

impl Feed {
    async fn of(options: Options) -> Self {
        let mut served = Served::by("sqlite", options).await.unwrap();
        let address = free_address();
        served.setup.set("feed.listen", address.to_string());
        Self { served, url: format!("http://{address}") }
    }

    /// A task of the program, with more members.
    fn task(&self, action: &str, more: &Value) -> Value {
        let token_file = self.served.setup.path("ledger.token");
        let mut task = json!({"do": action, "url": self.url, "token_file": token_file, "limit": 4});
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        task
    }

    fn publish(&self) {
        self.served.simulator.publish_one(0, EventSpec::Honest(Kind::OperationConfirmed));
    }
}

fn ten_events() -> Options {
    Options { events: 10, ..Options::default() }
}

/// Go needs more lines than the other languages, because each error is handled explicitly.
const GO_LINES: usize = 420;

/// A user copies all source files of a client, and should be able to read them.
#[test]
fn each_client_is_short() {
    for (folder, kind, limit) in [("python", "py", 250), ("typescript", "ts", 250), ("go", "go", GO_LINES)] {
        let files =
            std::fs::read_dir(program::shipped("clients").join(folder)).unwrap().map(|file| file.unwrap().path());
        let sources: Vec<_> = files.filter(|file| file.extension().is_some_and(|found| found == kind)).collect();
        let lines_of = |file: &std::path::PathBuf| std::fs::read_to_string(file).unwrap().lines().count();
        let lines: usize = sources.iter().map(lines_of).sum();
        assert!(sources.len() >= 2 && lines < limit, "the client in {folder} has {lines} lines: {sources:?}");
    }
}

#[test]
fn the_go_client_is_formatted() {
    if Command::new("gofmt").arg("-h").output().is_err() {
        return skip("the program: gofmt");
    }
    let wrong = run(Command::new("gofmt").arg("-l").arg(program::shipped("clients/go")));
    assert_eq!(printed_lines(&wrong), Vec::<String>::new());
}
