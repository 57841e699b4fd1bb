//! Pages, single events and watchers: each record is a slice of the body.
//!
//! # Invariants
//!
//! * **A bad record does not affect others** if its offset can be read. Only the offset and the id are parsed here.
//!   Bytes that are not UTF-8 affect only the record that contains them.
//! * **A page without a clear order is malformed.** The position of a record is unknown if its offset cannot be read,
//!   or if its offset is not below the offset of the previous record. Accepting the other records would be a guess.
//! * **No defaults.** A page in which `events` or `has_more` is missing or `null` is malformed. If it were treated as
//!   empty, it would look like the end of the channel.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::InvalidResponse;
use net::tasks::joined;
use proof::event::{EventId, RawEvent};

/// The largest page that the service returns.
pub const MAX_PAGE: u16 = 200;

/// A page with more records than this is refused. The service's own maximum is [`MAX_PAGE`]. A page that has more records than
/// were requested, but not more than this, is accepted.
pub const MAX_RECORDS: usize = 10_000;

/// A page of poll or search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Newest first: offsets are strictly descending.
    pub events: Vec<RawEvent>,
    /// The service's `has_more`. It is not known whether it refers to newer or older events (spec/wire.md).
    pub has_more: bool,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, deserialize_with = "records")]
    events: Vec<&'a RawValue>,
    has_more: bool,
}

impl Page {
    /// Reads the body of poll or search. Its records are slices of the body.
    ///
    /// If the body is not UTF-8, it is read as if every byte were a character. JSON's structural characters are
    /// ASCII, so they are still recognized. This needs additional memory of one to two times the body's length.
    ///
    /// # Errors
    /// [`InvalidResponse`] if the body is not a page, or the order of its records cannot be determined.
    pub fn read(body: &Bytes) -> Result<Self, InvalidResponse> {
        let text = text(body);
        let Wire { events: records, has_more } = parse(&text)?;
        if records.len() > MAX_RECORDS {
            return Err(InvalidResponse("the page has too many records".into()));
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
                return Err(InvalidResponse(
                    format!("the offset of record {index} of the page is not below the offset of the record before it")
                        .into(),
                ));
            }
            events.push(RawEvent { offset, id, json });
        }
        Ok(Self { events, has_more })
    }
}

/// The longest page, in bytes, that is parsed on the async thread. Longer pages go to a blocking thread. Parsing a
/// page of this size takes a fraction of a millisecond, but the longest pages take many milliseconds.
const READ_HERE: usize = 64 << 10;

/// Like [`Page::read`], but does not block an async thread.
pub(super) async fn read(body: Bytes) -> Result<Page, InvalidResponse> {
    if body.len() <= READ_HERE {
        return Page::read(&body);
    }
    joined(tokio::task::spawn_blocking(move || Page::read(&body)).await).await
}

/// Reads the body of a single event, which is the record itself.
pub(super) fn read_one(body: &Bytes, asked_for: EventId) -> Result<RawEvent, InvalidResponse> {
    let text = text(body);
    let record: &RawValue = parse(&text)?;
    let (offset, id) = RawEvent::place(record.get()).ok_or_else(|| no_offset(0))?;
    // A record without a readable id is accepted here: the schema allows it, and the verifier decides.
    if id.is_some_and(|id| id != asked_for) {
        return Err(InvalidResponse("the service answered with a different event than the requested one".into()));
    }
    Ok(RawEvent { offset, id, json: body.slice_ref(body.trim_ascii()) })
}

/// The error for a record without an offset, which can be neither delivered nor quarantined.
fn no_offset(index: usize) -> InvalidResponse {
    InvalidResponse(format!("record {index} of the page has no readable offset").into())
}

/// A body as text. If it is not UTF-8, each byte becomes a character.
fn text(body: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(body).map_or_else(|_| body.iter().copied().map(char::from).collect(), Cow::Borrowed)
}

/// The usual cause is an error page of a proxy.
const NOT_JSON: &str = "the answer is not JSON: is there a proxy in between?";

pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, InvalidResponse> {
    serde_json::from_str(text).map_err(|error| {
        let what = match error.classify() {
            _ if text.trim_ascii().is_empty() => "the answer is empty",
            Category::Eof => "the answer is truncated",
            Category::Data => "the answer does not have the documented shape",
            Category::Syntax | Category::Io => NOT_JSON,
        };
        InvalidResponse(what.into())
    })
}

/// Reads the records of a page. Keeps at most one more than [`MAX_RECORDS`], which is enough to detect that the page
/// has too many records.
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

/// A watcher as the service returns it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Watcher {
    /// `pending`, `active`, `failed`, `archiving`, `archived`, `archive_failed`, or a status that this version does
    /// not know.
    pub status: String,
    /// The reason, if the service gives one. It may be empty.
    pub status_reason: Option<String>,
    /// The service's JSON, byte for byte.
    #[serde(skip)]
    pub json: Bytes,
}

impl Watcher {
    /// The name that the organization gave the watcher. `None` if it has none.
    pub fn name(&self) -> Option<String> {
        let description: serde_json::Value = serde_json::from_slice(&self.json).ok()?;
        description["name"].as_str().map(str::to_owned)
    }

    pub(super) fn read(body: &Bytes) -> Result<Self, InvalidResponse> {
        let text = std::str::from_utf8(body).map_err(|_| InvalidResponse(NOT_JSON.into()))?;
        Ok(Self { json: body.clone(), ..parse(text)? })
    }
}
