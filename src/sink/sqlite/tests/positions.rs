use super::*;
use crate::{Confirmed, LateDelivery};

/// The record of a lane that has delivered up to `through`.
fn confirmed(through: i64) -> Recorded {
    let confirmed = Confirmed { position: Some(offset(through)), last: None };
    Recorded { confirmed: Some(confirmed), ..recorded(1, through) }
}

fn at(number: i64) -> Position {
    Position::At(Some(offset(number)))
}

async fn resumed(sink: &Sqlite, recorded: &Recorded) -> Position {
    sink.resume(recorded).await.unwrap().position
}

fn displaced(answer: Result<(), Undelivered>) -> String {
    match answer {
        Err(Undelivered { error: SinkError::Displaced(why), .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// Delivers events 1 to 7, and makes a backup after event 3.
async fn seven(place: &Fixture, sink: &Sqlite) -> std::path::PathBuf {
    let backup = place.directory.path().join("backup.db");
    deliver(sink, &channel(1), &records(&channel(1), 1..=3)).await.unwrap();
    place.reader().execute("vacuum into ?1", [backup.to_str().unwrap()]).unwrap();
    for number in 4..=7 {
        deliver(sink, &channel(1), &[record(&channel(1), number)]).await.unwrap();
    }
    backup
}

/// Waits until a new file gets another modification time than the database, because file systems store times with a limited
/// resolution.
async fn until_time_moves(place: &Fixture) {
    let other = place.directory.path().join("now");
    let modified = |path: &std::path::Path| std::fs::metadata(path).unwrap().modified().unwrap();
    loop {
        std::fs::write(&other, "now").unwrap();
        if modified(&other) != modified(&place.settings.path) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Asserts that the next delivery is refused, and that the missing events can be delivered again from the database's
/// position.
async fn assert_noticed(place: &Fixture, sink: &Sqlite) {
    let eighth = [record(&channel(1), 8)];
    let why = displaced(deliver_after(sink, &channel(1), Some(offset(7)), &eighth).await);
    assert!(why.contains("order_progress is at offset 3, expected at offset 7"), "{why}");
    assert_eq!(place.offsets(), [1, 2, 3]);
    assert_eq!(resumed(sink, &confirmed(7)).await, at(3));
    deliver_after(sink, &channel(1), Some(offset(3)), &records(&channel(1), 4..=8)).await.unwrap();
    assert_eq!(place.offsets(), [1, 2, 3, 4, 5, 6, 7, 8]);
    place.assert_sound();
}

#[tokio::test]
async fn an_unconfirmed_lane_sets_the_tables_position() {
    let place = Fixture::new();
    let sink = place.sink();
    assert!(matches!(sink.position(&lane(&channel(1))).await.unwrap(), Position::Missing(_)));
    assert!(!place.settings.path.exists(), "reading a position creates no database");
    assert_eq!(resumed(&sink, &recorded(1, 9)).await, at(9));
    assert_eq!(resumed(&sink, &recorded(1, 4)).await, at(4));
    assert_eq!(sink.position(&lane(&channel(1))).await.unwrap(), at(4));
    let nothing = Recorded { through: None, ..recorded(1, 4) };
    assert_eq!(resumed(&sink, &nothing).await, Position::At(None));
}

#[tokio::test]
async fn a_confirmed_lane_changes_only_the_epoch() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), 1..=3)).await.unwrap();
    for through in [9, 2] {
        let recorded = Recorded { epoch: 7, ..confirmed(through) };
        assert_eq!(resumed(&sink, &recorded).await, at(3));
    }
    assert_eq!(place.numbers("select epoch from order_progress"), [7]);
    let older = sink.resume(&confirmed(3)).await.unwrap_err();
    assert!(matches!(older, SinkError::Overtaken(_)), "{older:?}");
}

#[tokio::test]
async fn a_missing_progress_row_or_table_is_reported_and_not_recreated() {
    let place = Fixture::new();
    let sink = place.sink();
    for change in ["delete from order_progress", "drop table order_progress", "drop table \"order\""] {
        deliver(&sink, &channel(1), &records(&channel(1), 1..=3)).await.unwrap();
        place.reader().execute_batch(change).unwrap();
        let fourth = [record(&channel(1), 4)];
        let refused = deliver_after(&sink, &channel(1), Some(offset(3)), &fourth).await.unwrap_err();
        assert!(refused.delivered == 0 && refused.error.kind() != "refused", "{change}: {refused:?}");
        let missing = Position::Missing("table order_progress has no row for this lane".to_owned());
        assert_eq!(resumed(&sink, &confirmed(3)).await, missing, "{change}");
        let why = displaced(deliver_after(&sink, &channel(1), Some(offset(3)), &fourth).await);
        assert!(why.contains("has no row for this lane, expected at offset 3"), "{change}: {why}");
        assert_eq!(place.numbers("select count(*) from order_progress"), [0], "{change}");
        assert_eq!(sink.position(&lane(&channel(1))).await.unwrap(), missing, "{change}");
        assert!(!place.offsets().contains(&4), "{change}");
    }
}

#[tokio::test]
async fn a_restored_database_reports_its_position() {
    let place = Fixture::new();
    let sink = place.sink();
    let backup = seven(&place, &sink).await;
    drop(sink);
    std::fs::copy(backup, &place.settings.path).unwrap();
    let sink = place.sink();
    assert_eq!(sink.position(&lane(&channel(1))).await.unwrap(), at(3));
    assert_noticed(&place, &sink).await;
}

#[tokio::test]
async fn a_backup_copied_over_the_open_database_is_noticed() {
    for has_log in [true, false] {
        let place = Fixture::new();
        let sink = place.sink();
        let backup = seven(&place, &sink).await;
        if !has_log {
            place.until_log_is_empty().await;
            // The writer answers this request after it has finished the earlier work. The request changes nothing, because
            // the lane has no row.
            let other = Recorded { lane: lane(&channel(9)), ..confirmed(7) };
            assert!(matches!(resumed(&sink, &other).await, Position::Missing(_)));
        }
        until_time_moves(&place).await;
        std::fs::copy(backup, &place.settings.path).unwrap();
        assert_noticed(&place, &sink).await;
    }
}

#[tokio::test]
async fn a_backup_renamed_over_the_open_database_gets_no_foreign_wal() {
    let place = Fixture::new();
    let sink = place.sink();
    let backup = seven(&place, &sink).await;
    let kept = place.directory.path().join("kept.db");
    std::fs::hard_link(&place.settings.path, &kept).unwrap();
    std::fs::rename(backup, &place.settings.path).unwrap();
    assert_noticed(&place, &sink).await;
    assert_eq!(offsets_of(&kept), [1, 2, 3, 4, 5, 6, 7], "the log was written into the file that it belongs to");
}

#[tokio::test]
async fn a_restored_database_names_the_late_deliveries_that_it_lacks() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), [1, 5])).await.unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [2])).await.unwrap();
    let late = [(2, 5), (3, 5), (4, 6)];
    let late = late
        .map(|(number, after)| LateDelivery { event: key(&record(&channel(1), number)), after: Some(offset(after)) });
    for (through, lost) in [(5, &[][..]), (7, &[3, 4])] {
        let resumed = sink.resume(&Recorded { late: late.into(), ..confirmed(through) }).await.unwrap();
        let lost: BTreeSet<_> = lost.iter().map(|&number| key(&record(&channel(1), number))).collect();
        assert_eq!((resumed.position, resumed.lost), (at(5), lost), "{through}");
    }
}
