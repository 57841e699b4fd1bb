//! The service in memory. The fields of [`History`] choose the behavior that the specification leaves open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::read::source::Source;
use api::{ApiError, ErrorResponse, InvalidResponse, Page, TransientError};
use proof::event::{EventId, Offset, RawEvent};

use super::history::{Damage, EventKind, Forgery, HasMore, History, PlannedFault, SameId};
use super::pool::{self, Form};
use super::world::{Inner, World};

/// After this many consecutive requests for an event by its id without an answer, the channel is allowed to reject the
/// event.
const ANSWERS: usize = 4;

#[derive(Debug)]
pub(super) struct Memory {
    world: Arc<World>,
    created: Vec<i64>,
    ids: HashMap<EventId, usize>,
}

impl World {
    /// Returns the numbers of the events that are visible now.
    pub(super) fn visible(&self, inner: &Inner) -> Vec<usize> {
        let is_visible = |at: &usize| {
            if let Some(since) = inner.renewed_at(*at) {
                return since <= Instant::now();
            }
            let published = inner.seen[*at].published;
            let hidden = self.history.hidden_for(*at);
            hidden.is_none_or(|hidden| published.is_some_and(|since| since + hidden <= Instant::now()))
        };
        (0..inner.published).filter(is_visible).collect()
    }
}

impl Memory {
    pub(super) fn new(world: &Arc<World>) -> Self {
        let ids = world.offsets.iter().enumerate();
        let ids = ids.flat_map(|(at, offset)| [(pool::id(*offset), at), (pool::renewed_id(*offset), at)]).collect();
        Self { world: world.clone(), created: world.history.created(), ids }
    }

    fn published(&self) -> usize {
        self.world.lock().published
    }

    /// Returns a page with the oldest or the newest `limit` of the matching events.
    fn page(&self, matching: &[usize], oldest: bool, limit: u16) -> Page {
        let from = if oldest { 0 } else { matching.len().saturating_sub(usize::from(limit)) };
        let to = (from + usize::from(limit)).min(matching.len());
        let has_more = match self.world.history.has_more {
            HasMore::Rest => from > 0 || to < matching.len(),
            HasMore::Older => from > 0,
            HasMore::Newer => to < matching.len(),
            HasMore::OlderAtAll => matching.get(from).is_some_and(|lowest| *lowest > 0),
        };
        let events: Vec<_> = matching[from..to].iter().rev().map(|at| self.show(*at)).collect();
        self.world.log(|| {
            let offsets: Vec<_> = events.iter().map(|event| event.offset.get()).collect();
            format!("  answer: {offsets:?}{}", if has_more { " and more" } else { "" })
        });
        Page { events, has_more }
    }

    /// Returns the event in the form in which the service shows it now.
    fn show(&self, at: usize) -> RawEvent {
        let (world, offset) = (&*self.world, self.world.offsets[at]);
        let event = world.history.events[at];
        let now = world.now();
        let mut inner = world.lock();
        if inner.renewed_at(at).is_some() {
            return pool::record(offset, Form::Renewed);
        }
        let seen = &mut inner.seen[at];
        let reading = seen.readings;
        seen.readings += 1;
        let proof_is_there =
            |after| seen.published.is_some_and(|published| published + Duration::from_secs(after) <= Instant::now());
        let form = match event.kind {
            EventKind::Forged(Forgery::Nameless) => Form::ForgedNameless,
            EventKind::Never => Form::Bare,
            EventKind::Late(after) | EventKind::LateForged(after) if !proof_is_there(after) => Form::Bare,
            EventKind::Forged(_) | EventKind::LateForged(_) => Form::Forged,
            _ => world.history.form_delivered(&world.offsets, at),
        };
        let form = match (event.damaged, form) {
            (Some((damaged, damage)), Form::Proved | Form::Bare | Form::Notice) if damaged == reading => {
                match (damage, form) {
                    (Damage::Altered, _) => Form::Altered,
                    (Damage::Unreadable, _) => Form::Unreadable,
                    (Damage::Stripped, Form::Notice) => Form::Notice,
                    (Damage::Stripped, _) => Form::Bare,
                }
            }
            _ => form,
        };
        if form == Form::Bare {
            seen.bare.get_or_insert(now);
        }
        drop(inner);
        if !matches!(form, Form::Proved | Form::Notice) {
            world.log(|| format!("  {offset} is shown {form:?}"));
        }
        pool::record(offset, form)
    }

    /// Returns the event with this id, if the service has one.
    fn find(&self, id: EventId) -> Option<RawEvent> {
        let at = self.ids.get(&id).copied().filter(|at| *at < self.published())?;
        let renewed = self.world.lock().renewed_at(at);
        if let Some(since) = renewed {
            let is_there = id == pool::renewed_id(self.world.offsets[at]) && since <= Instant::now();
            return is_there.then(|| self.show(at));
        }
        match self.world.history.events[at].kind {
            _ if id != pool::id(self.world.offsets[at]) => None,
            EventKind::Nameless | EventKind::Forged(Forgery::Nameless | Forgery::Unknown) => None,
            EventKind::Duplicate(..) if matches!(self.world.history.original(at), Some((_, SameId::Yes))) => None,
            EventKind::Forged(Forgery::Elsewhere) => {
                let offset = Offset::new(self.world.offsets[at].get() + 1).unwrap();
                Some(RawEvent { offset, ..self.show(at) })
            }
            _ => Some(self.show(at)),
        }
    }

    /// Records whether a request for an event was answered.
    fn note_answer(&self, id: EventId, fault: Option<PlannedFault>) {
        let Some(at) = self.ids.get(&id) else { return };
        let mut inner = self.world.lock();
        let seen = &mut inner.seen[*at];
        seen.unanswered = if fault.is_some() { seen.unanswered + 1 } else { 0 };
        seen.denied |= fault == Some(PlannedFault::NotFound) || seen.unanswered >= ANSWERS;
    }
}

#[async_trait]
impl Source for Memory {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        let shown = offset.map_or(-1, Offset::get);
        if let Some(fault) = self.world.request(|| format!("poll from {shown}, at most {limit}")).await {
            return Err(error(if fault == PlannedFault::NotFound { PlannedFault::Unavailable } else { fault }));
        }
        let asked_for = |at: &usize| {
            let of = self.world.offsets[*at];
            offset.is_none_or(|offset| of > offset || (self.world.history.inclusive && of == offset))
        };
        let visible = self.world.visible(&self.world.lock());
        let matching: Vec<_> = visible.into_iter().filter(asked_for).collect();
        Ok(self.page(&matching, offset.is_some() && !self.world.history.newest, limit))
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        self.world.lock().totals.searches += 1;
        let shown = after.unwrap_or(-1);
        if let Some(fault) = self.world.request(|| format!("search {shown}..={through}, at most {limit}")).await {
            return Err(error(if fault == PlannedFault::NotFound { PlannedFault::Unavailable } else { fault }));
        }
        let asked_for = |at: &usize| {
            let created = self.created[*at];
            after.is_none_or(|after| created > after) && created <= through
        };
        let visible = self.world.visible(&self.world.lock());
        let matching: Vec<_> = visible.into_iter().filter(asked_for).collect();
        Ok(self.page(&matching, false, limit))
    }

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
        let offset = self.ids.get(&id).map(|at| self.world.offsets[*at]);
        let shown = offset.map_or(-1, Offset::get);
        let fault = self.world.request(|| format!("the event of offset {shown} by its id")).await;
        self.note_answer(id, fault);
        match fault {
            Some(fault) => Err(error(fault)),
            None => self.find(id).ok_or_else(|| error(PlannedFault::NotFound)),
        }
    }
}

impl History {
    /// Returns the form in which an event can be delivered.
    pub(super) fn form_delivered(&self, offsets: &[Offset], at: usize) -> Form {
        match (self.events[at].kind, self.original(at)) {
            (EventKind::Notice, _) => Form::Notice,
            (EventKind::Nameless, _) => Form::Nameless,
            (_, Some((original, same_id))) => Form::Duplicate(offsets[original], same_id),
            (_, None) => Form::Proved,
        }
    }
}

fn error(fault: PlannedFault) -> ApiError {
    let (code, message, unknown_type, resource, account) = <_>::default();
    let answer = ErrorResponse { status: 0, code, message, unknown_type, resource, account };
    let answer = |status| ErrorResponse { status, ..answer.clone() };
    match fault {
        PlannedFault::NotFound => ApiError::NotFound(answer(404)),
        PlannedFault::Refused => ApiError::Refused(answer(400)),
        PlannedFault::RateLimited(seconds) => ApiError::RateLimited { retry_after: seconds.map(Duration::from_secs) },
        PlannedFault::Timeout => ApiError::Transient(TransientError::Timeout),
        PlannedFault::Unavailable => {
            ApiError::Transient(TransientError::Status { answer: answer(503), retry_after: None })
        }
        PlannedFault::Malformed => ApiError::Malformed(InvalidResponse("not JSON".into())),
    }
}
