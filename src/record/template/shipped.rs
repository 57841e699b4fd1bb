//! The templates that are compiled in.

use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

use super::alert::Alert;

/// A target whose body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Shipped {
    /// An incoming webhook of Slack.
    Slack,
    /// A workflow of Microsoft Teams that takes Adaptive Cards.
    Teams,
    /// A webhook of a Discord channel.
    Discord,
    /// `PagerDuty`'s Events API v2.
    PagerDuty,
    /// Opsgenie's Alert API, which Jira Service Management has too.
    Opsgenie,
}

impl Shipped {
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Slack => include_str!("slack.jinja"),
            Self::Teams => include_str!("teams.jinja"),
            Self::Discord => include_str!("discord.jinja"),
            Self::PagerDuty => include_str!("pagerduty.jinja"),
            Self::Opsgenie => include_str!("opsgenie.jinja"),
        }
    }

    /// What follows the target's address for this alert: segments of the path, and a query.
    pub(crate) fn below(self, alert: &Alert) -> Option<Below> {
        let closes = self == Self::Opsgenie && alert.resolves;
        closes.then(|| Below { path: vec![alert.key.clone(), "close".to_owned()], query: "identifierType=alias" })
    }
}

/// What follows a target's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// Segments of the path, not yet encoded.
    pub path: Vec<String>,
    /// The query, encoded.
    pub query: &'static str,
}
