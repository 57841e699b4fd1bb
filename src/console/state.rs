//! The data from which the pages are made.

use std::collections::BTreeMap;

use api::{AccountName, Client};
use operator::{ConfiguredChannel, SignerNames};
use proof::event::ChannelId;

use super::access::Access;
use super::daemon_connection::DaemonConnection;
use super::tables::OpenSource;

pub(super) struct State {
    pub(super) access: Access,
    pub(super) daemon: DaemonConnection,
    pub(super) channels: Vec<ConfiguredChannel>,
    pub(super) clients: BTreeMap<AccountName, Client>,
    pub(super) source: OpenSource,
    pub(super) signer_names: SignerNames,
    /// The address of the block explorer of each network, by its chain selector.
    pub(super) explorers: BTreeMap<u64, String>,
}

impl State {
    /// The client of the channel's account. A channel that is not configured belongs to the default account. The error tells
    /// the user why no client exists.
    pub(super) fn client(&self, channel: ChannelId) -> Result<&Client, String> {
        let known = self.channels.iter().find(|known| known.channel.id == channel);
        let account = known.map_or_else(AccountName::default, |known| known.account.clone());
        self.clients.get(&account).ok_or_else(|| format!("no configured channel uses the API key of [{account}]"))
    }
}
