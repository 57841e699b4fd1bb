//! Selects rows of a table, and describes the place of a row in it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::rows::Row;
use proof::event::{ChannelId, EventId};

/// A column whose values the user can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
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

/// The selection of rows. A row must satisfy every part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Words that must all occur in the row's texts.
    pub(crate) words: Option<Vec<String>>,
    /// For each column, the accepted values.
    pub(crate) chosen: BTreeMap<Facet, Vec<String>>,
    /// The oldest accepted time.
    pub(crate) from: Option<Timestamp>,
    /// The newest accepted time.
    pub(crate) to: Option<Timestamp>,
}

/// The place of a row. Rows are sorted by these fields in descending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) time: Option<Timestamp>,
    pub(crate) offset: i64,
    pub(crate) channel: ChannelId,
    /// Two events can have the same offset. The nil id if the event has none.
    pub(crate) event: EventId,
}

impl Facet {
    /// The name of the column.
    pub(super) fn column(self) -> &'static str {
        match self {
            Self::Verdict => "verification",
            other => other.into(),
        }
    }

    /// The value in a row.
    pub(super) fn of(self, row: &Row) -> Option<&str> {
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

impl Filter {
    /// Whether the row satisfies the filter. The words are not checked.
    pub(super) fn lets_through(&self, row: &Row) -> bool {
        let is_chosen = |(facet, values): (&Facet, &Vec<String>)| {
            facet.of(row).is_some_and(|value| values.iter().any(|chosen| chosen == value))
        };
        self.chosen.iter().all(is_chosen)
            && self.from.is_none_or(|from| row.time.is_some_and(|time| time >= from))
            && self.to.is_none_or(|to| row.time.is_some_and(|time| time <= to))
    }

    /// Whether words are the only restriction.
    pub(super) fn has_only_words(&self) -> bool {
        self.words.is_some() && self.chosen.is_empty() && self.from.is_none() && self.to.is_none()
    }
}

impl Place {
    pub(crate) fn of(row: &Row) -> Option<Self> {
        let event = row.event_id.as_deref().and_then(|id| id.parse().ok()).unwrap_or_default();
        Some(Self { time: row.time, offset: row.offset, channel: row.channel_id.parse().ok()?, event })
    }
}

/// `TIME~OFFSET~CHANNEL~EVENT`, with `-` for an unknown time.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, offset, channel, event } = self;
        match time {
            Some(time) => write!(f, "{time:.3}~{offset}~{channel}~{event}"),
            None => write!(f, "-~{offset}~{channel}~{event}"),
        }
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('~');
        let mut next = || parts.next().ok_or(());
        let (time, offset, channel, event) = (next()?, next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(());
        }
        let time = if time == "-" { None } else { Some(time.parse().map_err(drop)?) };
        let (channel, event) = (channel.parse().map_err(drop)?, event.parse().map_err(drop)?);
        Ok(Self { time, offset: offset.parse().map_err(drop)?, channel, event })
    }
}
