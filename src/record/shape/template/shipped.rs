//! The templates that are compiled into channeld.

use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

use super::alert::Alert;

/// A target with a built-in template.
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
    /// Opsgenie's Alert API, which Jira Service Management also offers.
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

    /// Returns the path segments and the query to append to the target's address for this alert.
    pub(crate) fn below(self, alert: &Alert) -> Option<Below> {
        let closes = self == Self::Opsgenie && alert.resolves;
        closes.then(|| Below { path: vec![alert.key.clone(), "close".to_owned()], query: "identifierType=alias" })
    }
}

/// The path and query to append to a target's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// Path segments, not yet encoded.
    pub path: Vec<String>,
    /// The query, encoded.
    pub query: &'static str,
}
