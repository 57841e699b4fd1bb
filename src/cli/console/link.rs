//! The daemon, as it is asked at its control socket.
//!
//! # Invariants
//!
//! * **The daemon or nothing.** Where none answers, the state is not opened: it would keep a daemon from starting.
//! * **Who asks is said,** with every request, for the daemon's log.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::history::History;
use crate::operator::api::GetStatus;
use crate::operator::{self, Report, Request};
use crate::tasks::lock;
use crate::telemetry::Chain;

/// How old the report may be that the head of each page is made of.
const LATELY: Duration = Duration::from_secs(2);

/// How long a page waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long the head of a page does.
const BRIEFLY: Duration = Duration::from_secs(1);

/// Between two samples: 360 an hour.
const SAMPLE: Duration = Duration::from_secs(10);

/// The connection to the daemon, and its last answers.
pub(super) struct Link {
    directory: PathBuf,
    who: String,
    lately: Mutex<Option<(Instant, Option<Arc<Report>>)>>,
    pub(super) history: Mutex<History>,
}

impl Link {
    pub(super) fn new(directory: PathBuf, who: String) -> Self {
        Self { directory, who, lately: Mutex::default(), history: Mutex::default() }
    }

    /// What the daemon answers; an error, in words, where it does not, or refuses.
    pub(super) async fn ask<R: Request>(&self, request: &R) -> Result<R::Answer, String> {
        self.ask_as(request, "").await
    }

    /// As [`ask`](Self::ask), for one of the browsers.
    pub(super) async fn ask_for<R: Request>(&self, browser: u64, request: &R) -> Result<R::Answer, String> {
        self.ask_as(request, &format!(", browser {browser}")).await
    }

    async fn ask_as<R: Request>(&self, request: &R, detail: &str) -> Result<R::Answer, String> {
        let by = format!("{} at the console{detail}", self.who);
        match timeout(PATIENCE, operator::ask(&self.directory, request, &by)).await {
            Ok(Ok(Some(answer))) => answer.map_err(|refusal| refusal.to_string()),
            Ok(Ok(None)) => {
                Err(format!("No daemon answers in {}: it does not run, or runs elsewhere.", self.directory.display()))
            }
            Ok(Err(error)) => Err(format!("The daemon could not be asked: {}.", Chain(&error))),
            Err(_) => Err(format!("The daemon has not answered for {} s.", PATIENCE.as_secs())),
        }
    }

    pub(super) async fn report(&self) -> Result<Arc<Report>, String> {
        let report = self.ask(&GetStatus { here: false }).await.map(Arc::new);
        *lock(&self.lately) = Some((Instant::now(), report.as_ref().ok().cloned()));
        report
    }

    /// The report of a moment ago; none where no daemon answers.
    pub(super) async fn lately(&self) -> Option<Arc<Report>> {
        let last = lock(&self.lately).clone();
        match last {
            Some((at, report)) if at.elapsed() < LATELY => report,
            _ => timeout(BRIEFLY, self.report()).await.ok()?.ok(),
        }
    }

    /// Notes every few seconds how the daemon is. Does not end.
    pub(super) async fn sample(&self) -> Infallible {
        let mut ticks = interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let report = self.report().await.ok();
            let metrics = timeout(PATIENCE, operator::metrics(&self.directory)).await;
            let metrics = metrics.ok().and_then(Result::ok).flatten().unwrap_or_default();
            lock(&self.history).note(Timestamp::now(), report.as_deref(), &metrics);
        }
    }
}
