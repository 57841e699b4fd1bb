//! What is to be shown of a table, and where a row stands in it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::Row;
use proof::event::{ChannelId, EventId};

/// What one can choose by: a column whose values are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(in crate::cli::console) enum Facet {
    Verdict,
    Type,
    Name,
    Source,
    Service,
    Network,
    Status,
    Channel,
}

/// What is shown: rows to which all of it applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli::console) struct Filter {
    /// The words that a row's texts hold, all of them.
    pub(in crate::cli::console) words: Option<Vec<String>>,
    /// Of each column one of these values.
    pub(in crate::cli::console) chosen: BTreeMap<Facet, Vec<String>>,
    /// Not older.
    pub(in crate::cli::console) from: Option<Timestamp>,
    /// Not younger.
    pub(in crate::cli::console) to: Option<Timestamp>,
}

/// Where a row stands: it has its place by these, in descending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::console) struct Place {
    pub(in crate::cli::console) time: Option<Timestamp>,
    pub(in crate::cli::console) offset: i64,
    pub(in crate::cli::console) channel: ChannelId,
    /// Two events can have the same offset. The nil id if the event has none.
    pub(in crate::cli::console) event: EventId,
}

impl Facet {
    /// Its column.
    pub(super) fn column(self) -> &'static str {
        match self {
            Self::Verdict => "verification",
            other => other.into(),
        }
    }

    /// A row's value.
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
    /// Whether it lets a row through, but for the words.
    pub(super) fn lets_through(&self, row: &Row) -> bool {
        let is_chosen = |(facet, values): (&Facet, &Vec<String>)| {
            facet.of(row).is_some_and(|value| values.iter().any(|chosen| chosen == value))
        };
        self.chosen.iter().all(is_chosen)
            && self.from.is_none_or(|from| row.time.is_some_and(|time| time >= from))
            && self.to.is_none_or(|to| row.time.is_some_and(|time| time <= to))
    }

    /// Whether nothing but words restricts it.
    pub(super) fn has_only_words(&self) -> bool {
        self.words.is_some() && self.chosen.is_empty() && self.from.is_none() && self.to.is_none()
    }
}

impl Place {
    pub(in crate::cli::console) fn of(row: &Row) -> Option<Self> {
        let event = row.event_id.as_deref().and_then(|id| id.parse().ok()).unwrap_or_default();
        Some(Self { time: row.time, offset: row.offset, channel: row.channel_id.parse().ok()?, event })
    }
}

/// `TIME~OFFSET~CHANNEL~EVENT`; `-` for a time that is not known.
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
