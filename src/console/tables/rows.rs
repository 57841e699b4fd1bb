//! The rows of a table, as pages show them.

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::excerpt::{Excerpt, excerpt};
use record::Confidence;
use sink::Search;

/// The columns of a list, in the order in which a [`Row`] is read.
pub(super) const LISTED: [&str; 16] = [
    "channel",
    "channel_id",
    "event_offset",
    "event_id",
    "type",
    "name",
    "source",
    "service",
    "network",
    "time",
    "received",
    "delivered",
    "status",
    "verification",
    "confidence",
    "watcher_id",
];

/// The columns of a row that a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) channel: String,
    pub(crate) channel_id: String,
    pub(crate) offset: i64,
    pub(crate) event_id: Option<String>,
    pub(crate) kind: String,
    pub(crate) name: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) network: Option<String>,
    pub(crate) time: Option<Timestamp>,
    pub(crate) received: Option<Timestamp>,
    pub(crate) delivered: Option<Timestamp>,
    pub(crate) status: Option<String>,
    pub(crate) verification: String,
    pub(crate) confidence: Option<Confidence>,
    pub(crate) watcher_id: Option<String>,
    /// The text that matches a word search. `None` if the columns of the list already show the words.
    pub(crate) excerpt: Option<Excerpt>,
}

impl Row {
    /// Reads a row of a list. For a word search, the values of the columns `SEARCHED_COLUMNS` follow.
    pub(super) fn listed(values: Vec<Option<String>>, words: &[String], search: Search) -> Self {
        let mut values = values.into_iter();
        let row = Self::read(&mut values);
        let texts: Vec<_> = values.map(Option::unwrap_or_default).collect();
        Self { excerpt: excerpt(words, search, &texts), ..row }
    }

    /// Reads a row from the values of the columns [`LISTED`].
    fn read(values: &mut impl Iterator<Item = Option<String>>) -> Self {
        let mut next = || values.next().flatten();
        let time = |text: Option<String>| text.and_then(|text| text.parse().ok());
        Self {
            channel: next().unwrap_or_default(),
            channel_id: next().unwrap_or_default(),
            offset: next().and_then(|text| text.parse().ok()).unwrap_or_default(),
            event_id: next(),
            kind: next().unwrap_or_default(),
            name: next(),
            source: next(),
            service: next(),
            network: next(),
            time: time(next()),
            received: time(next()),
            delivered: time(next()),
            status: next(),
            verification: next().unwrap_or_default(),
            confidence: next().and_then(|text| text.parse().ok()),
            watcher_id: next(),
            excerpt: None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FullRow {
    pub(crate) row: Row,
    pub(crate) digest: Option<String>,
    /// The body that the sink wrote.
    pub(crate) record: String,
}

impl FullRow {
    /// Reads a row from the values of the columns [`LISTED`], the digest and the record.
    pub(super) fn of(values: Vec<Option<String>>) -> Self {
        let mut values = values.into_iter();
        let row = Row::read(&mut values);
        let digest = values.next().flatten().filter(|digest| !digest.is_empty());
        Self { row, digest, record: values.next().flatten().unwrap_or_default() }
    }

    /// The service's JSON inside the record, if the record contains it.
    pub(crate) fn event(&self) -> Option<&str> {
        #[derive(serde::Deserialize)]
        struct Record<'a> {
            #[serde(borrow)]
            event: Option<&'a RawValue>,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
            #[serde(borrow)]
            headers: Option<&'a RawValue>,
        }
        let mut json = self.record.as_str();
        // The JSON is a record, or the service's event, or a CloudEvents event that contains one of these two.
        for _ in 0..3 {
            let record: Record<'_> = serde_json::from_str(json).ok()?;
            json = match record {
                Record { event: Some(event), .. } => return Some(event.get()),
                Record { data: Some(data), headers: None, .. } => data.get(),
                Record { headers: Some(_), .. } => return Some(json),
                _ => return None,
            };
        }
        None
    }
}
