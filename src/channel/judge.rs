//! Verdicts and what follows from them, with the second look that condemning an event takes.
//!
//! # Invariants
//!
//! * **Nobody is condemned on one reading.** A rejected event is read once more by its id, because a proxy may have
//!   damaged it; what the service says then holds. Where the service does not answer, judging waits. The same
//!   holds for a replay and a contradiction, see [`replay`](super::replay).
//! * **Let through in order.** Whether an event is a replay is asked when everything before it in its page is settled:
//!   of two with the same proof the first goes on.
//! * **Off the async threads.** Signatures are checked on threads of their own, see [`Machine`].
//!
//! # Cancellation
//!
//! Nothing is changed here: stopped at any point, the same events are read and judged again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tracing::field::display;
use tracing::{debug, error, warn};

use crate::api::ApiError;
use crate::event::{EventId, Offset, RawEvent};
use crate::record::ChannelRef;
use crate::retry::RetryPolicy;
use crate::state::{Evidence, Late, Pending, Quarantined};
use crate::telemetry::Chain;
use crate::trace::TraceId;
use crate::verify::Reason;

use super::batch::Outcome;
use super::clerk::{Clerk, Heard};
use super::machine::Machine;
use super::reader::ReadError;
use super::replay::{Alarm, LetThrough, RecentEvents};
use super::source::Source;
use super::status::Activity;
use super::teller::Teller;
use super::trouble::Trouble;
use super::turns::Turn;
use super::{ChannelError, Settings, pause};

mod notes;

pub(super) use notes::Notes;

use notes::Grounds;

/// Rejected events of one page that are read again at the same time.
const SECOND_LOOKS: usize = 8;

/// Waits for a readable answer about one event, before the lack of one holds up its channel no longer.
const STUBBORN_ANSWERS: u32 = 3;

/// Rejected events that are remembered as logged.
const MAX_SAID: usize = 10_000;

/// Waits between two questions for a proof that has not come.
pub(super) const PROOF_RETRY: RetryPolicy =
    RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// The reason of an event whose proof has not come.
pub(super) const PROOF_TIMEOUT: &str = "proof-timeout";

/// The reason of an event whose proof can never come.
const PENDING_WITHOUT_ID: &str = "pending-without-id";

/// An event whose proof is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    pub(super) offset: Offset,
    /// None has only what left the quarantine.
    pub(super) event_id: Option<EventId>,
    /// Unix seconds.
    pub(super) first_seen: i64,
}

impl From<&Pending> for Awaited {
    fn from(pending: &Pending) -> Self {
        Self { offset: pending.offset, event_id: pending.event_id, first_seen: pending.first_seen }
    }
}

impl From<(Offset, Late)> for Awaited {
    fn from((offset, late): (Offset, Late)) -> Self {
        Self { offset, event_id: late.event_id, first_seen: late.first_seen }
    }
}

/// What came of asking for a proof.
#[derive(Debug)]
pub(super) enum Answer {
    /// `stop` fired first.
    Stopped,
    /// Still without; the record as it was read, if it was.
    NotYet(Option<Bytes>),
    /// It came, or the event turned out to be something else.
    Settled(Outcome),
}

/// How judging goes on: who is told of what it waits for, what ends it, and the batch that it is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hearing<'a> {
    pub(super) teller: &'a Teller,
    pub(super) stop: &'a CancellationToken,
    /// None has what is read by itself.
    pub(super) trace: Option<TraceId>,
}

/// What stands after the second look.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "hardly any is the small one")]
enum Judged {
    Placed(Heard),
    Unplaced(RawEvent, Reason),
}

/// Gives a channel's events their outcome.
#[derive(Debug)]
pub(super) struct Judge {
    source: Arc<dyn Source>,
    recent: Arc<RecentEvents>,
    channel: ChannelRef,
    clerk: Arc<Clerk>,
    proof_timeout: Duration,
    retry: RetryPolicy,
    machine: Arc<dyn Machine>,
    /// The offsets of rejected events that have been logged: some are read, and rejected, again and again.
    said: Mutex<BTreeSet<Offset>>,
    notes: Notes,
}

impl Judge {
    pub(super) fn new(
        settings: &Settings,
        source: Arc<dyn Source>,
        recent: Arc<RecentEvents>,
        machine: Arc<dyn Machine>,
        notes: Notes,
    ) -> Self {
        Self {
            source,
            recent,
            channel: settings.channel.clone(),
            clerk: Arc::new(Clerk::new(settings)),
            proof_timeout: settings.proof_timeout,
            retry: settings.retry,
            machine,
            said: Mutex::default(),
            notes,
        }
    }

    /// Where the events come from.
    pub(super) fn source(&self) -> Arc<dyn Source> {
        self.source.clone()
    }

    /// A turn to ask for a range and to hear it.
    pub(super) async fn turn(&self) -> Turn {
        self.machine.turn().await
    }

    /// Hears a range, in its order, whatever becomes of the one before it.
    pub(super) fn hear(
        &self,
        events: Vec<RawEvent>,
    ) -> impl Future<Output = Result<Vec<Heard>, ChannelError>> + Send + use<> {
        let (machine, clerk) = (self.machine.clone(), self.clerk.clone());
        async move { machine.hear(&clerk, events).await }
    }

    /// Judges a range that was heard, in its order; `None` where `stop` fired first.
    pub(super) async fn page(
        &self,
        heard: Vec<Heard>,
        hearing: Hearing<'_>,
    ) -> Result<Option<Vec<Outcome>>, ChannelError> {
        let rejected: Vec<_> = heard.iter().filter_map(Heard::rejected).collect();
        let looks = stream::iter(rejected).map(|(raw, reason)| self.second_look(raw, reason, hearing));
        let mut judged_again = looks.buffered(SECOND_LOOKS).collect::<Vec<_>>().await.into_iter();
        let mut outcomes = Vec::with_capacity(heard.len());
        for heard in heard {
            let judged = match heard {
                Heard::Rejected(..) => judged_again.next().expect("each is looked at again")?,
                placed => Some(Judged::Placed(placed)),
            };
            let Some(judged) = judged else { return Ok(None) };
            let Some(outcome) = self.let_through(judged, hearing).await? else { return Ok(None) };
            outcomes.push(outcome);
        }
        self.notes.page(&outcomes, hearing.teller);
        Ok(Some(outcomes))
    }

    /// Waits for the proof of an event that everything else waits for; `None` where `stop` fired first.
    pub(super) async fn hold(&self, pending: Pending, hearing: Hearing<'_>) -> Result<Option<Outcome>, ChannelError> {
        let trace_id = hearing.trace.map(display);
        warn!(channel = %self.channel.name, trace_id, offset = %pending.offset, "proof pending: later events wait for it");
        let mut retry = self.machine.retry(PROOF_RETRY);
        let awaited = Awaited::from(&pending);
        loop {
            hearing.teller.waits(Activity::AwaitingProof { offset: pending.offset }, PROOF_RETRY.max_wait);
            // One that has waited behind another may be late already, and its proof there: it is asked for all the same.
            if !self.timed_out(&awaited) && !pause(retry.next_wait(None), hearing.stop).await {
                return Ok(None);
            }
            match self.ask_for_proof(&awaited, hearing).await? {
                Answer::Stopped => return Ok(None),
                Answer::NotYet(_) if self.timed_out(&awaited) => {
                    return Ok(Some(Outcome::Condemned(self.proof_timeout(&awaited, pending.json, hearing.trace))));
                }
                Answer::NotYet(_) => {}
                Answer::Settled(outcome) => return Ok(Some(outcome)),
            }
        }
    }

    /// Reads an event without its proof once more. One that is nowhere to be found, or that the service fails to give,
    /// may still come.
    pub(super) async fn ask_for_proof(&self, awaited: &Awaited, hearing: Hearing<'_>) -> Result<Answer, ChannelError> {
        let Some(event_id) = awaited.event_id else { return Ok(Answer::NotYet(None)) };
        let answer = tokio::select! {
            biased;
            () = hearing.stop.cancelled() => return Ok(Answer::Stopped),
            answer = self.source.event(event_id) => answer,
        };
        let again = match answer {
            Ok(again) if again.offset == awaited.offset => again,
            Ok(_) => return Ok(Answer::NotYet(None)),
            Err(error) => {
                debug!(channel = %self.channel.name, offset = %awaited.offset, error = %Chain(&error), "no answer about a late proof");
                return Ok(Answer::NotYet(None));
            }
        };
        let json = again.json.clone();
        Ok(match self.outcome(self.hear_one(again).await?, hearing).await? {
            None => Answer::Stopped,
            Some(Outcome::Pending(_)) => Answer::NotYet(Some(json)),
            Some(settled) => Answer::Settled(settled),
        })
    }

    /// What becomes of an event by the bytes that are kept of it; `None` where the service has to be asked.
    pub(super) async fn by_kept_bytes(&self, awaited: &Awaited, json: Bytes) -> Result<Option<Outcome>, ChannelError> {
        let heard = self.hear_one(RawEvent { offset: awaited.offset, id: awaited.event_id, json }).await?;
        Ok(match heard {
            Heard::Pending(_) => None,
            Heard::Rejected(..) if awaited.event_id.is_some() => None,
            settled => Some(
                self.settle(settled, None)
                    .unwrap_or_else(|(raw, alarm)| Outcome::Condemned(self.suspect(raw, alarm, None))),
            ),
        })
    }

    /// Whether an event has waited for its proof as long as the configuration allows.
    pub(super) fn timed_out(&self, awaited: &Awaited) -> bool {
        let waited = u64::try_from(self.machine.now() - awaited.first_seen).unwrap_or(0);
        waited >= self.proof_timeout.as_secs()
    }

    /// The evidence of an event whose proof has not come.
    pub(super) fn proof_timeout(&self, awaited: &Awaited, json: Bytes, trace: Option<TraceId>) -> Evidence {
        let raw = RawEvent { offset: awaited.offset, id: awaited.event_id, json };
        self.condemn(raw, Grounds::new(PROOF_TIMEOUT, "its proof has not come in time"), trace)
    }

    async fn hear_one(&self, event: RawEvent) -> Result<Heard, ChannelError> {
        let mut heard = self.hear(vec![event]).await?;
        Ok(heard.pop().expect("as many verdicts as events"))
    }

    async fn outcome(&self, heard: Heard, hearing: Hearing<'_>) -> Result<Option<Outcome>, ChannelError> {
        let judged = match heard {
            Heard::Rejected(raw, reason) => self.second_look(raw, reason, hearing).await?,
            placed => Some(Judged::Placed(placed)),
        };
        match judged {
            Some(judged) => self.let_through(judged, hearing).await,
            None => Ok(None),
        }
    }

    /// What stands of a rejection; `None` where `stop` fired first.
    async fn second_look(
        &self,
        raw: RawEvent,
        reason: Reason,
        hearing: Hearing<'_>,
    ) -> Result<Option<Judged>, ChannelError> {
        let Some(again) = self.read_again(&raw, hearing).await else { return Ok(None) };
        Ok(Some(match again {
            Some(again) => Judged::Placed(self.hear_one(again).await?),
            None => Judged::Unplaced(raw, reason),
        }))
    }

    /// What becomes of an event, unless it is a replay or a contradiction, on a second look too; `None` where `stop`
    /// fired first.
    async fn let_through(&self, judged: Judged, hearing: Hearing<'_>) -> Result<Option<Outcome>, ChannelError> {
        let heard = match judged {
            Judged::Placed(heard) => heard,
            Judged::Unplaced(raw, reason) => {
                return Ok(Some(Outcome::Unplaced(self.reject(raw, &reason, hearing.trace))));
            }
        };
        let (raw, alarm) = match self.settle(heard, hearing.trace) {
            Ok(outcome) => return Ok(Some(outcome)),
            Err(alarmed) => alarmed,
        };
        let Some(again) = self.read_again(&raw, hearing).await else { return Ok(None) };
        let Some(again) = again else { return Ok(Some(Outcome::Unplaced(self.suspect(raw, alarm, hearing.trace)))) };
        let settled = self.settle(self.hear_one(again).await?, hearing.trace);
        Ok(Some(settled.unwrap_or_else(|(raw, alarm)| Outcome::Condemned(self.suspect(raw, alarm, hearing.trace)))))
    }

    /// Reads an event by its id until the service answers. `None` where `stop` fired first, `Some(None)` where there is
    /// no such event at that offset, or no id to ask by.
    async fn read_again(&self, event: &RawEvent, hearing: Hearing<'_>) -> Option<Option<RawEvent>> {
        let Some(id) = event.id else { return Some(None) };
        let (mut retry, mut trouble) =
            (self.machine.retry(self.retry), Trouble::new(&self.channel, hearing.teller).with(hearing.trace));
        loop {
            let answer = tokio::select! {
                biased;
                () = hearing.stop.cancelled() => return None,
                answer = self.source.event(id) => answer,
            };
            hearing.teller.moves();
            let error = match answer {
                Ok(again) => {
                    trouble.over();
                    return Some(Some(again).filter(|again| again.offset == event.offset));
                }
                Err(ApiError::NotFound(_)) => return Some(None),
                Err(error) if retry.attempt() >= STUBBORN_ANSWERS && self.is_about_this_event(&error).await => {
                    return Some(None);
                }
                Err(error) => error,
            };
            let wait = retry.next_wait(error.retry_after());
            trouble.report("reading an event again", &ReadError::Api(error), wait);
            if !pause(wait, hearing.stop).await {
                return None;
            }
        }
    }

    /// Whether the service answers, but not with this event: others may well be read.
    async fn is_about_this_event(&self, error: &ApiError) -> bool {
        match error {
            ApiError::Malformed(_) => true,
            ApiError::Refused(answer) => !matches!(answer.status, 401 | 403),
            ApiError::Transient { .. } => self.source.poll(None, 1).await.is_ok(),
            ApiError::ChannelGone(_) | ApiError::NotFound(_) | ApiError::RateLimited { .. } => false,
        }
    }

    /// What becomes of an event; an alarm where it may not go on.
    fn settle(&self, heard: Heard, trace: Option<TraceId>) -> Result<Outcome, (RawEvent, Alarm)> {
        let channel = self.channel.id;
        Ok(match heard {
            Heard::Verified(raw, proof, record) => {
                if self.check(&raw, self.recent.verified(channel, &raw, &proof), trace)? {
                    self.notes.verified(record.kind(), &proof, self.machine.now());
                }
                Outcome::Deliver(record)
            }
            Heard::Unsigned(unsigned, None) => {
                self.notes.unsigned(&unsigned);
                Outcome::Dropped(unsigned.event().offset())
            }
            Heard::Unsigned(unsigned, Some(record)) => {
                if self.check(unsigned.event().raw(), self.recent.notice(channel, &unsigned), trace)? {
                    self.notes.unsigned(&unsigned);
                }
                Outcome::Deliver(record)
            }
            Heard::Pending(raw) => self.set_aside(raw, trace),
            Heard::Rejected(raw, reason) => Outcome::Condemned(self.reject(raw, &reason, trace)),
        })
    }

    /// Whether the event is let through for the first time, as far as is remembered.
    fn check(
        &self,
        raw: &RawEvent,
        let_through: Result<LetThrough, Alarm>,
        trace: Option<TraceId>,
    ) -> Result<bool, (RawEvent, Alarm)> {
        let LetThrough { replayed_at, is_news } = let_through.map_err(|alarm| (raw.clone(), alarm))?;
        if let Some(later) = replayed_at {
            let (offset, reason, trace_id) = (raw.offset, "replayed", trace.map(display));
            error!(channel = %self.channel.name, trace_id, %offset, reason, replay = %later.offset, "what was delivered before is a replay of this event");
        }
        Ok(is_news)
    }

    /// Without an id there is nothing to ask for again by.
    fn set_aside(&self, raw: RawEvent, trace: Option<TraceId>) -> Outcome {
        match raw.id {
            Some(event_id) => {
                // A copy: a slice would keep its whole page in memory for as long as it waits.
                let json = Bytes::copy_from_slice(&raw.json);
                Outcome::Pending(Pending {
                    offset: raw.offset,
                    event_id: Some(event_id),
                    first_seen: self.machine.now(),
                    json,
                })
            }
            None => Outcome::Condemned(self.condemn(
                raw,
                Grounds::new(PENDING_WITHOUT_ID, "a proof is due, and there is no event_id to ask for it by"),
                trace,
            )),
        }
    }

    /// Whether nothing has been said of that offset yet, as far as is remembered.
    fn is_news(&self, offset: Offset) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MAX_SAID {
            said.clear();
        }
        said.insert(offset)
    }

    fn reject(&self, raw: RawEvent, reason: &Reason, trace: Option<TraceId>) -> Evidence {
        self.condemn(raw, reason.into(), trace)
    }

    fn suspect(&self, raw: RawEvent, alarm: Alarm, trace: Option<TraceId>) -> Evidence {
        self.condemn(raw, alarm.into(), trace)
    }

    fn condemn(&self, raw: RawEvent, grounds: Grounds, trace: Option<TraceId>) -> Evidence {
        let RawEvent { offset, id, json } = raw;
        let at = self.machine.now();
        let (event_id, trace_id) = (id.map(display), trace.map(display));
        if self.is_news(offset) {
            self.notes.rejected(&json, &grounds);
            let Grounds { reason, detail, .. } = &grounds;
            error!(channel = %self.channel.name, trace_id, %offset, event_id, reason, detail, "event rejected: quarantined, not delivered");
        }
        let (reason, detail) = (grounds.reason.to_owned(), grounds.detail);
        Evidence { facts: Quarantined { offset, event_id: id, reason, detail, at }, json }
    }
}
