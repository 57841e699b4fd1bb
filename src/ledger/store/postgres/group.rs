//! The effects of several channels, packed into the columns of one statement.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::connection::Parameter;
use crate::rules::encode;
use crate::{Effects, Key, Lease};
use net::postgres::bigint;

#[derive(Debug, Default)]
pub(super) struct Group<'a> {
    channels: Vec<Uuid>,
    epochs: Vec<i64>,
    recorded: Vec<i64>,
    versions: Vec<i64>,
    held_back: Vec<Option<Vec<u8>>>,
    removed: EntryColumns<'a>,
    written: EntryColumns<'a>,
    values: Vec<&'a [u8]>,
}

#[derive(Debug, Default)]
struct EntryColumns<'a> {
    channels: Vec<Uuid>,
    kinds: Vec<&'a str>,
    keys: Vec<Vec<u8>>,
}

impl<'a> Group<'a> {
    /// `recorded` returns the newest version that the database is known to have of a lease's channel. Leases for which
    /// `recorded` returns `None` are skipped.
    pub(super) fn pack(group: &'a [(Lease, Effects)], recorded: impl Fn(&Lease) -> Option<u64>) -> Self {
        let mut packed = Self::default();
        for (lease, effects) in group {
            let Some(recorded) = recorded(lease) else { continue };
            let channel = lease.channel.0;
            packed.channels.push(channel);
            packed.epochs.push(bigint(lease.epoch));
            packed.recorded.push(bigint(recorded));
            packed.versions.push(bigint(effects.summary.version));
            let held_back = &effects.summary.held_back;
            packed.held_back.push((!held_back.is_empty()).then(|| encode(held_back).to_vec()));
            for (key, value) in last_changes(effects) {
                match value {
                    Some(value) => {
                        packed.written.push(channel, key);
                        packed.values.push(value);
                    }
                    None => packed.removed.push(channel, key),
                }
            }
        }
        packed
    }

    pub(super) fn parameters<'p>(&'p self, me: &'p Uuid) -> [Parameter<'p>; 13] {
        [
            (me, Type::UUID),
            (&self.channels, Type::UUID_ARRAY),
            (&self.epochs, Type::INT8_ARRAY),
            (&self.recorded, Type::INT8_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.removed.channels, Type::UUID_ARRAY),
            (&self.removed.kinds, Type::TEXT_ARRAY),
            (&self.removed.keys, Type::BYTEA_ARRAY),
            (&self.written.channels, Type::UUID_ARRAY),
            (&self.written.kinds, Type::TEXT_ARRAY),
            (&self.written.keys, Type::BYTEA_ARRAY),
            (&self.values, Type::BYTEA_ARRAY),
            (&self.held_back, Type::BYTEA_ARRAY),
        ]
    }
}

impl<'a> EntryColumns<'a> {
    fn push(&mut self, channel: Uuid, key: &'a Key) {
        self.channels.push(channel);
        self.kinds.push(key.kind());
        self.keys.push(key.bytes());
    }
}

/// The last change of each key, because one statement can change a row only once. The version and the summary are left
/// out: the version is stored in the channel's row, and this store restores nothing from a summary.
fn last_changes(effects: &Effects) -> BTreeMap<&Key, Option<&Bytes>> {
    let changes = effects.changes.iter().map(|(key, value)| (key, value.as_ref()));
    changes.filter(|(key, _)| !matches!(key, Key::Version | Key::Summary)).collect()
}
