//! Reads events from the feed of a daemon by long polls, and verifies them.
//!
//! # Invariants
//!
//! * **The feed is not trusted.** Each event is verified with the settings of this machine's configuration. An event that is not valid, or
//!   whose record does not agree with it, is shown as rejected, with only its offset, time and type.
//! * **No event is skipped silently.** After an error, the next request begins at the same position. If events are missing, a note says
//!   so.
//! * **The token stays secret.** It comes from a file, is sent only to the feed, and is never shown.
//! * **Bounded:** the number of channels, the size of an answer, and every wait.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

mod address;
mod client;
mod received;

use super::printer::{Printer, hint, note};
use crate::cli::context::{CommandError, Context, Exit, configured};
use crate::cli::terminal::event_line::Layout;
use crate::cli::verdict_line::printable;
use crate::config::{LocalConfig, load_verifier};
use api::Filter;
use channel::counted;
use operator::{search_rules, verifier_of};
use proof::event::Offset;
use proof::verify::{ReasonKind, Verifier};
use record::{ChannelRef, Record};

use address::FeedAddress;
use client::{FeedClient, FeedFailure, ListedChannel};
use received::ReceivedEvent;

/// The largest number of channels that are watched. Each one uses one of the consumer's simultaneous requests.
const MAX_CHANNELS: usize = 64;

/// The wait before a request is retried.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// Which feed is read, and from which position on.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Feed")]
pub(super) struct FeedArgs {
    /// Read this feed instead: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:/PATH`.
    #[arg(long, value_name = "URL", value_parser = FeedAddress::parse, conflicts_with_all = ["from_service", "sink"])]
    feed: Option<FeedAddress>,
    /// The file that contains the token for the feed. A Unix socket needs no token.
    #[arg(long, value_name = "FILE", requires = "feed")]
    token_file: Option<String>,
    /// The authorities, in PEM, that must have issued the certificate of the feed. Default: the system's.
    #[arg(long, value_name = "FILE", requires = "feed")]
    ca_file: Option<String>,
    /// Begin after this position of the feed. Default: after the newest one.
    #[arg(long, value_name = "POSITION", requires = "feed", conflicts_with = "last", value_parser = clap::value_parser!(i64).range(0..))]
    after: Option<i64>,
}

impl FeedArgs {
    pub(super) fn address(&self) -> Option<&FeedAddress> {
        self.feed.as_ref()
    }
}

/// Prints the events of a feed. Returns when the requested number of events has been printed.
pub(super) async fn watch(args: &super::Args, address: &FeedAddress, cx: &mut Context<'_>) -> Result<(), CommandError> {
    let filter = ReceivedFilter { rules: search_rules(&args.filter)?, search: args.filter.clone() };
    let client = FeedClient::of(address, &args.feed)?;
    if address.is_readable_in_transit() {
        note("plain http: the token and the events can be read and changed in transit; use https if the feed has it");
    }
    let never = |oldest| format!("the events before position {oldest} were deleted");
    let listed = client.channels().await.map_err(|failure| failure.into_error(never))?;
    let listed = chosen(listed, args.channel.as_deref(), address)?;
    let local = LocalConfig::load(cx.file).ok();
    let followed = |listed: &ListedChannel| FollowedChannel::of(listed, args, local.as_ref(), cx.file);
    let followed = listed.iter().map(followed).collect::<Result<Vec<_>, _>>()?;
    let names = listed.iter().filter(|_| args.channel.is_none()).map(|listed| &*listed.name);
    let mut printer = Printer::new(args.json, args.events, Layout::of_stdout(names));
    hint("watching the events of the feed; Ctrl-C ends");
    print_all(followed, &client, &filter, &mut printer, cx.out).await
}

async fn print_all(
    followed: Vec<FollowedChannel>,
    client: &FeedClient,
    filter: &ReceivedFilter,
    printer: &mut Printer,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut reading: FuturesUnordered<_> = followed.into_iter().map(|channel| channel.read(client)).collect();
    let mut are_first = true;
    while let Some(read) = reading.next().await {
        let (channel, events) = read?;
        if are_first && lack_signers(&events) {
            note(
                "this configuration does not have the signers of these events: see verification.valid_signers and verification.min_required_signatures",
            );
        }
        are_first = false;
        let shown = events.into_iter().filter(|event| filter.takes(event)).map(|event| (event.line, event.json));
        if printer.print(out, shown)? {
            return Ok(());
        }
        reading.push(channel.read(client));
    }
    Ok(())
}

/// Whether the configured signers are probably wrong: none of the events is verified, and some have too few signatures.
fn lack_signers(events: &[ReceivedEvent]) -> bool {
    let has_too_few = |event: &ReceivedEvent| event.reason == Some(ReasonKind::TooFewSignatures.into());
    let is_verified = |event: &ReceivedEvent| event.record.as_ref().is_some_and(Record::is_verified);
    events.iter().any(has_too_few) && !events.iter().any(is_verified)
}

/// The channel with this name or id. Without one, all channels.
fn chosen(
    listed: Vec<ListedChannel>,
    name_or_id: Option<&str>,
    feed: &FeedAddress,
) -> Result<Vec<ListedChannel>, CommandError> {
    let names: Vec<_> = listed.iter().map(|listed| printable(&listed.name)).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let Some(wanted) = name_or_id else {
        return match listed.len() {
            0 => Err(CommandError::failed(format!("the token may read no channel of {feed}"))),
            number if number > MAX_CHANNELS => Err(CommandError::usage(format!(
                "the token may read {number} channels, and at most {MAX_CHANNELS} can be watched at once: name one channel"
            ))),
            _ => Ok(listed),
        };
    };
    let found: Vec<_> =
        listed.into_iter().filter(|listed| listed.name == wanted || listed.id.to_string() == wanted).collect();
    if found.is_empty() {
        let wanted = printable(wanted);
        return Err(CommandError::usage(format!(
            "{feed} has no channel {wanted} that the token may read; the channels that it may read are: {names}"
        )));
    }
    Ok(found)
}

/// The events that are printed.
struct ReceivedFilter {
    rules: record::Filter,
    search: Filter,
}

impl ReceivedFilter {
    /// A rejected event is always printed, because its content is not known.
    fn takes(&self, event: &ReceivedEvent) -> bool {
        let takes = |record: &Record| self.search.created.takes(record.time) && self.rules.takes(record.facts());
        event.record.as_ref().is_none_or(takes)
    }
}

/// A channel, and the position up to which its events were received.
#[derive(Debug)]
struct FollowedChannel {
    channel: ChannelRef,
    verifier: Verifier,
    after: i64,
    /// Whether the operator has chosen the position, and no event was received since.
    is_chosen: bool,
    /// The highest offset of the received events.
    highest: Option<Offset>,
    /// The last error. An error is printed only if it differs from this one.
    complaint: Option<String>,
}

impl FollowedChannel {
    fn of(
        listed: &ListedChannel,
        args: &super::Args,
        local: Option<&LocalConfig>,
        file: Option<&Path>,
    ) -> Result<Self, CommandError> {
        let channel = ChannelRef { name: printable(&listed.name).into(), id: listed.id };
        let last = i64::from(args.last.unwrap_or_default());
        Ok(Self {
            verifier: verifier(&channel, local, file)?,
            channel,
            after: args.feed.after.unwrap_or_else(|| listed.position.saturating_sub(last).max(0)),
            is_chosen: args.feed.after.is_some(),
            highest: None,
            complaint: None,
        })
    }

    /// Waits for the next events, and verifies them. After an error that may pass, retries.
    async fn read(mut self, client: &FeedClient) -> Result<(Self, Vec<ReceivedEvent>), CommandError> {
        loop {
            match client.events(&self.channel.name, self.after).await {
                Ok(events) => {
                    self.complaint = None;
                    if !events.is_empty() {
                        return self.verified(events, client).await;
                    }
                }
                Err(FeedFailure::Unavailable(why)) => {
                    if self.complaint.as_ref() != Some(&why) {
                        note(&format!("channel {}: {why}; retrying", self.channel.name));
                    }
                    self.complaint = Some(why);
                    sleep(RETRY_WAIT).await;
                }
                Err(FeedFailure::Gone { oldest }) if !self.is_chosen && oldest - 1 > self.after => {
                    let missed = u64::try_from(oldest - 1 - self.after).unwrap_or_default();
                    let (missed, name) = (counted(missed, "event"), &self.channel.name);
                    note(&format!("channel {name}: {missed} not shown, because the feed has deleted them"));
                    self.after = oldest - 1;
                }
                Err(failure) => return Err(failure.into_error(|oldest| self.gone(oldest))),
            }
        }
    }

    fn gone(&self, oldest: i64) -> String {
        let Self { channel: ChannelRef { name, .. }, after, .. } = self;
        format!(
            "channel {name}: the events directly after position {after} were deleted (410): use --after {}, and look for the earlier events with channeld search",
            oldest - 1
        )
    }

    async fn verified(
        mut self,
        objects: Vec<Box<RawValue>>,
        client: &FeedClient,
    ) -> Result<(Self, Vec<ReceivedEvent>), CommandError> {
        let (name, before) = (&self.channel.name, self.after);
        let positions = objects.iter().map(|object| position(object)).collect::<Option<Vec<_>>>();
        let is_ascending = |positions: &Vec<i64>| [before].iter().chain(positions).is_sorted_by(|one, next| one < next);
        let positions = positions.filter(is_ascending).ok_or_else(|| {
            let feed = &client.address;
            CommandError::failed(format!(
                "channel {name}: {feed} sent events in the wrong order: their positions do not ascend"
            ))
        })?;
        if let Some((last, number)) = positions.last().zip(i64::try_from(positions.len()).ok()) {
            let missing = u64::try_from(last - before - number).unwrap_or_default();
            if missing > 0 {
                let missing = counted(missing, "position");
                note(&format!("channel {name}: {missing} between {before} and {last} are missing in the feed"));
            }
            (self.after, self.is_chosen) = (*last, false);
        }
        let (channel, verifier) = (self.channel.clone(), self.verifier.clone());
        let verifying = spawn_blocking(move || {
            let objects = objects.iter().zip(positions);
            objects
                .map(|(object, position)| ReceivedEvent::of(&channel, &verifier, position, object))
                .collect::<Vec<_>>()
        });
        let mut events = verifying.await.expect("verifying does not panic, and is never cancelled");
        for event in events.iter_mut().filter(|event| event.record.is_some()) {
            let offset = Some(event.line.parts.offset);
            event.line.is_late = self.highest > offset;
            self.highest = self.highest.max(offset);
        }
        Ok((self, events))
    }
}

/// The settings with which the events of a channel are verified. A channel that is not configured here has the settings that all
/// channels share.
fn verifier(channel: &ChannelRef, local: Option<&LocalConfig>, file: Option<&Path>) -> Result<Verifier, CommandError> {
    let known = local.map(|local| configured(&local.channels)).unwrap_or_default();
    if !known.is_empty() {
        return Ok(verifier_of(&known, &channel.id.to_string())?.1);
    }
    let missing = || {
        CommandError(
            Exit::Config,
            "the configuration has no [verification] settings: set verification.org_id".to_owned(),
        )
    };
    load_verifier(file, None)?.ok_or_else(missing)
}

fn position(object: &RawValue) -> Option<i64> {
    #[derive(Deserialize)]
    struct Positioned {
        position: i64,
    }
    serde_json::from_str(object.get()).ok().map(|Positioned { position }| position)
}

#[cfg(test)]
mod tests;
