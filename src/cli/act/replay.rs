//! `channeld replay`: delivers past events to one sink again.

use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cli::connect;
use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::output::say;
use crate::cli::terminal::progress::Bar;
use crate::config::Config;
use channel::{History, grouped};
use ledger::LATE;
use operator::api::{CursorPosition, ListCursors, Redeliver};
use operator::verifier_of;
use proof::event::{Offset, RawEvent};

/// Maximum size of the events in one request. It is less than the daemon accepts.
const REQUEST_BYTES: usize = 512 * 1024;

/// Replay past events of a channel to one sink.
///
/// The events are read from the service again without gaps, verified again, and sent to the sink as late deliveries
/// with their original ids. A receiver that deduplicates by id therefore drops events that it already has. The cursor
/// of the sink does not move, and its filter applies. One command can replay at most 10,000 events. All events are read
/// before the first one is delivered. If the range has too many events, or if the cursor of the sink has not reached
/// its end, nothing is delivered.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld replay --channel settlements --sink ledger --from 15520 --to 15540")]
pub(crate) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    #[arg(long)]
    channel: String,
    /// The sink.
    #[arg(long)]
    sink: String,
    /// The offset of the first event.
    #[arg(long, value_name = "OFFSET")]
    from: Offset,
    /// The offset of the last event.
    #[arg(long, value_name = "OFFSET")]
    to: Offset,
}

/// Delivers the events again. If this fails midway, the error says how many events were already queued.
pub(crate) async fn run(args: &Args, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    if args.from > args.to {
        return Err(Failure(Exit::Usage, "--from is above --to".to_owned()));
    }
    let config = Config::load(file)?;
    let client = connect::client(&config)?;
    let (channel, _) = verifier_of(&connect::configured(&config.channels), &args.channel)?;
    let operator = Operator::open(file)?;
    let lane = args.lane(&operator).await?;
    let events = args.read(History::new(client, channel.id, args.from, args.to, config.api.page_limit)).await?;
    args.check(&events, &lane)?;
    let (all, mut queued, mut bar) = (events.len(), 0, Bar::begin());
    for events in requests(&events) {
        let (channel, sink) = (args.channel.clone(), args.sink.clone());
        let asked = operator.ask(&Redeliver { channel, sink, events }).await;
        let offsets = asked.map_err(|Failure(exit, why)| match queued {
            0 => Failure(exit, why),
            _ => Failure(
                exit,
                format!("{queued} of {all} events will be delivered to {}; then this failed: {why}", args.sink),
            ),
        })?;
        queued += offsets.len();
        bar.tell(queued as u64, all as u64, "queued: ");
    }
    bar.hide();
    let (first, last) = (events.first().map(|event| event.offset), events.last().map(|event| event.offset));
    let range = first.zip(last).map_or(String::new(), |(first, last)| format!(", from {first} to {last},"));
    say(out, format!("{queued} events{range} will be delivered to {}", args.sink))
}

impl Args {
    /// The current position of the sink.
    async fn lane(&self, operator: &Operator) -> Result<CursorPosition, Failure> {
        let lanes = operator.ask(&ListCursors { channel: Some(self.channel.clone()) }).await?;
        let (meant, others): (Vec<_>, Vec<_>) = lanes
            .into_iter()
            .map(|lane| lane.facts)
            .filter(|lane| lane.configured)
            .partition(|lane| lane.sink == self.sink);
        meant.into_iter().next().ok_or_else(|| {
            let sinks: Vec<_> = others.iter().map(|lane| &*lane.sink).collect();
            let (sink, channel) = (&self.sink, &self.channel);
            let message = format!("channel {channel} has no sink {sink}; its sinks are: {}", sinks.join(", "));
            Failure(Exit::Usage, message)
        })
    }

    /// Reads all events of the range. Fails as soon as the limit is exceeded.
    async fn read(&self, mut history: History) -> Result<Vec<RawEvent>, Failure> {
        let (mut events, mut bytes, mut bar) = (Vec::new(), 0, Bar::begin());
        let distance = |to: Offset| u64::try_from(to.get() - self.from.get()).unwrap_or_default() + 1;
        loop {
            let page = history.next().await.map_err(Failure::reading("the events could not be read"))?;
            let Some(last) = page.last() else { return Ok(events) };
            bar.tell(distance(last.offset), distance(self.to), "read: ");
            for event in page {
                bytes += event.json.len() as u64;
                if events.len() as u64 == LATE.events || bytes > LATE.bytes {
                    return Err(self.too_many(&events));
                }
                events.push(event);
            }
        }
    }

    fn too_many(&self, fitting: &[RawEvent]) -> Failure {
        let (count, mib, Self { from, to, .. }) = (grouped(LATE.events), LATE.bytes >> 20, self);
        let first = fitting.last().map_or(String::new(), |last| format!(", the first up to --to {}", last.offset));
        let message = format!(
            "from {from} to {to} are more than {count} events or {mib} MiB, the limit for one command: deliver them in parts{first}; nothing is delivered"
        );
        Failure(Exit::Usage, message)
    }

    /// Checks that the range has events, and that the sink's cursor has reached the last of them.
    fn check(&self, events: &[RawEvent], lane: &CursorPosition) -> Result<(), Failure> {
        let Self { channel, sink, from, to } = self;
        let Some(last) = events.last() else {
            let message = format!("channel {channel} has no event from {from} to {to}: nothing is delivered");
            return Err(Failure(Exit::Failed, message));
        };
        if Some(last.offset) > lane.cursor.through {
            let message = format!(
                "sink {sink} of channel {channel} has reached offset {}, and receives later events in order: nothing is delivered; choose a lower --to",
                lane.cursor
            );
            return Err(Failure(Exit::Usage, message));
        }
        Ok(())
    }
}

/// Divides events into requests of at most `REQUEST_BYTES`. A larger event gets a request of its own.
fn requests(page: &[RawEvent]) -> Vec<Vec<String>> {
    let (mut requests, mut bytes) = (vec![Vec::new()], 0);
    for event in page {
        let json = STANDARD.encode(&event.json);
        if bytes > 0 && bytes + json.len() > REQUEST_BYTES {
            requests.push(Vec::new());
            bytes = 0;
        }
        bytes += json.len();
        requests.last_mut().expect("one exists from the start").push(json);
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_no_more_than_the_daemon_takes_or_one_event() {
        let event = |bytes: usize| RawEvent { offset: Offset::ZERO, id: None, json: vec![b' '; bytes].into() };
        let sizes = |page: &[RawEvent]| requests(page).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[event(10), event(10)]), [2]);
        assert_eq!(sizes(&[event(300_000), event(300_000), event(10)]), [1, 2]);
        assert_eq!(sizes(&[event(10), event(600_000), event(10)]), [1, 1, 1]);
    }
}
