//! A manual poll.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State as Of};
use axum::response::Redirect;
use jiff::Timestamp;

use super::query::Query;
use crate::access::Visitor;
use crate::state::State;
use operator::Report;
use operator::api::PollNow;

/// How long to wait until every channel has polled.
const POLLED: Duration = Duration::from_secs(4);

/// How often the daemon is asked during this time.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Makes every channel poll, and waits until it has.
pub(crate) async fn poll(Of(state): Of<Arc<State>>, Extension(visitor): Extension<Visitor>, body: String) -> Redirect {
    let back = url::form_urlencoded::parse(body.as_bytes()).find(|(name, _)| name == "back");
    let back = back.map(|(_, back)| Query::parse(&back, Timestamp::now())).unwrap_or_default().first_page();
    let said = polled(&state, &visitor).await;
    let (is_good, text) = match said {
        Ok(text) => (true, text),
        Err(text) => (false, text),
    };
    state.access.notify(&visitor, is_good, text);
    Redirect::to(&back)
}

async fn polled(state: &State, visitor: &Visitor) -> Result<String, String> {
    let newest = |report: &Report| report.channels.iter().map(|channel| channel.newest).collect::<Vec<_>>();
    let before = newest(&*state.link.report().await?);
    let (mut asked, mut refused) = (Vec::new(), Vec::new());
    for known in &state.channels {
        let name = known.channel.name.to_string();
        match state.link.ask_for(visitor.number, &PollNow { channel: name.clone() }).await {
            Ok(at) => asked.push((name, at)),
            Err(why) => refused.push(format!("{name}: {why}")),
        }
    }
    if asked.is_empty() && !refused.is_empty() {
        return Err(format!("No channel was polled. {}", refused.join("; ")));
    }
    let since = tokio::time::Instant::now();
    loop {
        let report = state.link.report().await?;
        let has_polled = |(name, at): &(String, Timestamp)| {
            let channel = report.channels.iter().find(|channel| *channel.channel == **name);
            channel.is_none_or(|channel| channel.last_poll > Some(*at))
        };
        let waiting: Vec<_> = asked.iter().filter(|asked| !has_polled(asked)).map(|(name, _)| name.clone()).collect();
        if waiting.is_empty() {
            let moved = newest(&report) != before;
            return Ok(
                if moved { "Polled: new events arrived." } else { "Polled: the service has nothing new." }.to_owned()
            );
        }
        if since.elapsed() > POLLED {
            return Err(format!(
                "Polled, but some channels have no answer yet: {}. The daemon's page shows the reasons.",
                waiting.join(", ")
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
