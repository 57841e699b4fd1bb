//! How the feed uses the table of a sink. The sinks are read before the feed, and their settings depend on it.

use std::collections::BTreeMap;

use crate::config::reading::Section;
use crate::config::tables::channel::Channel;
use ::sink::{ConsumedChannel, FeedConsumer};

/// The sink whose table the feed reads, and the consumers of the feed. Mistakes in these keys are reported with the feed.
#[derive(Default)]
pub(crate) struct FeedUsage {
    sink: Option<String>,
    /// The channels of each consumer.
    consumers: BTreeMap<String, Vec<ConsumedChannel>>,
}

impl FeedUsage {
    pub(crate) fn read(root: &Section<'_>, channels: &[Channel]) -> Self {
        if !root.is_table("feed") {
            return Self::default();
        }
        let feed = root.section("feed");
        let section = feed.section("consumers");
        let channels_of = |name: &str| {
            let listed = section.section(name).list("channels").ok().flatten().unwrap_or_default();
            let channel = |name: String| match channels.iter().find(|known| *known.channel.name == *name) {
                Some(known) => ConsumedChannel::Known(known.channel.id),
                None => ConsumedChannel::Named(name),
            };
            listed.into_iter().map(channel).collect()
        };
        let names = section.names().unwrap_or_default();
        Self {
            sink: feed.optional("sink", |text| Ok(text.trim().to_owned())).ok().flatten(),
            consumers: names.into_iter().map(|name| (name.clone(), channels_of(&name))).collect(),
        }
    }

    /// Whether the feed reads the table of this sink.
    pub(crate) fn reads(&self, sink: &str) -> bool {
        self.sink.as_deref() == Some(sink)
    }

    /// Returns a consumer that a list names, once for each of its channels.
    pub(crate) fn consumer(&self, name: &str) -> Result<Vec<FeedConsumer>, String> {
        let channels = self.consumers.get(name).ok_or_else(|| {
            let names: Vec<_> = self.consumers.keys().map(String::as_str).collect();
            format!("names the consumer {name:?}, which is not one of the consumers of the feed: {}", names.join(", "))
        })?;
        let of_channel =
            |channel: &ConsumedChannel| FeedConsumer { consumer: name.to_owned(), channel: channel.clone() };
        Ok(channels.iter().map(of_channel).collect())
    }
}
