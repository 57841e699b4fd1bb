//! Pages and single events: each record is a slice of the body.
//!
//! # Invariants
//!
//! * **One bad record costs only itself**, as long as its offset can be read: only offset and id are read here, and bytes
//!   that are not UTF-8 spoil no other record.
//! * **A page without its order is malformed.** A record without a readable offset, or one that is not below the record
//!   before it, could have any place: to take the rest would be a guess.
//! * **No defaults.** A page without `events` or `has_more`, or with `null` there, is malformed: taken as empty it would look
//!   like the end of the channel.

use std::fmt;

use bytes::Bytes;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::BadAnswer;
use crate::event::{EventId, Offset, RawEvent};

/// A page with more records than this is refused. The service's own maximum is 200; more than were asked for are taken.
pub const MAX_RECORDS: usize = 10_000;

/// A page of poll or search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Newest first: offsets are strictly descending.
    pub events: Vec<RawEvent>,
    /// The service's `has_more`. Whether it speaks of newer or of older events is not known (spec/wire.md).
    pub has_more: bool,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    events: Records<'a>,
    has_more: bool,
}

impl Page {
    /// Reads the body of poll or search. Its records are slices of it.
    ///
    /// # Errors
    /// [`BadAnswer`], where it is no page or the order of its records cannot be seen.
    pub fn read(body: &Bytes) -> Result<Self, BadAnswer> {
        match std::str::from_utf8(body) {
            Ok(text) => {
                let wire: Wire<'_> = parse(text)?;
                page(&wire, |record| Some((RawEvent::place(record)?, body.slice_ref(record.as_bytes()))))
            }
            Err(_) => read_damaged(body),
        }
    }
}

/// Reads the body of a single event: the record itself.
pub(super) fn read_one(body: &Bytes, asked_for: EventId) -> Result<RawEvent, BadAnswer> {
    let text = latin1(body);
    let record: &RawValue = parse(&text)?;
    let (offset, id) = RawEvent::place(record.get()).ok_or(BadAnswer::NoOffset { index: 0 })?;
    // A record without a readable id is passed on: the schema allows it, and the verifier decides.
    if id.is_some_and(|id| id != asked_for) {
        return Err(BadAnswer::AnotherEvent);
    }
    Ok(RawEvent { offset, id, json: body.slice_ref(body.trim_ascii()) })
}

/// Reads a body that is not UTF-8 as if every byte were a character, which leaves JSON's own characters where they are,
/// and gives each record its exact bytes. Needs the body's length once more, twice at the most.
fn read_damaged(body: &Bytes) -> Result<Page, BadAnswer> {
    let text = latin1(body);
    let wire: Wire<'_> = parse(&text)?;
    let (mut seen, mut start) = (0, 0);
    page(&wire, |record| {
        let at = record.as_ptr().addr() - text.as_ptr().addr();
        start += text[seen..at].chars().count();
        seen = at;
        let json = body.slice(start..start + record.chars().count());
        Some((RawEvent::place(record)?, json))
    })
}

fn latin1(body: &[u8]) -> String {
    body.iter().copied().map(char::from).collect()
}

/// What a record says of its place.
type Place = (Offset, Option<EventId>);

/// Locates every record and checks their order.
fn page(wire: &Wire<'_>, mut locate: impl FnMut(&str) -> Option<(Place, Bytes)>) -> Result<Page, BadAnswer> {
    let records = &wire.events.0;
    if records.len() > MAX_RECORDS {
        return Err(BadAnswer::TooManyRecords);
    }
    let mut events: Vec<RawEvent> = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let ((offset, id), json) = locate(record.get()).ok_or(BadAnswer::NoOffset { index })?;
        if events.last().is_some_and(|above| above.offset <= offset) {
            return Err(BadAnswer::NotDescending { index });
        }
        events.push(RawEvent { offset, id, json });
    }
    Ok(Page { events, has_more: wire.has_more })
}

/// Reads JSON, and classifies what is wrong with it.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, BadAnswer> {
    serde_json::from_str(text).map_err(|error| match error.classify() {
        _ if text.trim_ascii().is_empty() => BadAnswer::Empty,
        Category::Eof => BadAnswer::CutShort,
        Category::Data => BadAnswer::WrongShape,
        Category::Syntax | Category::Io => BadAnswer::NotJson,
    })
}

/// The page's records; of more than [`MAX_RECORDS`] no more than that there are more.
struct Records<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Records<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Each)
    }
}

struct Each;

impl<'de> Visitor<'de> for Each {
    type Value = Records<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut records = Vec::new();
        while let Some(record) = list.next_element()? {
            if records.len() <= MAX_RECORDS {
                records.push(record);
            }
        }
        Ok(Records(records))
    }
}
