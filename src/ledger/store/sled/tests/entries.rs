//! Entries of the database that are unreadable, missing or old.

use super::*;
use crate::Confirmed;

impl Fixture {
    /// Changes a table without channeld.
    fn change(&self, table: &str, change: impl FnOnce(&::sled::Tree)) {
        loop {
            // The previous owner may not have closed the database yet.
            if let Ok(database) = ::sled::open(self.path("sled")) {
                change(&database.open_tree(table).unwrap());
                database.flush().unwrap();
                return;
            }
        }
    }
}

/// Another version of channeld may have written the entry.
#[tokio::test]
async fn an_unreadable_entry_is_kept_and_stops_only_its_channel() {
    let value = br#"{"of":"another version"}"#;
    let cases = [
        ("late", &b"of another version"[..], &b"{}"[..]),
        ("contradictions", b"", value),
        ("confirmed", b"a", br#"{"position":"five"}"#),
        ("cursors", b"a", value),
        ("quarantine", &1_i64.to_be_bytes(), value),
        ("replays", &1_u64.to_be_bytes(), value),
    ];
    for (table, key, value) in cases {
        let fixture = Fixture::new();
        fixture.commit([quarantine(1, b"{1}"), advance("a", 1)]).await;
        let (key, mut before) = ([CHANNEL.0.as_bytes(), key].concat(), None);
        fixture.change(table, |tree| before = tree.insert(&key, value).unwrap());
        for _ in 0..2 {
            let ledgers = fixture.open().await;
            let refused = ledgers.claim(CHANNEL, 0).await.unwrap_err();
            assert!(matches!(&refused, StateError::UnreadableEntry { kind, .. } if kind == table), "{refused:?}");
            claim(&ledgers, OTHER).await;
            assert_eq!(ledgers.store.lost(), None, "{table}");
            ledgers.close().await;
        }
        let mut after = None;
        fixture.change(table, |tree| {
            after = match before {
                Some(before) => tree.insert(&key, before).unwrap(),
                None => tree.remove(&key).unwrap(),
            };
        });
        assert_eq!(after.as_deref(), Some(value), "{table}");
        let ledgers = fixture.open().await;
        let ledger = claim(&ledgers, CHANNEL).await.ledger().clone();
        assert_eq!((ledger.cursor("a"), ledger.quarantined().len()), (Some(at(1)), 1), "{table}");
    }
}

fn confirm(sink: &str, value: i64) -> Change {
    let confirmed = Confirmed { position: Some(offset(value)), last: Some(event(value)) };
    Change::Confirm { sink: sink.into(), confirmed }
}

/// Otherwise a sink that has lost data together with the database would not be noticed.
#[tokio::test]
async fn positions_that_sinks_confirmed_survive_a_damaged_database() {
    for (damage, spoil) in DAMAGES {
        let fixture = Fixture::new();
        fixture.commit([advance("a", 5), confirm("a", 4), advance("b", 9), confirm("b", 9), owe("b", 7)]).await;
        spoil(&fixture.path("sled"));
        let ledgers = fixture.open().await;
        let ledger = claim(&ledgers, CHANNEL).await.ledger().clone();
        let confirmed = Confirmed { position: Some(offset(4)), last: Some(event(4)) };
        assert_eq!((ledger.cursor("a"), ledger.confirmed("a")), (Some(at(5)), Some(confirmed)), "{damage}");
        // The sink compares everything above its new cursor.
        assert_eq!((ledger.cursor("b"), ledger.confirmed("b")), (Some(at(6)), None), "{damage}");
    }
}

#[tokio::test]
async fn a_confirmed_position_that_is_older_than_the_mirror_or_missing_is_restored() {
    let fixture = Fixture::new();
    fixture.commit([advance("a", 5), confirm("a", 5)]).await;
    let older = fs::read(fixture.path("sled/db")).unwrap();
    fixture.commit([advance("a", 8), confirm("a", 8)]).await;
    fs::write(fixture.path("sled/db"), older).unwrap();
    fixture.commit([]).await;
    let key = [CHANNEL.0.as_bytes(), &b"a"[..]].concat();
    for is_missing in [false, true] {
        if is_missing {
            fixture.change("confirmed", |tree| assert!(tree.remove(&key).unwrap().is_some()));
        }
        let ledgers = fixture.open().await;
        let confirmed = claim(&ledgers, CHANNEL).await.ledger().confirmed("a");
        assert_eq!(confirmed.and_then(|confirmed| confirmed.position), Some(offset(8)), "missing: {is_missing}");
        ledgers.close().await;
    }
}

#[tokio::test]
async fn a_mirror_without_confirmed_positions_is_not_behind_and_restores_the_cursors() {
    let fixture = Fixture::new();
    fixture.commit([advance("a", 5), confirm("a", 5)]).await;
    let mut mirror = mirror::Mirror::read(&fixture.state()).unwrap().unwrap();
    mirror.channels.get_mut(&CHANNEL).unwrap().confirmed.clear();
    for is_damaged in [false, true] {
        mirror.clone().into_text().write(&fixture.state()).unwrap();
        if is_damaged {
            fs::remove_dir_all(fixture.path("sled")).unwrap();
        }
        let ledgers = fixture.open().await;
        let claimed = claim(&ledgers, CHANNEL).await;
        assert_eq!(claimed.ledger().cursor("a"), Some(at(5)));
        assert_eq!(claimed.ledger().confirmed("a").is_none(), is_damaged);
        assert_eq!(ledgers.store.lost().is_some(), is_damaged);
        drop(claimed);
        ledgers.close().await;
    }
}
