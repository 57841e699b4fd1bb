//! A manual poll.

use std::time::Duration;

use axum::response::Redirect;
use jiff::Timestamp;

use super::query::Query;
use crate::access::Visitor;
use crate::page::{self, PageRequest};
use crate::state::State;
use operator::Report;
use operator::api::PollNow;

/// How long to wait until every channel has polled.
const POLLED: Duration = Duration::from_secs(4);

/// The interval between two requests for the daemon's report while channels poll.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Makes every channel poll, and waits until each of them has polled.
pub(crate) async fn poll(PageRequest { state, visitor, .. }: PageRequest, body: String) -> Redirect {
    let back = page::member(body.as_bytes(), "back").unwrap_or_default();
    state.access.notify(&visitor, polled(&state, &visitor).await);
    Redirect::to(&Query::parse(&back, Timestamp::now()).first_page())
}

async fn polled(state: &State, visitor: &Visitor) -> Result<String, String> {
    let newest = |report: &Report| report.channels.iter().map(|channel| channel.newest).collect::<Vec<_>>();
    let before = newest(&*state.daemon.report().await?);
    let (mut asked, mut refused) = (Vec::new(), Vec::new());
    for known in &state.channels {
        let name = known.channel.name.to_string();
        match state.daemon.ask_for(visitor.number, &PollNow { channel: name.clone() }).await {
            Ok(at) => asked.push((name, at)),
            Err(why) => refused.push(format!("{name}: {why}")),
        }
    }
    if asked.is_empty() && !refused.is_empty() {
        return Err(format!("No channel was polled. {}", refused.join("; ")));
    }
    let since = tokio::time::Instant::now();
    loop {
        let report = state.daemon.report().await?;
        let has_polled = |(name, at): &(String, Timestamp)| {
            let channel = report.channels.iter().find(|channel| *channel.channel == **name);
            channel.is_none_or(|channel| channel.last_poll > Some(*at))
        };
        let waiting: Vec<_> = asked.iter().filter(|asked| !has_polled(asked)).map(|(name, _)| name.clone()).collect();
        if waiting.is_empty() {
            let moved = newest(&report) != before;
            return Ok(
                if moved { "Polled: new events arrived." } else { "Polled: the service has no new events." }.to_owned()
            );
        }
        if since.elapsed() > POLLED {
            return Err(format!(
                "Some channels have not finished polling: {}. The page “Daemon” shows the reasons.",
                waiting.join(", ")
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
