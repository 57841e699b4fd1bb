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

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::BadAnswer;
use net::tasks::joined;
use proof::event::{EventId, RawEvent};

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
    #[serde(borrow, deserialize_with = "records")]
    events: Vec<&'a RawValue>,
    has_more: bool,
}

impl Page {
    /// Reads the body of poll or search. Its records are slices of it.
    ///
    /// A body that is not UTF-8 is read as if every byte were a character, which leaves JSON's own characters where they
    /// are. That needs the body's length once more, twice at the most.
    ///
    /// # Errors
    /// [`BadAnswer`], where it is no page or the order of its records cannot be seen.
    pub fn read(body: &Bytes) -> Result<Self, BadAnswer> {
        let text = text(body);
        let Wire { events: records, has_more } = parse(&text)?;
        if records.len() > MAX_RECORDS {
            return Err(BadAnswer("the page has too many records".into()));
        }
        // The end of the last record, in `text` and in `body`.
        let (mut seen, mut end) = (0, 0);
        let mut events: Vec<RawEvent> = Vec::with_capacity(records.len());
        for (index, record) in records.into_iter().map(RawValue::get).enumerate() {
            let json = if let Cow::Borrowed(_) = text {
                body.slice_ref(record.as_bytes())
            } else {
                let at = record.as_ptr().addr() - text.as_ptr().addr();
                let start = end + text[seen..at].chars().count();
                (seen, end) = (at + record.len(), start + record.chars().count());
                body.slice(start..end)
            };
            let (offset, id) = RawEvent::place(record).ok_or_else(|| no_offset(index))?;
            if events.last().is_some_and(|above| above.offset <= offset) {
                return Err(BadAnswer(format!("record {index} of the page is not below the one before it").into()));
            }
            events.push(RawEvent { offset, id, json });
        }
        Ok(Self { events, has_more })
    }
}

/// A longer page is read on a thread for blocking work: it takes a part of a millisecond, and the longest take many.
const READ_HERE: usize = 64 << 10;

/// [`Page::read`], which holds up no async thread.
pub(super) async fn read(body: Bytes) -> Result<Page, BadAnswer> {
    if body.len() <= READ_HERE {
        return Page::read(&body);
    }
    joined(tokio::task::spawn_blocking(move || Page::read(&body)).await).await
}

/// Reads the body of a single event: the record itself.
pub(super) fn read_one(body: &Bytes, asked_for: EventId) -> Result<RawEvent, BadAnswer> {
    let text = text(body);
    let record: &RawValue = parse(&text)?;
    let (offset, id) = RawEvent::place(record.get()).ok_or_else(|| no_offset(0))?;
    // A record without a readable id is passed on: the schema allows it, and the verifier decides.
    if id.is_some_and(|id| id != asked_for) {
        return Err(BadAnswer("the service answered with another event than the one asked for".into()));
    }
    Ok(RawEvent { offset, id, json: body.slice_ref(body.trim_ascii()) })
}

/// Such a record can be neither delivered nor set aside.
fn no_offset(index: usize) -> BadAnswer {
    BadAnswer(format!("record {index} of the page has no readable offset").into())
}

/// A body as text; each byte is a character where it is not UTF-8.
fn text(body: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(body).map_or_else(|_| body.iter().copied().map(char::from).collect(), Cow::Borrowed)
}

/// Most often a proxy's page.
pub(super) const NOT_JSON: &str = "the answer is not JSON: does a proxy stand in between?";

/// Reads JSON, and classifies what is wrong with it.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, BadAnswer> {
    serde_json::from_str(text).map_err(|error| {
        let what = match error.classify() {
            _ if text.trim_ascii().is_empty() => "the answer is empty",
            Category::Eof => "the answer is cut short",
            Category::Data => "the answer does not have the documented shape",
            Category::Syntax | Category::Io => NOT_JSON,
        };
        BadAnswer(what.into())
    })
}

/// The page's records; of more than [`MAX_RECORDS`] no more than that there are more.
fn records<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'de RawValue>, D::Error> {
    struct Each;

    impl<'de> Visitor<'de> for Each {
        type Value = Vec<&'de RawValue>;

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
            Ok(records)
        }
    }

    deserializer.deserialize_seq(Each)
}
