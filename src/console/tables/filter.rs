//! Selects rows of a table: the values to choose from, the filter, and the position of a row.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::excerpt::is_hexadecimal;
use super::rows::Row;
use proof::event::{ChannelId, EventId};

/// How many of the newest rows provide the values of the filter menus.
pub(super) const SAMPLED: usize = 2_000;

/// A column whose values the user can choose. The name of the variant is the heading of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(ascii_case_insensitive)]
pub(crate) enum Facet {
    Verdict,
    Type,
    Name,
    Source,
    Service,
    Network,
    Status,
    Channel,
}

/// The newest rows.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) rows: Vec<Row>,
    /// The approximate number of rows in the table.
    pub(crate) total: u64,
}

impl Sample {
    /// Creates a sample of all rows that exist.
    pub(crate) fn of(rows: Vec<Row>) -> Self {
        Self { total: rows.len() as u64, rows }
    }

    /// The values of a column, the most frequent first, and how many of the newest rows have each value.
    pub(crate) fn values(&self, facet: Facet) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &self.rows {
            if let Some(value) = facet.of(row).filter(|value| !value.is_empty()) {
                *counts.entry(value).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().map(|(value, count)| (value.to_owned(), count)).collect();
        counts.sort_by(|(one, first), (other, second)| second.cmp(first).then_with(|| one.cmp(other)));
        counts
    }
}

/// The selection of rows. A row must satisfy every part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFilter {
    /// Words that must all occur in the row's texts.
    pub(crate) words: Vec<String>,
    /// For each column, the accepted values.
    pub(crate) chosen: BTreeMap<Facet, Vec<String>>,
    /// The oldest accepted time.
    pub(crate) from: Option<Timestamp>,
    /// The newest accepted time.
    pub(crate) to: Option<Timestamp>,
}

/// The position of a row. Rows are sorted by these fields in descending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PagePosition {
    pub(crate) time: Option<Timestamp>,
    pub(crate) offset: i64,
    pub(crate) channel: ChannelId,
    /// Distinguishes events with the same offset. The nil id if the event has no id.
    pub(crate) event: EventId,
}

impl Facet {
    pub(crate) fn heading(self) -> &'static str {
        self.into()
    }

    /// The name of the column in the query of an address.
    pub(crate) fn parameter(self) -> String {
        self.heading().to_ascii_lowercase()
    }

    /// The name of the column in the table.
    pub(super) fn column(self) -> String {
        if self == Self::Verdict { "verification".to_owned() } else { self.parameter() }
    }

    pub(crate) fn of(self, row: &Row) -> Option<&str> {
        match self {
            Self::Verdict => Some(&row.verification),
            Self::Type => Some(&row.kind),
            Self::Name => row.name.as_deref(),
            Self::Source => row.source.as_deref(),
            Self::Service => row.service.as_deref(),
            Self::Network => row.network.as_deref(),
            Self::Status => row.status.as_deref(),
            Self::Channel => Some(&row.channel),
        }
    }
}

impl EventFilter {
    /// Whether words are the only restriction.
    pub(super) fn has_only_words(&self) -> bool {
        !self.words.is_empty() && self.chosen.is_empty() && self.from.is_none() && self.to.is_none()
    }

    /// Whether the search is for a part of one address, hash or id. The indexes find only the beginning and the end of a word. If they
    /// find nothing, the newest rows are searched for the part, until the time budget is used up.
    pub(super) fn is_part_of_word(&self) -> bool {
        matches!(&*self.words, [word] if is_hexadecimal(word))
    }
}

impl PagePosition {
    pub(crate) fn of(row: &Row) -> Option<Self> {
        let event = row.event_id.as_deref().and_then(|id| id.parse().ok()).unwrap_or_default();
        Some(Self { time: row.time, offset: row.offset, channel: row.channel_id.parse().ok()?, event })
    }
}

/// `TIME~OFFSET~CHANNEL~EVENT`, with `-` for an unknown time.
impl fmt::Display for PagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, offset, channel, event } = self;
        let time = time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3}"));
        write!(f, "{time}~{offset}~{channel}~{event}")
    }
}

impl FromStr for PagePosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<_> = text.split('~').collect();
        let [time, offset, channel, event] = parts[..] else { return Err(()) };
        let time = if time == "-" { None } else { Some(time.parse().map_err(drop)?) };
        let (channel, event) = (channel.parse().map_err(drop)?, event.parse().map_err(drop)?);
        Ok(Self { time, offset: offset.parse().map_err(drop)?, channel, event })
    }
}
