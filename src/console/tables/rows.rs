//! The rows of a table, as pages show them.

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::piece::Piece;

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
    /// Why the row matches a word search, unless the row already shows it.
    pub(crate) piece: Option<Piece>,
}

/// A row together with its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) row: Row,
    pub(crate) digest: Option<String>,
    /// The body that the sink wrote.
    pub(crate) record: String,
}

impl Whole {
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
        // A record, or a CloudEvents event around a record or around the service's event, or only the service's event.
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
