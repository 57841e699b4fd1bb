//! `channeld replay`: events of the past, delivered to one sink once more.

use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::connect;
use super::exit::{Exit, Failure};
use super::operate::{Operator, say};
use super::progress::Bar;
use crate::channel::{History, ReadError};
use crate::config::Config;
use crate::event::{Offset, RawEvent};
use crate::operator::api::Redeliver;
use crate::telemetry::Chain;

/// What one request to the daemon carries at the most: less than it takes.
const REQUEST_BYTES: usize = 512 * 1024;

/// Deliver events of a channel's past to one of its sinks once more.
///
/// They are read again from the service, without a gap, verified again, and go to the sink as late events do, with the
/// ids that they had: a receiver that deduplicates on the id drops what it has. The sink's cursor stays where it is, and
/// its filter holds. At most 10,000 events at a time; what was not asked for is not delivered.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    #[arg(long)]
    channel: String,
    /// The sink.
    #[arg(long)]
    sink: String,
    /// The first event's offset.
    #[arg(long, value_name = "OFFSET")]
    from: Offset,
    /// The last event's offset.
    #[arg(long, value_name = "OFFSET")]
    to: Offset,
}

/// Where this fails, what was said to be on its way is, and nothing else.
pub(super) async fn run(args: &Args, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    if args.from > args.to {
        return Err(Failure(Exit::Usage, "--from is above --to: there is nothing between them".to_owned()));
    }
    let config = Config::load(file)?;
    let client = connect::client(&config)?;
    let (channel, _) = connect::channel(&connect::configured(&config.channels), &args.channel)?;
    let operator = Operator::open(file)?;
    let limit = config.api.page_limit;
    let mut history = History::new(client, channel.id, args.from, args.to, limit);
    let (mut total, mut bar) = (0, Bar::begin());
    let whole = |from: Offset, to: Offset| u64::try_from(to.get() - from.get()).unwrap_or_default();
    loop {
        let page = history.next().await.map_err(unread)?;
        if page.is_empty() {
            break;
        }
        for events in requests(&page) {
            let (channel, sink) = (args.channel.clone(), args.sink.clone());
            let offsets = operator.ask(&Redeliver { channel, sink, events }).await?;
            total += offsets.len();
            bar.hide();
            if let (Some(first), Some(last)) = (offsets.first(), offsets.last()) {
                say(out, format!("{first} to {last}: {} events are on their way to {}", offsets.len(), args.sink))?;
            }
        }
        let reached = page.last().map_or(args.from, |last| last.offset);
        bar.tell(whole(args.from, reached) + 1, whole(args.from, args.to) + 1, "");
    }
    bar.hide();
    if total == 0 {
        let message =
            format!("channel {} has no event from {} to {}: nothing is delivered", args.channel, args.from, args.to);
        return Err(Failure(Exit::Failed, message));
    }
    say(out, format!("{total} events in all"))
}

/// Divides a page into what one request carries.
fn requests(page: &[RawEvent]) -> Vec<Vec<String>> {
    let (mut requests, mut bytes) = (vec![Vec::new()], 0);
    for event in page {
        let json = STANDARD.encode(&event.json);
        if bytes > 0 && bytes + json.len() > REQUEST_BYTES {
            requests.push(Vec::new());
            bytes = 0;
        }
        bytes += json.len();
        requests.last_mut().expect("there is one from the beginning").push(json);
    }
    requests
}

fn unread(error: ReadError) -> Failure {
    match error {
        ReadError::Api(error) => Failure::api("the events could not be read")(error),
        other => Failure(Exit::Failed, Chain(&other).to_string()),
    }
}

#[cfg(test)]
mod tests;
