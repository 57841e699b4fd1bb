use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;

fn lane(sink: &str) -> LaneKey {
    LaneKey { channel: ChannelId(Uuid::from_u128(7)), sink: sink.into() }
}

fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap()
}

fn at(value: i64) -> Cursor {
    Cursor { through: Some(offset(value)) }
}

fn moved(sink: &str, to: i64) -> Commit {
    Commit { cursor: Some((lane(sink), at(to))), ..Commit::default() }
}

fn pending(value: i64) -> Pending {
    let event_id = EventId(Uuid::from_u128(u128::try_from(value).unwrap()));
    Pending {
        offset: offset(value),
        event_id: Some(event_id),
        first_seen: 1_700_000_000,
        json: Bytes::from_static(b"{}"),
    }
}

fn evidence(value: i64, json: &'static [u8]) -> Evidence {
    let facts = Quarantined {
        offset: offset(value),
        event_id: None,
        reason: "malformed".to_owned(),
        detail: "`headers` is missing".to_owned(),
        at: 1_700_000_000,
    };
    Evidence { facts, json: Bytes::from_static(json) }
}

struct Fixture {
    directory: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> State {
        State::open(self.directory.path()).unwrap()
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("sled")
    }
}

#[tokio::test]
async fn a_commit_is_there_after_a_restart_as_a_whole() {
    let fixture = Fixture::new();
    let state = fixture.open();
    let commit = Commit {
        pending: vec![(lane("a"), pending(3))],
        quarantined: vec![(lane("a").channel, evidence(4, b"\xff{"))],
        ..moved("a", 5)
    };
    state.commit(commit).await.unwrap();
    drop(state);

    let state = fixture.open();
    let found = state.lane(&lane("a")).unwrap();
    assert_eq!(found, LaneState { cursor: Some(at(5)), owed: [offset(3)].into() });
    assert_eq!(state.quarantined(lane("a").channel).unwrap()[&offset(4)].reason, "malformed");
    assert_eq!(state.json(lane("a").channel, offset(4)).unwrap().unwrap(), Bytes::from_static(b"\xff{"));
    assert_eq!(state.lane(&lane("b")).unwrap(), LaneState::default());
}

#[tokio::test]
async fn a_late_event_is_owed_to_each_lane_that_passed_it_until_each_has_it() {
    let fixture = Fixture::new();
    let state = fixture.open();
    for sink in ["a", "b"] {
        let commit = Commit { pending: vec![(lane(sink), pending(3))], ..moved(sink, 3) };
        state.commit(commit).await.unwrap();
    }
    let settled = |sink: &str| Commit { settled: vec![(lane(sink), offset(3))], ..Commit::default() };

    state.commit(settled("a")).await.unwrap();
    assert_eq!(state.late(lane("a").channel).unwrap()[&offset(3)].owed, ["b".to_owned()].into());

    state.commit(settled("b")).await.unwrap();
    assert!(state.late(lane("a").channel).unwrap().is_empty());
    assert_eq!(state.json(lane("a").channel, offset(3)).unwrap(), None);
}

#[tokio::test]
async fn a_condemned_event_waits_for_no_proof_any_more() {
    let fixture = Fixture::new();
    let state = fixture.open();
    state.commit(Commit { pending: vec![(lane("a"), pending(3))], ..moved("a", 3) }).await.unwrap();
    let condemned = Commit { quarantined: vec![(lane("a").channel, evidence(3, b"{}"))], ..Commit::default() };
    state.commit(condemned).await.unwrap();

    assert!(state.late(lane("a").channel).unwrap().is_empty());
    assert!(state.json(lane("a").channel, offset(3)).unwrap().is_some());
}

#[tokio::test]
async fn a_cursor_never_goes_back_and_others_in_the_same_group_still_move() {
    let fixture = Fixture::new();
    let state = fixture.open();
    state.commit(moved("a", 5)).await.unwrap();

    let (back, other) = tokio::join!(state.commit(moved("a", 4)), state.commit(moved("b", 4)));

    assert!(matches!(back, Err(StateError::Backwards { .. })), "{back:?}");
    other.unwrap();
    assert_eq!(state.lane(&lane("a")).unwrap().cursor, Some(at(5)));
}

#[tokio::test]
async fn a_second_process_is_refused_and_told_who_holds_the_state() {
    let fixture = Fixture::new();
    let _state = fixture.open();
    let refused = State::open(fixture.directory.path()).unwrap_err().to_string();
    assert!(refused.contains(&std::process::id().to_string()), "{refused}");
}

/// Ways to spoil a database, by what sled makes of them: some it refuses, some it opens as if nothing had been there.
const DAMAGES: [(&str, Spoil); 4] = [
    ("log overwritten", |database| fs::write(database.join("db"), "nonsense".repeat(100_000)).unwrap()),
    ("log emptied", |database| fs::write(database.join("db"), "").unwrap()),
    ("log not a file", |database| not_a_file(&database.join("db"))),
    ("all gone", |database| fs::remove_dir_all(database).unwrap()),
];

type Spoil = fn(&Path);

fn not_a_file(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}

#[tokio::test]
async fn whatever_happens_to_the_database_the_mirror_holds() {
    for (damage, spoil) in DAMAGES {
        let fixture = Fixture::new();
        let state = fixture.open();
        state.commit(Commit { pending: vec![(lane("a"), pending(3))], ..moved("a", 5) }).await.unwrap();
        drop(state);
        spoil(&fixture.database());

        let state = fixture.open();

        let found = state.lane(&lane("a")).unwrap();
        assert_eq!(found, LaneState { cursor: Some(at(5)), owed: [offset(3)].into() }, "{damage}");
        state.commit(moved("a", 6)).await.unwrap();
        drop(state);
        assert_eq!(fixture.open().lane(&lane("a")).unwrap().cursor, Some(at(6)), "{damage}");
    }
}

#[tokio::test]
async fn a_database_that_does_not_open_is_kept_aside() {
    let fixture = Fixture::new();
    drop(fixture.open());
    not_a_file(&fixture.database().join("db"));

    drop(fixture.open());

    let mut names = fs::read_dir(fixture.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.any(|name| name.to_string_lossy().starts_with("sled.damaged-")));
}

#[tokio::test]
async fn without_a_mirror_a_damaged_database_is_an_error_and_not_a_fresh_start() {
    let fixture = Fixture::new();
    drop(fixture.open());
    not_a_file(&fixture.database().join("db"));
    fs::remove_file(fixture.directory.path().join("cursors.json")).unwrap();

    let refused = State::open(fixture.directory.path()).unwrap_err();
    assert!(matches!(refused, StateError::Lost { .. }), "{refused:?}");
}

#[tokio::test]
async fn evidence_too_large_for_the_log_survives_too() {
    let fixture = Fixture::new();
    let state = fixture.open();
    let large: &'static [u8] = vec![b'x'; 3 << 20].leak();
    let condemned = Commit { quarantined: vec![(lane("a").channel, evidence(1, large))], ..Commit::default() };
    state.commit(condemned).await.unwrap();
    assert!(fs::read_dir(fixture.database().join("blobs")).unwrap().count() > 0, "it is not a blob");
    drop(state);

    assert_eq!(fixture.open().json(lane("a").channel, offset(1)).unwrap().unwrap(), large);
}

#[tokio::test]
async fn after_a_write_that_failed_nothing_more_is_written() {
    let fixture = Fixture::new();
    let state = fixture.open();
    state.commit(moved("a", 5)).await.unwrap();
    let mirror = || fs::read_to_string(fixture.directory.path().join("cursors.json")).unwrap();
    let before = mirror();
    fs::rename(fixture.database().join("blobs"), fixture.database().join("aside")).unwrap();

    assert!(matches!(state.commit(moved("a", 6)).await, Err(StateError::Io { .. })));
    fs::rename(fixture.database().join("aside"), fixture.database().join("blobs")).unwrap();

    assert!(matches!(state.commit(moved("a", 7)).await, Err(StateError::Io { .. })), "it heals by a restart only");
    assert_eq!(mirror(), before, "the mirror is never ahead of the database");
}

#[tokio::test]
async fn evidence_survives_a_late_proof_for_another_lane() {
    let fixture = Fixture::new();
    let state = fixture.open();
    let condemned = Commit { quarantined: vec![(lane("a").channel, evidence(3, b"{1}"))], ..Commit::default() };
    state.commit(condemned).await.unwrap();
    state.commit(Commit { pending: vec![(lane("b"), pending(3))], ..moved("b", 3) }).await.unwrap();

    state.commit(Commit { settled: vec![(lane("b"), offset(3))], ..Commit::default() }).await.unwrap();

    assert!(state.json(lane("a").channel, offset(3)).unwrap().is_some());
}

async fn with_quarantined(fixture: &Fixture, value: i64) -> State {
    let state = fixture.open();
    let condemned = Commit { quarantined: vec![(lane("a").channel, evidence(value, b"{1}"))], ..Commit::default() };
    state.commit(condemned).await.unwrap();
    state
}

fn acquitted(value: i64) -> Commit {
    let acquitted = Acquitted {
        offset: offset(value),
        event_id: None,
        since: 1_700_000_000,
        sinks: ["a", "b"].map(Arc::from).into(),
    };
    Commit { acquitted: vec![(lane("a").channel, acquitted)], ..Commit::default() }
}

#[tokio::test]
async fn what_leaves_the_quarantine_is_owed_to_those_who_passed_it_and_keeps_its_bytes() {
    let fixture = Fixture::new();
    let state = with_quarantined(&fixture, 3).await;
    state.commit(moved("a", 3)).await.unwrap();
    state.commit(moved("b", 2)).await.unwrap();

    state.commit(acquitted(3)).await.unwrap();
    drop(state);

    let state = fixture.open();
    assert!(state.quarantined(lane("a").channel).unwrap().is_empty());
    assert!(state.owes(&lane("a"), offset(3)).unwrap() && !state.owes(&lane("b"), offset(3)).unwrap());
    assert_eq!(state.json(lane("a").channel, offset(3)).unwrap().unwrap(), Bytes::from_static(b"{1}"));
    state.commit(Commit { settled: vec![(lane("a"), offset(3))], ..Commit::default() }).await.unwrap();
    assert_eq!(state.json(lane("a").channel, offset(3)).unwrap(), None);
}

#[tokio::test]
async fn what_nobody_has_passed_does_not_leave_the_quarantine() {
    let fixture = Fixture::new();
    let state = with_quarantined(&fixture, 3).await;
    state.commit(moved("a", 2)).await.unwrap();
    state.commit(acquitted(3)).await.unwrap();
    assert!(state.quarantined(lane("a").channel).unwrap().contains_key(&offset(3)));
}

#[tokio::test]
async fn dropped_evidence_takes_its_bytes_with_it_unless_somebody_is_owed_them() {
    let fixture = Fixture::new();
    let state = with_quarantined(&fixture, 3).await;
    let dropped = || Commit { dropped: vec![(lane("a").channel, offset(3))], ..Commit::default() };
    state.commit(Commit { pending: vec![(lane("b"), pending(3))], ..moved("b", 3) }).await.unwrap();
    state.commit(dropped()).await.unwrap();
    assert!(state.quarantined(lane("a").channel).unwrap().is_empty());
    assert!(state.json(lane("a").channel, offset(3)).unwrap().is_some());
    drop(state);

    let fixture = Fixture::new();
    let state = with_quarantined(&fixture, 3).await;
    state.commit(dropped()).await.unwrap();
    assert_eq!(state.json(lane("a").channel, offset(3)).unwrap(), None);
}

#[tokio::test]
async fn an_operator_may_put_a_cursor_back_and_it_stays_there() {
    let fixture = Fixture::new();
    let state = fixture.open();
    state.commit(moved("a", 5)).await.unwrap();
    state.commit(Commit { set: vec![(lane("a"), at(2))], ..Commit::default() }).await.unwrap();
    drop(state);
    assert_eq!(fixture.open().lane(&lane("a")).unwrap().cursor, Some(at(2)));
}

#[tokio::test]
async fn what_the_quarantine_holds_is_counted_through_all_that_changes_it_and_at_opening() {
    let fixture = Fixture::new();
    let state = with_quarantined(&fixture, 3).await;
    let held = |state: &State| *state.held().borrow();
    let condemned = |value, json| {
        let quarantined = vec![(lane("a").channel, evidence(value, json))];
        Commit { quarantined, ..Commit::default() }
    };
    state.commit(condemned(4, b"{22}")).await.unwrap();
    assert_eq!(held(&state), Held { events: 2, bytes: 7 });
    state.commit(condemned(4, b"{333}")).await.unwrap();
    assert_eq!(held(&state), Held { events: 2, bytes: 8 }, "the same event once more");
    state.commit(Commit { pending: vec![(lane("b"), pending(4))], ..moved("b", 4) }).await.unwrap();
    assert_eq!(state.json(lane("a").channel, offset(4)).unwrap().unwrap(), Bytes::from_static(b"{333}"));
    drop(state);

    let state = fixture.open();
    assert_eq!(held(&state), Held { events: 2, bytes: 8 });
    state.commit(moved("a", 3)).await.unwrap();
    state.commit(acquitted(3)).await.unwrap();
    assert_eq!(held(&state), Held { events: 1, bytes: 5 });
    let dropped = Commit { dropped: vec![(lane("a").channel, offset(4))], ..Commit::default() };
    state.commit(dropped).await.unwrap();
    assert_eq!(held(&state), Held::default());
}
