use std::os::unix::fs::MetadataExt;

use super::*;

/// Delivers events 1 to 300. Their rows are only in the log.
async fn three_hundred(sink: &Sqlite) {
    for number in (0..300).step_by(50) {
        deliver(sink, &channel(1), &records(&channel(1), number + 1..=number + 50)).await.unwrap();
    }
}

fn beside(place: &Fixture, suffix: &str) -> std::path::PathBuf {
    super::super::files::beside(&place.settings.path, suffix)
}

#[tokio::test]
async fn an_open_database_that_is_moved_keeps_all_rows() {
    for is_written_afterwards in [true, false] {
        let place = Fixture::new();
        let sink = place.sink();
        three_hundred(&sink).await;
        let moved = place.directory.path().join("moved.db");
        std::fs::rename(&place.settings.path, &moved).unwrap();
        if is_written_afterwards {
            let refused = deliver_after(&sink, &channel(1), Some(offset(300)), &[record(&channel(1), 301)]).await;
            assert!(matches!(refused.unwrap_err().error, SinkError::Displaced(_)), "the new database has no position");
            assert_eq!(place.offsets(), [0_i64; 0]);
        }
        drop(sink);
        assert_eq!(offsets_of(&moved), (1..=300).collect::<Vec<_>>());
        let left = std::fs::read_dir(place.directory.path()).unwrap().count();
        assert_eq!(left, 1 + usize::from(is_written_afterwards), "no log is left");
    }
}

#[tokio::test]
async fn a_moved_database_is_closed_after_its_checkpoint() {
    let place = Fixture::new();
    let sink = place.sink();
    three_hundred(&sink).await;
    let reader = place.reader();
    reader.execute_batch("begin; select count(*) from \"order\"").unwrap();
    deliver(&sink, &channel(1), &[record(&channel(1), 301)]).await.unwrap();
    let moved = place.directory.path().join("moved.db");
    std::fs::rename(&place.settings.path, &moved).unwrap();
    let next = [record(&channel(1), 302)];
    let refused = deliver_after(&sink, &channel(1), Some(offset(301)), &next).await.unwrap_err();
    assert!(refused.error.to_string().contains("another program reads it"), "{refused:?}");
    reader.execute_batch("rollback").unwrap();
    deliver_after(&sink, &channel(1), Some(offset(301)), &next).await.unwrap_err();
    drop(reader);
    assert_eq!(offsets_of(&moved), (1..=301).collect::<Vec<_>>());
}

/// SQLite would use the log of the moved database for the other one, and truncate its index, which the writer has mapped.
#[tokio::test]
async fn a_database_that_replaces_the_open_one_is_read_without_its_log() {
    for call in 0..4 {
        for is_log_empty in [true, false] {
            let place = Fixture::new();
            let sink = place.sink();
            three_hundred(&sink).await;
            if is_log_empty {
                place.until_log_is_empty().await;
            }
            let moved = place.directory.path().join("moved.db");
            let other = place.directory.path().join("other.db");
            place.reader().execute("vacuum into ?1", [other.to_str().unwrap()]).unwrap();
            // Otherwise SQLite would not use the log.
            Connection::open(&other).unwrap().query_row("pragma journal_mode = wal", [], |_| Ok(())).unwrap();
            let mapped = std::fs::File::open(beside(&place, "-shm")).unwrap();
            std::fs::rename(&place.settings.path, &moved).unwrap();
            std::fs::rename(&other, &place.settings.path).unwrap();
            match call {
                0 => drop(sink.position(&lane(&channel(1))).await.unwrap()),
                1 => drop(sink.oldest(channel(1).id).await.unwrap()),
                2 => drop(sink.holds(channel(1).id, &BTreeSet::new()).await.unwrap()),
                _ => drop(sink.probe().await.unwrap()),
            }
            assert_eq!(mapped.metadata().unwrap().nlink(), 0, "call {call}: the log belongs to the moved database");
            deliver_after(&sink, &channel(1), Some(offset(300)), &[record(&channel(1), 301)]).await.unwrap();
            drop(sink);
            assert_eq!((offsets_of(&moved).len(), place.offsets().len()), (300, 301), "call {call}");
        }
    }
}

#[tokio::test]
async fn a_removed_database_leaves_no_wal() {
    let place = Fixture::new();
    let sink = place.sink();
    three_hundred(&sink).await;
    std::fs::remove_file(&place.settings.path).unwrap();
    deliver(&sink, &channel(1), &[record(&channel(1), 301)]).await.unwrap();
    assert_eq!(place.offsets(), [301]);
    place.assert_sound();
}

#[tokio::test]
async fn after_a_crash_a_foreign_wal_is_refused() {
    let place = Fixture::new();
    let sink = place.sink();
    three_hundred(&sink).await;
    let path = &place.settings.path;
    let kept = |suffix: &str| place.directory.path().join(format!("kept{suffix}"));
    place.reader().execute("vacuum into ?1", [kept("-backup").to_str().unwrap()]).unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), 301..=310)).await.unwrap();
    // Keeps the files as a crash would leave them, because closing the database changes or removes them.
    std::fs::copy(path, kept("-main")).unwrap();
    std::fs::copy(beside(&place, "-owner"), kept("-owner")).unwrap();
    std::fs::hard_link(beside(&place, "-wal"), kept("-wal")).unwrap();
    drop(sink);
    std::fs::copy(kept("-main"), path).unwrap();
    let crash = || {
        std::fs::hard_link(kept("-wal"), beside(&place, "-wal")).unwrap();
        std::fs::copy(kept("-owner"), beside(&place, "-owner")).unwrap();
    };
    crash();
    let own = place.directory.path().join("own.db");
    std::fs::rename(path, &own).unwrap();
    let last = [record(&channel(1), 311)];
    // First the log has no main file beside it. Then the log is beside another main file.
    for is_replaced in [false, true] {
        if is_replaced {
            std::fs::copy(kept("-backup"), path).unwrap();
        }
        let refused = place.sink().resume(&recorded(1, 310)).await.unwrap_err();
        assert!(refused.to_string().contains("has rows of another file"), "{refused}");
        let refused = place.sink().probe().await.unwrap_err();
        assert!(refused.to_string().contains("has rows of another file"), "{refused}");
        assert!(std::fs::metadata(beside(&place, "-wal")).unwrap().len() > 0, "the log is kept");
    }
    std::fs::rename(&own, path).unwrap();
    let sink = place.sink();
    deliver(&sink, &channel(1), &last).await.unwrap();
    assert_eq!(place.offsets(), (1..=311).collect::<Vec<_>>());
    place.assert_sound();
}

#[tokio::test]
async fn an_idle_database_is_complete_without_its_wal() {
    let place = Fixture::new();
    let sink = place.sink();
    three_hundred(&sink).await;
    place.until_log_is_empty().await;
    let copied = place.directory.path().join("copied.db");
    std::fs::copy(&place.settings.path, &copied).unwrap();
    assert_eq!(offsets_of(&copied), (1..=300).collect::<Vec<_>>());
    deliver(&sink, &channel(1), &[record(&channel(1), 301)]).await.unwrap();
    assert_eq!(place.offsets().len(), 301);
}

/// How many locks this process has on a file.
fn locks(path: &std::path::Path) -> usize {
    let (process, inode) = (std::process::id().to_string(), std::fs::metadata(path).unwrap().ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let is_ours = |lock: &&str| {
        let words: Vec<_> = lock.split_whitespace().collect();
        words.contains(&"POSIX") && words.contains(&&*process) && lock.contains(&format!(":{inode} "))
    };
    locks.lines().filter(is_ours).count()
}

/// How many descriptors of the database and its log this process has.
fn descriptors(place: &Fixture) -> usize {
    let path = place.settings.path.to_str().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().map_while(Result::ok);
    let targets = open.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with(path)).count()
}

#[tokio::test]
async fn closing_one_of_several_connections_keeps_the_locks_of_the_others() {
    let mut place = Fixture::new();
    place.settings.feed = true;
    let [main, index] = ["", "-shm"].map(|suffix| beside(&place, suffix));
    let held = || (locks(&main) > 0, locks(&index) > 0);
    // The second sink replaces the first one, as after a reload.
    let [one, other] = [place.sink(), place.sink()];
    deliver(&one, &channel(1), &[record(&channel(1), 1)]).await.unwrap();
    deliver(&other, &channel(1), &[record(&channel(1), 2)]).await.unwrap();
    drop(one);
    assert_eq!(held(), (true, true), "after the end of the first sink");
    // Each of these opens and closes a connection.
    let third = place.sink();
    third.probe().await.unwrap();
    third.reopen().await.unwrap();
    deliver(&third, &channel(1), &[record(&channel(1), 3)]).await.unwrap();
    third.feed().unwrap().newest(channel(1).id.0).await.unwrap();
    third.reopen().await.unwrap();
    third.position(&lane(&channel(1))).await.unwrap();
    drop(third);
    assert_eq!(held(), (true, true), "after the end of the third sink");
    let before = descriptors(&place);
    for _ in 0..3 {
        let again = place.sink();
        again.resume(&recorded(1, 3)).await.unwrap();
    }
    assert_eq!(descriptors(&place), before, "the descriptors are shared");
    drop(other);
    assert_eq!(descriptors(&place), 0, "no connection is open");
}
