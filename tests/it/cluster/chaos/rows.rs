//! Faults in rows of the state: damaged values, values of a newer version, and locks.

use super::fault::{Held, Kind};
use super::world::World;
use crate::support::Database;

/// A byte that no value of the state begins with.
const DAMAGE: &str = r"'\xff'::bytea";

pub(super) fn is_of_rows(kind: Kind) -> bool {
    matches!(kind, Kind::RowLocked | Kind::HeldBackDamaged | Kind::CursorsDamaged | Kind::UnknownEntry)
}

pub(super) async fn plant(kind: Kind, channel: usize, world: &mut World) -> Held {
    let id = world.id(channel);
    match kind {
        Kind::RowLocked => {
            let session = world.session().await;
            let lock = format!("begin; select from channeld.channels where channel_id = '{id}' for update");
            session.batch_execute(&lock).await.unwrap();
            return Held::Session(session);
        }
        // Its owner writes the value again with the next event.
        Kind::HeldBackDamaged => {
            world.quiet.insert(channel);
            damage_held_back(world, channel).await;
        }
        // The owner reads the cursors only when it claims the channel. Without triggers, because the audit reads them too.
        Kind::CursorsDamaged => {
            let damage = format!(
                "begin; set local session_replication_role = replica; \
                 update channeld.channels set owner = null, released = clock_timestamp() where channel_id = '{id}'; \
                 update channeld.entries set value = {DAMAGE} || value where channel_id = '{id}' and kind = 'cursors'; \
                 commit"
            );
            world.instances.database.change(&damage).await;
        }
        _ => {
            world.unknown += 1;
            let unknown = format!(
                "insert into channeld.entries values ('{id}', 'of-tomorrow-{}', '\\x01', '\\x02')",
                world.unknown
            );
            world.instances.database.change(&unknown).await;
        }
    }
    Held::Nothing
}

pub(super) async fn damage_held_back(world: &World, channel: usize) {
    let damage =
        format!("update channeld.channels set held_back = {DAMAGE} where channel_id = '{}'", world.id(channel));
    world.instances.database.change(&damage).await;
}

pub(super) async fn repair(kind: Kind, channel: usize, world: &mut World) {
    match kind {
        // The next event repairs the value.
        Kind::HeldBackDamaged => {
            world.quiet.remove(&channel);
        }
        Kind::CursorsDamaged => {
            let repair = format!(
                "begin; set local session_replication_role = replica; \
                 update channeld.entries set value = substring(value from 2) \
                 where channel_id = '{}' and kind = 'cursors' and get_byte(value, 0) = 255; commit",
                world.id(channel)
            );
            world.instances.database.change(&repair).await;
        }
        _ => {}
    }
}

/// Adds an instance with a null among its channels, and a null to the channels of the existing instances.
pub(super) async fn add_null_channel(database: &Database) {
    let null = "update channeld.instances set channels = array_append(channels, null); \
                insert into channeld.instances (id, name, heartbeat, lease, configuration, channels) values \
                (gen_random_uuid(), 'odd', clock_timestamp(), interval '1 hour', '\\x01', array[null::uuid])";
    database.change(null).await;
}

pub(super) async fn remove_null_channel(database: &Database) {
    let repair = "delete from channeld.instances where name = 'odd'; \
                  update channeld.instances set channels = array_remove(channels, null)";
    database.change(repair).await;
}

/// The number of unknown entries, and of damaged values.
pub(super) async fn left(database: &Database) -> (i64, i64) {
    let unknown =
        "select count(*) from channeld.entries where kind like 'of-tomorrow-%' and key = '\\x01' and value = '\\x02'";
    let damaged = format!(
        "select (select count(*) from channeld.channels where held_back = {DAMAGE}) \
         + (select count(*) from channeld.entries where kind = 'cursors' and get_byte(value, 0) = 255)"
    );
    (database.number(unknown).await, database.number(&damaged).await)
}
