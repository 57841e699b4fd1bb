//! `[state]` and `[cluster]`: where the state of the channels is stored, and how this instance takes part in a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use strum::{EnumString, VariantNames};

use super::database;
use super::sink::{Sink, SinkSettings};
use crate::config::built_in::no_shared_state;
use crate::config::reading::values::{duration, path};
use crate::config::reading::{Reported, Section, all};
use ::ledger::store::{PostgresSettings, StateSettings};

/// The shortest and the longest lease. A shorter lease would end at any network pause. A longer lease would leave the
/// channels of a dead instance unattended.
const LEASE: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(300)];

/// The longest identifier of the database.
const SCHEMA_LIMIT: usize = 63;

/// The value of `backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Backend {
    Sled,
    Postgres,
}

pub(crate) fn read(root: &Section<'_>) -> Result<StateSettings, Reported> {
    let state = root.section("state");
    let backend = state.required("backend", crate::config::reading::values::word);
    // Read this with every backend, so that its keys are known in any case.
    let database = read_database(root);
    let path = state.required("path", path);
    let database = match backend? {
        Backend::Sled => database.map(|_| None),
        Backend::Postgres => {
            if let Some(why) = no_shared_state() {
                state.wrong("backend", why);
            }
            database.and_then(|database| check_url(&state, database)).map(Some)
        }
    };
    Ok(StateSettings { path: path?, database: database? })
}

/// Reads the settings of both backends, whichever is in use.
pub(crate) fn read_both(root: &Section<'_>) -> Result<(PathBuf, PostgresSettings), Reported> {
    let state = root.section("state");
    let path = state.required("path", path);
    let database = read_database(root).and_then(|database| check_url(&state, database));
    Ok((path?, database?))
}

fn read_database(root: &Section<'_>) -> Result<PostgresSettings, Reported> {
    let (state, cluster) = (root.section("state"), root.section("cluster"));
    all!(PostgresSettings {
        server: database::read_server(&state),
        schema: state.required("schema", database::identifier(SCHEMA_LIMIT, "channeld")),
        instance: cluster.required("instance", |text| Ok(instance(text))),
        lease: cluster.required("lease", lease),
    })
}

fn check_url(state: &Section<'_>, database: PostgresSettings) -> Result<PostgresSettings, Reported> {
    database::check_url(state, &database.server).map(|()| database)
}

/// The given name, or the name of the host.
fn instance(text: &str) -> String {
    match text.trim() {
        "" => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        name => name.to_owned(),
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let [shortest, longest] = LEASE;
    let lease = duration(text)?;
    if (shortest..=longest).contains(&lease) { Ok(lease) } else { Err("must be from \"3s\" to \"5m\"".to_owned()) }
}

/// If several instances share the channels, a sink on one machine gets only a part of the events.
pub(crate) fn check_sinks(root: &Section<'_>, state: Option<&StateSettings>, sinks: &BTreeMap<String, Sink>) {
    let is_shared = state.is_some_and(|state| state.database.is_some());
    for (name, sink) in sinks {
        if !matches!(sink.settings, SinkSettings::Stdout | SinkSettings::File(_) | SinkSettings::Sqlite(_)) {
            continue;
        }
        let section = root.section("sinks").section(name);
        if !section.boolean("per_instance", false).unwrap_or(true) && is_shared {
            section.wrong(
                "type",
                "belongs to one machine, but with state.backend = \"postgres\" each event goes to the instance that owns its channel; use a sink that all instances can reach, or set per_instance = true if each machine may have a part of the events",
            );
        }
    }
}
