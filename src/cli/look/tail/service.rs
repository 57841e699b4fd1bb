//! Reads events from the service, without the daemon, and verifies their proofs.

use std::io::Write;

use futures_util::future::join_all;

use super::printer::{Printer, note};
use super::verdict_event::event_line;
use crate::cli::context::{CommandError, client, configured};
use crate::cli::verdict_line::verified;
use crate::config::Config;
use crate::daemon::assembly;
use api::{ApiError, Client, Filter, MAX_PAGE};
use net::Chain;
use operator::verifier_of;
use proof::event::{Offset, RawEvent};
use proof::verify::{Verdict, Verifier};
use record::ChannelRef;

/// How many channels are searched concurrently.
const AT_ONCE: usize = 16;

/// A channel, and the highest offset that was printed.
struct FollowedChannel {
    client: Client,
    channel: ChannelRef,
    verifier: Verifier,
    last: Option<Offset>,
    has_answered: bool,
    /// The last error. An error is printed only if it differs from this one.
    complaint: Option<String>,
}

/// The channels whose events are printed: one channel, or every configured channel.
pub(super) struct ServiceTail<'a> {
    channels: Vec<FollowedChannel>,
    filter: &'a Filter,
    /// How many past events of each channel are printed first.
    last: u16,
}

impl<'a> ServiceTail<'a> {
    pub(super) fn of(
        config: &Config,
        channel: Option<&str>,
        filter: &'a Filter,
        last: u16,
    ) -> Result<Self, CommandError> {
        let known = configured(&config.channels);
        let names = match channel {
            Some(name) => vec![name],
            None => known.iter().map(|known| &*known.channel.name).collect(),
        };
        let clients = assembly::clients(config)?;
        let followed = |name: &str| -> Result<FollowedChannel, CommandError> {
            let (channel, verifier) = verifier_of(&known, name)?;
            let shared = clients.get(&config.account_of(channel.id)).cloned();
            let client = shared.map_or_else(|| client(config, channel.id), Ok)?;
            Ok(FollowedChannel { client, channel, verifier, last: None, has_answered: false, complaint: None })
        };
        let channels = names.into_iter().map(followed).collect::<Result<_, _>>()?;
        Ok(Self { channels, filter, last })
    }

    /// Prints the events that are new since the last call. Returns whether the requested number of events was printed.
    pub(super) async fn print_news(
        &mut self,
        printer: &mut Printer,
        out: &mut dyn Write,
    ) -> Result<bool, CommandError> {
        let (filter, last) = (self.filter, self.last);
        let mut failed = None;
        for some in self.channels.chunks_mut(AT_ONCE) {
            let news = join_all(some.iter_mut().map(|followed| followed.news(filter, last))).await;
            for (FollowedChannel { channel, .. }, verdicts) in some.iter().zip(news) {
                match verdicts {
                    Ok(verdicts) => {
                        let event =
                            |verdict: &Verdict| (event_line(channel, verdict), record::verdict_json(channel, verdict));
                        if printer.print(out, verdicts.iter().map(event))? {
                            return Ok(true);
                        }
                    }
                    Err(failure) => drop(failed.get_or_insert(failure)),
                }
            }
        }
        let none = self.channels.iter().all(|followed| !followed.has_answered);
        failed.filter(|_| none).map_or(Ok(false), Err)
    }
}

impl FollowedChannel {
    /// Returns the verdicts on the events above the highest offset of the previous call, in ascending order. Returns an error
    /// only if the service has never answered for this channel. A later error is printed as a note.
    async fn news(&mut self, filter: &Filter, last: u16) -> Result<Vec<Verdict>, CommandError> {
        let asked = self.ask(filter, last).await;
        let name = &self.channel.name;
        match asked {
            Ok(events) => {
                (self.has_answered, self.complaint) = (true, None);
                Ok(verified(&self.verifier, events).await)
            }
            Err(error) if self.has_answered => {
                let why = Chain(&error).to_string();
                if self.complaint.as_ref() != Some(&why) {
                    note(&format!("channel {name}: {why}; asking again"));
                }
                self.complaint = Some(why);
                Ok(Vec::new())
            }
            Err(error) => Err(CommandError::api(format!("channel {name} could not be searched"))(error)),
        }
    }

    async fn ask(&mut self, filter: &Filter, last: u16) -> Result<Vec<RawEvent>, ApiError> {
        let limit = if self.has_answered { MAX_PAGE } else { last.max(1) };
        let mut events = self.client.search(self.channel.id, filter, limit, None).await?.events;
        let (full, lowest) = (events.len() >= usize::from(limit), events.last().map(|event| event.offset));
        let highest = events.first().map(|event| event.offset);
        if let (Some(last), Some(lowest)) = (self.last, lowest)
            && full
            && lowest > last
        {
            note(&format!(
                "channel {}: too many new events for one page; the events between offsets {last} and {lowest} are not shown; \
                 use `channeld search`",
                self.channel.name
            ));
        }
        if self.has_answered {
            events.retain(|event| Some(event.offset) > self.last);
        } else {
            events.truncate(last.into());
        }
        self.last = self.last.max(highest);
        events.reverse();
        Ok(events)
    }
}
