use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::rules::tests::{advance, at, give_up, offset, quarantine};
use crate::{Change, Commit, CommitError, LeasedLedger, Ledgers, OtherKey, Pause, Pending, Replay, Summary, Value};
use proof::event::EventKey;

mod entries;

const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(7));
const OTHER: ChannelId = ChannelId(Uuid::from_u128(8));

/// An event without an id.
fn event(value: i64) -> EventKey {
    EventKey { offset: offset(value), id: None }
}

fn owe(sink: &str, value: i64) -> Change {
    let event = Pending {
        offset: offset(value),
        event_id: None,
        first_seen: 1,
        received: None,
        appeared: false,
        json: Bytes::from_static(b"{}"),
    };
    Change::Owe { sink: sink.into(), event }
}

struct Fixture {
    directory: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state().join(name)
    }

    /// The state directory. Opening the state creates it.
    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Opens the state. Waits until the previous owner has closed it.
    async fn open(&self) -> Ledgers {
        loop {
            match Sled::open(&self.state()) {
                Err(StateError::InUse { .. }) => tokio::task::yield_now().await,
                Err(StateError::Io { doing, .. }) if doing.ends_with("opening") => tokio::task::yield_now().await,
                opened => return Ledgers::over(Arc::new(opened.unwrap())),
            }
        }
    }

    async fn commit(&self, changes: impl IntoIterator<Item = Change>) {
        let ledgers = self.open().await;
        claim(&ledgers, CHANNEL).await.commit(Commit(changes.into_iter().collect())).await.unwrap();
        ledgers.close().await;
    }

    /// A copy of the files, as a new process would find them. This process still locks the originals.
    fn as_after_the_process(&self) -> Self {
        let copy = Self::new();
        let copied = std::process::Command::new("cp").arg("-a").args([self.state(), copy.state()]).status().unwrap();
        assert!(copied.success());
        copy
    }

    /// The damaged databases that were kept.
    fn kept_aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("sled.damaged-")).collect()
    }
}

async fn claim(ledgers: &Ledgers, channel: ChannelId) -> LeasedLedger {
    ledgers.claim(channel, 1000).await.unwrap().unwrap().0
}

#[tokio::test]
async fn a_commit_survives_a_restart_atomically() {
    let fixture = Fixture::new();
    fixture.commit([owe("a", 3), quarantine(4, b"\xff{"), advance("a", 5)]).await;

    let ledgers = fixture.open().await;
    let claim = claim(&ledgers, CHANNEL).await;
    assert_eq!(claim.ledger().cursor("a"), Some(at(5)));
    assert!(claim.ledger().owed("a").map(|(key, _)| *key).eq([event(3)]));
    assert_eq!(claim.ledger().quarantined()[&event(4)].reason, "malformed");
    assert_eq!(claim.body(Key::Body(event(4))).await.unwrap().unwrap(), &b"\xff{"[..]);
    assert_eq!(claim.ledger().cursor("b"), None);
    assert_eq!(ledgers.store.channels().await.unwrap(), [CHANNEL].into());
}

#[tokio::test]
async fn a_second_process_is_refused_with_the_first_ones_id() {
    let fixture = Fixture::new();
    let _ledgers = fixture.open().await;
    let refused = Sled::open(&fixture.state()).unwrap_err().to_string();
    assert!(refused.contains(&std::process::id().to_string()), "{refused}");
}

#[tokio::test]
async fn a_channel_is_claimed_once_at_a_time() {
    let fixture = Fixture::new();
    let ledgers = fixture.open().await;
    let first = claim(&ledgers, CHANNEL).await;
    assert!(ledgers.try_claim(CHANNEL, 1).await.unwrap().is_none());
    assert!(ledgers.try_claim(OTHER, 1).await.unwrap().is_some());
    drop(first);
    assert!(ledgers.try_claim(CHANNEL, 1).await.unwrap().is_some());
}

#[tokio::test]
async fn a_refused_commit_in_a_group_affects_no_other() {
    let fixture = Fixture::new();
    let ledgers = fixture.open().await;
    let (one, other) = (claim(&ledgers, CHANNEL).await, claim(&ledgers, OTHER).await);
    one.commit(Commit(vec![advance("a", 5)])).await.unwrap();
    let (back, on) =
        tokio::join!(one.commit(Commit(vec![advance("a", 4)])), other.commit(Commit(vec![advance("a", 4)])));
    assert!(matches!(back, Err(CommitError::Refused(_))), "{back:?}");
    on.unwrap();
}

/// Ways to damage a database. sled refuses to open some of them, and opens others as if they were empty.
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
async fn a_damaged_database_loses_no_event_and_counts_lost_evidence() {
    for (damage, spoil) in DAMAGES {
        let fixture = Fixture::new();
        let kept = [quarantine(1, b"{1}"), quarantine(2, b"{2}"), give_up("a", 4)];
        let pause = Pause { since: jiff::Timestamp::UNIX_EPOCH, until: None };
        let pause = Change::Pause { sink: Some("a".into()), pause: Some(pause) };
        let replay = Replay::new(vec!["a".into()], offset(1), offset(2), 7);
        let replay = Change::StartReplay(replay);
        fixture.commit(kept.into_iter().chain([owe("a", 3), advance("a", 5), advance("b", 2), pause, replay])).await;
        spoil(&fixture.path("sled"));

        let ledgers = fixture.open().await;
        let claimed = claim(&ledgers, CHANNEL).await;
        assert_eq!(claimed.ledger().cursor("a"), Some(at(2)), "{damage}: below the pending event");
        assert_eq!(claimed.ledger().cursor("b"), Some(at(2)), "{damage}");
        assert!(claimed.ledger().paused().sinks.contains_key("a"), "{damage}: it does not resume automatically");
        assert_eq!(claimed.ledger().replays()[&1].next, Some(offset(1)), "{damage}: the replay continues");
        let lost = ledgers.store.lost().unwrap();
        assert_eq!((lost.late, lost.quarantined, lost.dead_letters), (1, 2, 1), "{damage}");
        claimed.commit(Commit(vec![advance("a", 6)])).await.unwrap();
        drop(claimed);
        ledgers.close().await;

        let ledgers = fixture.open().await;
        assert_eq!(claim(&ledgers, CHANNEL).await.ledger().cursor("a"), Some(at(6)), "{damage}");
        assert_eq!(ledgers.store.lost(), Some(lost.clone()), "{damage}: the loss is kept until it is acknowledged");
        assert_eq!(ledgers.store.acknowledge_lost().await.unwrap(), Some(lost), "{damage}");
        ledgers.close().await;
        assert_eq!(fixture.open().await.store.lost(), None, "{damage}");
    }
}

/// Regression: after one flipped bit, sled dropped the entries behind this bit without an error.
#[tokio::test]
async fn a_flipped_bit_loses_nothing_silently() {
    let fixture = Fixture::new();
    let quarantined = (1..=20).map(|value| quarantine(value, b"{1}"));
    fixture
        .commit(quarantined.chain((21..=40).map(|value| give_up("a", value))).chain([owe("a", 50), advance("a", 60)]))
        .await;
    let whole = fs::read(fixture.path("sled/db")).unwrap();
    let mirror = fs::read(fixture.path("cursors.json")).unwrap();
    let (mut told, mut unharmed) = (0, 0);
    let written = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for place in (0..written).step_by(written / 40) {
        let mut spoilt = whole.clone();
        spoilt[place] ^= 1;
        fs::write(fixture.path("sled/db"), &spoilt).unwrap();
        fs::write(fixture.path("cursors.json"), &mirror).unwrap();

        let ledgers = fixture.open().await;
        let ledger = claim(&ledgers, CHANNEL).await.ledger().clone();
        let lost = ledgers.store.lost().unwrap_or_default();
        assert_eq!(ledger.quarantined().len() as u64 + lost.quarantined, 20, "byte {place}");
        assert_eq!(ledger.dead_letters().len() as u64 + lost.dead_letters, 20, "byte {place}");
        let owed = ledger.owes("a", &event(50)) || ledger.cursor("a") < Some(at(50));
        assert!(owed && ledger.cursor("a").is_some(), "byte {place}: {:?}", ledger.cursor("a"));
        ledgers.close().await;
        if ledgers_lost(&lost) {
            told += 1;
            let kept = fixture.kept_aside();
            assert_eq!(fs::read(kept[0].join("db")).unwrap(), spoilt, "byte {place}");
            fs::remove_dir_all(&kept[0]).unwrap();
        } else {
            unharmed += 1;
            assert_eq!(fixture.kept_aside(), [] as [PathBuf; 0], "byte {place}");
        }
    }
    assert!(told > 5, "{told} told, {unharmed} unharmed");
}

/// Regression: each start truncated the database again and overwrote the copy. The last start then accepted the rest as
/// the complete database.
#[tokio::test]
async fn failed_starts_keep_the_loss_count_and_the_damaged_database() {
    for (damage, spoil) in DAMAGES {
        let mut fixture = Fixture::new();
        fixture.commit([quarantine(1, b"{1}"), owe("a", 3), advance("a", 5)]).await;
        spoil(&fixture.path("sled"));
        let found = fs::read(fixture.path("sled/db")).ok();
        for _ in 0..2 {
            fs::create_dir(fixture.path("cursors.json.new")).unwrap();
            assert!(matches!(Sled::open(&fixture.state()), Err(StateError::Io { .. })), "{damage}");
            fixture = fixture.as_after_the_process();
            fs::remove_dir(fixture.path("cursors.json.new")).unwrap();
        }
        let ledgers = fixture.open().await;
        assert_eq!(claim(&ledgers, CHANNEL).await.ledger().cursor("a"), Some(at(2)), "{damage}");
        let lost = ledgers.store.lost().unwrap();
        assert_eq!((lost.late, lost.quarantined), (1, 1), "{damage}");
        if found.is_some() {
            let kept = fixture.kept_aside();
            assert_eq!(fs::read(kept[0].join("db")).ok(), found, "{damage}");
        }
    }
}

/// The mirror is older than the database if the daemon was killed between the two writes.
#[tokio::test]
async fn losses_in_a_database_newer_than_the_mirror_are_noticed() {
    let fixture = Fixture::new();
    fixture.commit([quarantine(1, b"{1}"), advance("a", 2)]).await;
    let older = fs::read(fixture.path("cursors.json")).unwrap();
    fixture.commit([quarantine(3, b"{3}"), owe("a", 4), advance("a", 5)]).await;
    for mirror in [Some(older), None] {
        let fixture = fixture.as_after_the_process();
        let database = Database::open(&fixture.path("sled")).unwrap();
        let changes = [Key::Quarantined(event(1)), Key::Late(event(4))].map(|key| (key, None)).into();
        database.apply(&[(Lease::for_ever(CHANNEL), Effects { changes, summary: Summary::default() })]).unwrap();
        drop(database);
        fs::remove_file(fixture.path("cursors.json")).unwrap();
        if let Some(older) = mirror {
            fs::write(fixture.path("cursors.json"), older).unwrap();
        }
        let ledgers = fixture.open().await;
        let lost = ledgers.store.lost().unwrap();
        assert_eq!((lost.late, lost.quarantined, lost.dead_letters), (1, 1, 0));
        assert_eq!(claim(&ledgers, CHANNEL).await.ledger().cursor("a"), Some(at(3)), "below the pending event");
    }
}

#[test]
fn a_database_that_makes_sled_panic_is_treated_as_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let caught = database.caught(|_| -> Result<(), _> { panic!("as sled does") });
    assert!(matches!(caught, Err(StateError::DamagedDatabase(_))), "{caught:?}");
}

fn ledgers_lost(lost: &LostEntries) -> bool {
    lost.kept.is_some()
}

#[tokio::test]
async fn entries_of_an_unknown_kind_survive_commits_and_restarts() {
    let fixture = Fixture::new();
    let other = Key::Other(OtherKey { kind: "of-tomorrow".into(), key: Bytes::from_static(b"key") });
    let ledgers = fixture.open().await;
    let effects = Summary::default().effects(vec![(other.clone(), Some(Bytes::from_static(b"value")))]);
    let outcomes = ledgers.store.commit(Arc::new(vec![(Lease::for_ever(CHANNEL), effects)])).await;
    assert!(matches!(outcomes[..], [CommitOutcome::Ok]), "{outcomes:?}");
    ledgers.close().await;
    fixture.commit([advance("a", 1)]).await;

    let ledgers = fixture.open().await;
    let entries = ledgers.store.entries(CHANNEL).await.unwrap();
    assert_eq!(entries.get(&other), Some(&Value::Bytes(Bytes::from_static(b"value"))));
    assert_eq!(ledgers.store.body(CHANNEL, other).await.unwrap().unwrap(), &b"value"[..]);
}

#[tokio::test]
async fn without_a_mirror_a_damaged_database_is_an_error() {
    let fixture = Fixture::new();
    fixture.commit([advance("a", 1)]).await;
    not_a_file(&fixture.path("sled/db"));
    fs::remove_file(fixture.path("cursors.json")).unwrap();
    let refused = Sled::open(&fixture.state()).unwrap_err().to_string();
    assert!(refused.contains("no readable cursors.json"), "{refused}");
}

/// The older database can contain the same number of pending events as the newest one, but different events.
#[tokio::test]
async fn missing_newest_commits_lose_no_pending_event() {
    let fixture = Fixture::new();
    fixture.commit([owe("a", 3), advance("a", 5)]).await;
    let older = fs::read(fixture.path("sled/db")).unwrap();
    let settle = Change::Settle { sink: "a".into(), key: event(3) };
    fixture.commit([settle, owe("a", 7), advance("a", 8)]).await;
    fs::write(fixture.path("sled/db"), older).unwrap();

    let ledgers = fixture.open().await;
    assert_eq!(claim(&ledgers, CHANNEL).await.ledger().cursor("a"), Some(at(6)), "below the pending event");
    assert!(ledgers.store.lost().is_some());
}

#[tokio::test]
async fn without_a_database_a_torn_mirror_refuses_each_start() {
    let fixture = Fixture::new();
    fixture.commit([advance("a", 1)]).await;
    fs::remove_dir_all(fixture.path("sled")).unwrap();
    fs::write(fixture.path("cursors.json"), "{torn").unwrap();
    for start in 1..=2 {
        let refused = Sled::open(&fixture.state()).unwrap_err();
        assert!(matches!(refused, StateError::Damaged(_)), "start {start}: {refused:?}");
    }
}

#[tokio::test]
async fn losses_stay_known_if_the_acknowledgement_cannot_be_written() {
    let fixture = Fixture::new();
    fixture.commit([quarantine(1, b"{1}"), advance("a", 1)]).await;
    fs::remove_dir_all(fixture.path("sled")).unwrap();
    let ledgers = fixture.open().await;
    fs::create_dir(fixture.path("cursors.json.new")).unwrap();
    assert!(matches!(ledgers.store.acknowledge_lost().await, Err(StateError::Io { .. })));
    assert_eq!(ledgers.store.lost().map(|lost| lost.quarantined), Some(1));
}

impl Fixture {
    fn bodies(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path("sled/bodies")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

#[tokio::test]
async fn a_large_event_is_stored_in_its_own_file() {
    let (fixture, small): (_, &'static [u8]) = (Fixture::new(), b"{}");
    let large: &'static [u8] = vec![b'x'; 3 << 20].leak();
    fixture.commit([quarantine(1, large), quarantine(2, large), quarantine(3, small)]).await;
    assert_eq!(fixture.bodies().len(), 2);
    let ledgers = fixture.open().await;
    for (value, body) in [(1, large), (2, large), (3, small)] {
        assert_eq!(ledgers.store.body(CHANNEL, Key::Body(event(value))).await.unwrap().unwrap(), body);
    }
    assert_eq!(claim(&ledgers, CHANNEL).await.ledger().quarantine_room().bytes, 2 * (3 << 20) + 2);
    ledgers.close().await;

    fixture.commit([Change::DropQuarantined(event(1))]).await;
    assert_eq!(fixture.bodies().len(), 1);
    fixture.commit([Change::DropQuarantined(event(2)), quarantine(2, small)]).await;
    assert_eq!(fixture.bodies().len(), 0);
    fixture.commit([Change::DropQuarantined(event(2)), quarantine(2, large)]).await;
    let ledgers = fixture.open().await;
    assert_eq!(ledgers.store.body(CHANNEL, Key::Body(event(2))).await.unwrap().unwrap(), large);
}

#[tokio::test]
async fn uncommitted_large_events_are_deleted_at_the_next_start() {
    let fixture = Fixture::new();
    fixture.commit([quarantine(1, vec![b'x'; 10_000].leak())]).await;
    fs::write(fixture.path("sled/bodies/json-01.new"), "{").unwrap();
    fs::write(fixture.path("sled/bodies/json-00"), "{}").unwrap();
    fixture.open().await.close().await;
    assert_eq!(fixture.bodies().len(), 1);
}

#[tokio::test]
async fn a_large_event_whose_file_is_damaged_is_counted_as_lost() {
    for damage in [|path: &Path| fs::remove_file(path).unwrap(), |path: &Path| fs::write(path, "{").unwrap()] {
        let fixture = Fixture::new();
        fixture.commit([quarantine(1, vec![b'x'; 10_000].leak()), quarantine(2, b"{}"), advance("a", 5)]).await;
        damage(&fixture.bodies()[0]);
        let ledgers = fixture.open().await;
        assert_eq!(ledgers.store.lost().unwrap().quarantined, 1);
        let claim = claim(&ledgers, CHANNEL).await;
        assert!(claim.ledger().quarantined().keys().eq([&event(2)]));
    }
}

#[tokio::test]
async fn after_a_failed_write_nothing_more_is_written() {
    let fixture = Fixture::new();
    let ledgers = fixture.open().await;
    let claim = claim(&ledgers, CHANNEL).await;
    claim.commit(Commit(vec![advance("a", 5)])).await.unwrap();
    let mirror = || fs::read_to_string(fixture.path("cursors.json")).unwrap();
    let before = mirror();
    fs::rename(fixture.path("sled/blobs"), fixture.path("sled/aside")).unwrap();
    let failed = claim.commit(Commit(vec![advance("a", 6)])).await;
    assert!(matches!(failed, Err(CommitError::State(StateError::Io { .. }))), "{failed:?}");
    fs::rename(fixture.path("sled/aside"), fixture.path("sled/blobs")).unwrap();
    let failed = claim.commit(Commit(vec![advance("a", 7)])).await;
    assert!(matches!(failed, Err(CommitError::State(StateError::Io { .. }))), "only a restart helps");
    assert_eq!(mirror(), before, "the mirror is never ahead of the database");
}

#[tokio::test]
async fn the_mirrors_size_depends_on_lanes_and_not_on_pending_events() {
    let fixture = Fixture::new();
    fixture.commit([owe("a", 1), advance("a", 1)]).await;
    let few = fs::metadata(fixture.path("cursors.json")).unwrap().len();
    fixture.commit((2..=5_000).map(|value| owe("a", value)).chain([advance("a", 5_000)])).await;
    let many = fs::metadata(fixture.path("cursors.json")).unwrap().len();
    assert!(many <= few + 20, "{few} bytes with one pending event, {many} with 5,000");
}

/// Each problem with the directory gives the operator its own error message.
#[tokio::test]
async fn a_directory_open_to_others_is_refused_before_opening() {
    let refused = |fixture: &Fixture| Sled::open(&fixture.state()).unwrap_err().to_string();

    let fixture = Fixture::new();
    fixture.commit([advance("a", 1)]).await;
    fs::set_permissions(fixture.state(), fs::Permissions::from_mode(0o750)).unwrap();
    assert!(refused(&fixture).contains("chmod 700"), "{}", refused(&fixture));

    for name in ["lock", "cursors.json", "cursors.json.new", "sled", "sled/db"] {
        let (fixture, elsewhere) = (Fixture::new(), tempfile::tempdir().unwrap());
        fixture.commit([advance("a", 1)]).await;
        let target = elsewhere.path().join("target");
        let path = fixture.path(name);
        if path.exists() {
            fs::rename(&path, &target).unwrap();
        }
        symlink(&target, &path).unwrap();
        assert!(refused(&fixture).contains("is a symbolic link"), "{name}: {}", refused(&fixture));
    }
    if rustix::process::geteuid().is_root() {
        let fixture = Fixture::new();
        fixture.commit([advance("a", 1)]).await;
        std::os::unix::fs::chown(fixture.state(), Some(12_345), None).unwrap();
        assert!(refused(&fixture).contains("belongs to user 12345"), "{}", refused(&fixture));
    }
}

#[tokio::test]
async fn a_removed_directory_is_noticed() {
    let fixture = Fixture::new();
    let sled = Sled::open(&fixture.state()).unwrap();
    sled.check().await.unwrap();
    let elsewhere = fixture.state().with_extension("elsewhere");
    fs::rename(fixture.state(), &elsewhere).unwrap();
    assert!(sled.check().await.unwrap_err().to_string().contains("is gone"));
    fs::create_dir(fixture.state()).unwrap();
    assert!(sled.check().await.unwrap_err().to_string().contains("is gone"), "a new directory does not count");
    fs::remove_dir(fixture.state()).unwrap();
    fs::rename(&elsewhere, fixture.state()).unwrap();
    sled.check().await.unwrap();
}

#[tokio::test]
async fn the_mirror_is_replaced_atomically_and_private() {
    let fixture = Fixture::new();
    fixture.commit([advance("a", 1)]).await;
    // The leftovers of a killed process. They are longer than the next mirror, so a remainder of them would be visible.
    fs::write(fixture.path("cursors.json.new"), "{torn".repeat(1000)).unwrap();
    fixture.commit([advance("a", 2)]).await;
    let text = fs::read_to_string(fixture.path("cursors.json")).unwrap();
    let mirror: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(mirror["channels"][CHANNEL.to_string()]["cursors"]["a"], 2);
    assert!(!fixture.path("cursors.json.new").exists());
    let mode = fs::metadata(fixture.path("cursors.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
