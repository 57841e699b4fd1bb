//! The data from which the pages are made.

use api::Client;
use operator::{ConfiguredChannel, SignerNames};

use super::access::Access;
use super::daemon_connection::DaemonConnection;
use super::tables::OpenSource;

pub(super) struct State {
    pub(super) access: Access,
    pub(super) daemon: DaemonConnection,
    pub(super) channels: Vec<ConfiguredChannel>,
    pub(super) client: Client,
    pub(super) source: OpenSource,
    pub(super) signer_names: SignerNames,
}
