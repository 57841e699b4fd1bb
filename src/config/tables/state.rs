//! `[state]` and `[cluster]`: where the state of the channels is stored, and how this instance takes part in a cluster.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use strum::{EnumString, VariantNames};

use super::server;
use crate::config::problem::not_built_in;
use crate::config::reading::values::{duration_in, path, unless_empty, word};
use crate::config::reading::{Reported, Section, all};
use ::ledger::store::{PostgresSettings, StateSettings};

/// A shorter lease would end at any network pause. A longer lease would leave the channels of a dead instance unattended.
const LEASE: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(300);

/// The value of `backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Backend {
    Sled,
    Postgres,
}

pub(crate) fn read(root: &Section<'_>) -> Result<StateSettings, Reported> {
    let state = root.section("state");
    let is_shared = matches!(state.required("backend", word), Ok(Backend::Postgres));
    if let Some(why) = not_built_in("postgres").filter(|_| is_shared) {
        state.wrong("backend", why);
    }
    all!(StateSettings {
        // Read these keys with every backend, so that they are always known.
        database: read_database(root, is_shared).map(|database| is_shared.then_some(database)),
        path: state.required("path", path),
    })
}

/// Reads the settings of both backends, whichever is in use.
pub(crate) fn read_both(root: &Section<'_>) -> Result<(PathBuf, PostgresSettings), Reported> {
    let (path, database) = (root.section("state").required("path", path), read_database(root, true));
    Ok((path?, database?))
}

fn read_database(root: &Section<'_>, is_required: bool) -> Result<PostgresSettings, Reported> {
    let (state, cluster) = (root.section("state"), root.section("cluster"));
    all!(PostgresSettings {
        server: server::read_server(&state, is_required),
        schema: state.required("schema", server::identifier(server::NAME_LIMIT, "channeld")),
        instance: cluster
            .required("instance", unless_empty(|name| Ok(name.to_owned())))
            .map(|name| { name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned()) }),
        lease: cluster.required("lease", duration_in(LEASE)),
    })
}
