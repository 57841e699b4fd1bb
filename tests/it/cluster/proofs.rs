//! The proofs that instances store in the database: which channel owns a proof, which proofs are remembered, and
//! whether they survive a crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ledger::store::{PostgresSettings, Store};
use ledger::{Digest, PROOFS, PROOFS_OF_A_CHANNEL, Proof};
use proof::event::{ChannelId, Offset};
use uuid::Uuid;

use super::until;
use crate::support::{Database, Server, skip};

/// The number of proofs in one statement.
const AT_ONCE: u32 = 1_000;

fn store(database: &Database) -> Arc<dyn Store> {
    let settings = PostgresSettings {
        server: database.url().parse().unwrap(),
        schema: "channeld".to_owned(),
        instance: "one".to_owned(),
        lease: Duration::from_secs(2),
    };
    settings.open(None).unwrap()
}

/// Proofs whose digests and offsets are derived from these numbers.
fn proofs(numbers: impl Iterator<Item = u32>) -> Vec<Proof> {
    let digest = |number: u32| -> Digest { u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes() };
    numbers.map(|number| Proof { digest: digest(number), offset: Offset::new(number.into()).unwrap() }).collect()
}

#[tokio::test]
async fn each_proof_shown_by_two_channels_at_once_belongs_to_one() {
    let Some(database) = Database::new().await else { return };
    let stores = [store(&database), store(&database)];
    let channels = [1, 2].map(|id| ChannelId(Uuid::from_u128(id)));
    for round in 0..50 {
        let all = proofs(round * 100..(round + 1) * 100);
        let backwards: Vec<_> = all.iter().rev().copied().collect();
        let (one, other) = tokio::join!(stores[0].show(channels[0], &all), stores[1].show(channels[1], &backwards));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.len() + other.len(), all.len(), "each proof belongs to exactly one channel");
        assert!(one.iter().all(|(_, place)| place.channel_id == channels[1]));
    }
    let twice = proofs([7, 7, 7].into_iter());
    let again = stores[1].show(ChannelId(Uuid::from_u128(3)), &twice).await.unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1.offset.get(), 7);
}

#[tokio::test]
async fn a_recorded_proof_survives_a_kill_of_the_server() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    let database = Database::on(Arc::new(server)).await;
    // Delay background flushes, so that a kill loses every commit that did not wait for its own flush.
    for setting in ["wal_writer_delay = '10s'", "wal_writer_flush_after = '1GB'"] {
        database.change(&format!("alter system set {setting}")).await;
    }
    database.change("select pg_reload_conf()").await;
    let (before, shown) = (store(&database), proofs(0..50));
    let [first, second] = [1, 2].map(|id| ChannelId(Uuid::from_u128(id)));
    assert!(before.show(first, &shown).await.unwrap().is_empty());
    database.server.kill();
    database.server.run();
    let known = store(&database).show(second, &shown).await.unwrap();
    assert_eq!(known.len(), shown.len(), "the proofs belong to the channel that showed them before the crash");
}

#[tokio::test]
async fn only_about_the_newest_proofs_of_all_channels_are_remembered() {
    let Some(database) = Database::new().await else { return };
    let (store, channels) = (store(&database), [1, 2].map(|id| ChannelId(Uuid::from_u128(id))));
    let (all, bound) = (u32::try_from(2 * PROOFS).unwrap(), u32::try_from(PROOFS).unwrap());
    show_all(&store, channels[0], 0..all).await;
    let few = format!("select (count(*) < {})::int::bigint from channeld.proofs", bound + bound / 10);
    until(&database, "old proofs are forgotten", &few, &[1]).await;
    let last = proofs(all - bound..all);
    assert_eq!(store.show(channels[1], &last).await.unwrap().len(), PROOFS);
}

#[tokio::test]
async fn a_busy_channel_does_not_evict_the_last_thousand_proofs_of_a_quiet_one() {
    let Some(database) = Database::new().await else { return };
    let store = store(&database);
    let [quiet, busy, third] = [1, 2, 3].map(|id| ChannelId(Uuid::from_u128(id)));
    let (kept, bound) = (u32::try_from(PROOFS_OF_A_CHANNEL).unwrap(), u32::try_from(PROOFS).unwrap());
    show_all(&store, quiet, 0..2 * kept).await;
    show_all(&store, busy, 2 * kept..2 * kept + bound + bound / 5).await;
    let left = format!("select count(*) from channeld.proofs where channel_id = '{quiet}'");
    until(&database, "the quiet channel keeps its share", &left, &[i64::from(kept)]).await;
    let known = store.show(third, &proofs(kept..2 * kept)).await.unwrap();
    assert!(known.len() == PROOFS_OF_A_CHANNEL && known.iter().all(|(_, place)| place.channel_id == quiet));
}

#[tokio::test]
async fn conflicts_that_consume_sequence_numbers_evict_no_proof() {
    let Some(database) = Database::new().await else { return };
    let store = store(&database);
    let [first, second] = [1, 2].map(|id| ChannelId(Uuid::from_u128(id)));
    show_all(&store, first, 0..10_000).await;
    // As if many conflicting inserts had used up sequence numbers.
    database.change("select setval(pg_get_serial_sequence('channeld.proofs', 'number'), 1000000)").await;
    show_all(&store, first, 0..10_000).await;
    show_all(&store, first, 10_000..20_000).await;
    let examined = "select (examined = 0)::int::bigint from channeld.state";
    assert_eq!(database.number(examined).await, 1, "fewer proofs are stored than the limit");
    let known = store.show(second, &proofs(0..20_000)).await.unwrap();
    let offsets: BTreeSet<_> = known.iter().map(|(_, place)| place.offset).collect();
    assert_eq!(offsets.len(), 20_000);
}

async fn show_all(store: &Arc<dyn Store>, channel: ChannelId, numbers: std::ops::Range<u32>) {
    for first in numbers.clone().step_by(AT_ONCE as usize) {
        store.show(channel, &proofs(first..numbers.end.min(first + AT_ONCE))).await.unwrap();
    }
}
