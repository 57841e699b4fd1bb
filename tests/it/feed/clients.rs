//! The clients in `deploy/clients`. Each test runs once with each client.

use serde_json::{Value, json};
use simulator::{EventSpec, Kind, Options};

use super::Served;
use crate::support::free_address;

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
