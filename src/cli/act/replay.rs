//! `channeld replay`: delivers past events to one sink again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cli::context::{CommandError, Context, Exit, client, configured};
use crate::cli::first_event::{self, Search};
use crate::cli::operate::Operator;
use crate::cli::terminal::progress::ProgressBar;
use channel::{History, OffsetOrTime, counted, grouped, unobserved};
use ledger::LATE;
use net::time::Time;
use operator::api::{CursorPosition, ListCursors, ReplayEvents};
use operator::{check_sink, verifier_of};
use proof::event::{Offset, RawEvent};

/// Maximum size of the events in one request, in bytes of base64. The daemon accepts more.
const REQUEST_BYTES: usize = 512 * 1024;

/// Replay past events of a channel to one sink.
///
/// The events are read from the service again without gaps, verified again, and sent to the sink as late deliveries
/// with their original ids. A receiver that deduplicates by id therefore drops events that it already has. The cursor
/// of the sink does not move, and its filter applies. One command can replay at most 10,000 events. All events are read
/// before the first one is delivered. If the range has too many events, or if the cursor of the sink has not reached
/// the end of the range, nothing is delivered.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld replay --channel settlements --sink ledger --from 15520 --to 15540
  channeld replay --channel settlements --sink ledger --from 2026-11-01 --to 2026-11-01T06:00:00Z
  channeld replay --channel settlements --sink ledger --from 2h --to 1h")]
pub(crate) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    #[arg(long)]
    channel: String,
    /// The sink.
    #[arg(long)]
    sink: String,
    /// The offset of the first event, or the time from which on events were created: 2026-11-01T00:00:00Z, 2026-11-01,
    /// @1793491200 (Unix seconds), or 7d (that long ago).
    #[arg(long, value_name = "OFFSET|TIME")]
    from: OffsetOrTime,
    /// The offset of the last event, or the time up to which events were created.
    #[arg(long, value_name = "OFFSET|TIME")]
    to: OffsetOrTime,
}

/// The offsets of the first and the last event.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: Offset,
    to: Offset,
}

/// Delivers the events again. If a request fails midway, the error says how many events were already queued.
pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let Args { channel, sink, from, to } = args;
    if let (OffsetOrTime::Offset(from), OffsetOrTime::Offset(to)) = (from, to)
        && from > to
    {
        return Err(CommandError::usage("--from is above --to"));
    }
    let config = cx.config()?;
    let (known, _) = verifier_of(&configured(&config.channels), channel)?;
    let client = client(&config, known.id)?;
    let operator = cx.operator()?;
    let lane = args.lane(&operator).await?;
    let range = args.range(&Search { client: client.clone(), channel: known.id }, cx).await?;
    let Range { from, to } = range;
    let events = range.read(History::of(unobserved(client, known.id), from, to, config.api.page_limit)).await?;
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        let message = format!("channel {channel} has no event from {from} to {to}: nothing is delivered");
        return Err(CommandError::failed(message));
    };
    if Some(last.offset) > lane.cursor.through {
        return Err(CommandError::usage(format!(
            "sink {sink} of channel {channel} has reached offset {}, and receives later events in order: nothing is delivered; choose a lower --to",
            lane.cursor
        )));
    }
    let (all, mut queued, mut bar) = (events.len(), 0, ProgressBar::begin());
    for events in requests(&events) {
        let request = ReplayEvents { channel: channel.clone(), sink: sink.clone(), events };
        let offsets = operator.ask(&request).await.map_err(|CommandError(exit, why)| match queued {
            0 => CommandError(exit, why),
            _ => CommandError(
                exit,
                format!("{queued} of {all} events will be delivered to {sink}; the request for the next events failed: {why}"),
            ),
        })?;
        queued += offsets.len();
        bar.tell(queued as u64, all as u64, "queued: ");
    }
    bar.hide();
    let queued = counted(queued as u64, "event");
    cx.say(format!("{queued}, from {} to {}, will be delivered to {sink}", first.offset, last.offset))
}

impl Args {
    async fn lane(&self, operator: &Operator) -> Result<CursorPosition, CommandError> {
        let lanes = operator.ask(&ListCursors { channel: Some(self.channel.clone()) }).await?;
        let mut lanes: Vec<_> = lanes.into_iter().map(|lane| lane.facts).filter(|lane| lane.configured).collect();
        let sinks: Vec<_> = lanes.iter().map(|lane| &*lane.sink).collect();
        check_sink(&self.channel, &self.sink, &sinks)?;
        lanes.retain(|lane| lane.sink == self.sink);
        Ok(lanes.remove(0))
    }

    /// Finds the offsets of times, and says which event is the first since a time.
    async fn range(&self, search: &Search, cx: &mut Context<'_>) -> Result<Range, CommandError> {
        let Self { channel, from, to, .. } = self;
        let none = |time: Time, when: &str| {
            CommandError::failed(format!(
                "channel {channel} has no event created at {time} or {when}: nothing is delivered"
            ))
        };
        let to = match *to {
            OffsetOrTime::Offset(to) => to,
            OffsetOrTime::Time(time) => search.last_until(time).await?.ok_or_else(|| none(time, "earlier"))?,
        };
        let from = match *from {
            OffsetOrTime::Offset(from) => from,
            OffsetOrTime::Time(time) => {
                let first = search.first_since(time).await?;
                let from = first.offset().ok_or_else(|| none(time, "later"))?;
                cx.say(first_event::line(time, &first))?;
                from
            }
        };
        if from > to {
            return Err(CommandError::failed(format!(
                "channel {channel} has no event in this range, from offset {from} to offset {to}: nothing is delivered"
            )));
        }
        Ok(Range { from, to })
    }
}

impl Range {
    async fn read(&self, mut history: History) -> Result<Vec<RawEvent>, CommandError> {
        let Self { from, to } = self;
        let (mut events, mut bytes, mut bar) = (Vec::<RawEvent>::new(), 0, ProgressBar::begin());
        loop {
            let page = history.next().await.map_err(CommandError::reading("the events could not be read"))?;
            let Some(last) = page.last() else { return Ok(events) };
            bar.tell_offset(last.offset, *from, *to, "read: ");
            for event in page {
                bytes += event.json.len() as u64;
                if events.len() as u64 == LATE.events || bytes > LATE.bytes {
                    let (count, mib) = (grouped(LATE.events), LATE.bytes >> 20);
                    let first =
                        events.last().map_or(String::new(), |last| format!(", the first up to --to {}", last.offset));
                    return Err(CommandError::usage(format!(
                        "from {from} to {to} are more than {count} events or {mib} MiB, the limit for one command: deliver them in parts{first}; nothing is delivered"
                    )));
                }
                events.push(event);
            }
        }
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
    fn a_request_stays_within_the_daemons_limit_or_has_one_event() {
        let event = |bytes: usize| RawEvent { offset: Offset::ZERO, id: None, json: vec![b' '; bytes].into() };
        let sizes = |page: &[RawEvent]| requests(page).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[event(10), event(10)]), [2]);
        assert_eq!(sizes(&[event(300_000), event(300_000), event(10)]), [1, 2]);
        assert_eq!(sizes(&[event(10), event(600_000), event(10)]), [1, 1, 1]);
    }
}
