//! Tests the audit that other tests rely on: it finds each breach, and does not report a takeover.

use crate::support::Database;

const CHANNEL: &str = "00000000-0000-0000-0000-000000000007";

/// A commit by `owner` under `epoch` that makes the version of the channel `version`.
fn commit(owner: u8, epoch: u8, version: u8, cursor: &str) -> String {
    format!(
        "update channeld.channels set owner = '00000000-0000-0000-0000-00000000000{owner}', epoch = {epoch}, version = {version};
         insert into channeld.entries values ('{CHANNEL}', 'cursors', 'sink', '{cursor}')
         on conflict (channel_id, kind, key) do update set value = excluded.value;"
    )
}

#[tokio::test]
async fn the_audit_finds_each_breach_and_accepts_a_takeover() {
    for (then, found) in [
        (commit(2, 2, 3, "6"), None),
        (commit(1, 1, 3, "4"), Some("the cursor went back")),
        (commit(1, 1, 3, "null"), Some("the cursor went back")),
        ([commit(2, 2, 3, "6"), commit(1, 1, 4, "7")].concat(), Some("an epoch recorded after a later one")),
        (commit(2, 1, 3, "6"), Some("several recording owners")),
    ] {
        let Some(database) = Database::new().await else { return };
        database.watch().await;
        database.change(&format!("insert into channeld.channels (channel_id) values ('{CHANNEL}')")).await;
        database.change(&[commit(1, 1, 1, "null"), commit(1, 1, 2, "5"), then.clone()].concat()).await;
        let breaches = database.breaches().await;
        match found {
            Some(found) => assert!(breaches.iter().any(|breach| breach.contains(found)), "{then}: {breaches:?}"),
            None => assert_eq!(breaches, [] as [String; 0]),
        }
    }
}
