//! Parts of the pages, for the tests of other crates.

use channel::ChannelStatus;

use crate::overview;

/// Returns the HTML that the page of the daemon shows for a channel.
pub fn channel_html(channel: &ChannelStatus) -> String {
    overview::channel(channel, None, None, true).into_string()
}
