//! A table in memory. Leases expire only when a test says so.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use crate::table::{
    ChannelPosition, Committed, ConsumerState, FeedError, FeedEvent, FeedPage, FeedPosition, FeedTable, Leased,
    PageSize,
};
use net::tasks::lock;

const NOTHING: PageSize = PageSize { events: 0, bytes: 0 };

const ONE: PageSize = PageSize { events: 1, bytes: 0 };

pub(crate) struct MemoryTable {
    rows: Mutex<BTreeMap<Uuid, Channel>>,
    cursors: Mutex<BTreeMap<(String, Uuid), Cursor>>,
    changes: watch::Sender<u64>,
    newest_queries: AtomicUsize,
    lease_queries: AtomicUsize,
    channel_queries: AtomicUsize,
    is_locked: AtomicBool,
}

#[derive(Default)]
struct Channel {
    newest: i64,
    rows: BTreeMap<i64, StoredRow>,
}

struct StoredRow {
    record: Box<str>,
    delivered: Timestamp,
}

#[derive(Default)]
struct Cursor {
    through: i64,
    lease: Option<(String, i64)>,
    leases: usize,
}

impl Default for MemoryTable {
    fn default() -> Self {
        let changes = watch::Sender::new(0);
        Self {
            rows: Mutex::default(),
            cursors: Mutex::default(),
            changes,
            newest_queries: AtomicUsize::default(),
            lease_queries: AtomicUsize::default(),
            channel_queries: AtomicUsize::default(),
            is_locked: AtomicBool::default(),
        }
    }
}

impl MemoryTable {
    /// Writes this number of rows, and wakes the requests that wait.
    pub(crate) fn deliver(&self, channel: Uuid, events: i64) {
        self.deliver_quietly(channel, events);
        self.changes.send_modify(|change| *change += 1);
    }

    /// Writes this number of rows, and wakes no request.
    pub(crate) fn deliver_quietly(&self, channel: Uuid, events: i64) {
        for _ in 0..events {
            let position = lock(&self.rows).entry(channel).or_default().newest + 1;
            self.write(channel, &format!("{{\"event_id\":\"e{position}\"}}"));
        }
    }

    /// Writes a row with this record, and wakes the requests that wait.
    pub(crate) fn deliver_record(&self, channel: Uuid, record: &str) {
        self.write(channel, record);
        self.changes.send_modify(|change| *change += 1);
    }

    fn write(&self, channel: Uuid, record: &str) {
        let mut channels = lock(&self.rows);
        let channel = channels.entry(channel).or_default();
        channel.newest += 1;
        channel.rows.insert(channel.newest, StoredRow { record: record.into(), delivered: Timestamp::now() });
    }

    /// Deletes the row at this position.
    pub(crate) fn delete(&self, channel: Uuid, position: i64) {
        lock(&self.rows).entry(channel).or_default().rows.remove(&position);
    }

    /// Deletes the rows up to this position.
    pub(crate) fn delete_through(&self, channel: Uuid, through: i64) {
        lock(&self.rows).entry(channel).or_default().rows.retain(|position, _| *position > through);
    }

    /// Lets all leases expire, and wakes the requests that wait.
    pub(crate) fn expire_leases(&self) {
        lock(&self.cursors).values_mut().for_each(|cursor| cursor.lease = None);
        self.changes.send_modify(|change| *change += 1);
    }

    /// Sets whether the table answers no more when all channels are read.
    pub(crate) fn set_locked(&self, is_locked: bool) {
        self.is_locked.store(is_locked, Ordering::Relaxed);
    }

    /// How often the positions of all channels were read.
    pub(crate) fn channel_queries(&self) -> usize {
        self.channel_queries.load(Ordering::Relaxed)
    }

    /// When the first row after a position was delivered.
    fn delivered_after(&self, channel: Uuid, after: i64) -> Option<Timestamp> {
        let channels = lock(&self.rows);
        channels.get(&channel)?.rows.range(after + 1..).next().map(|(_, row)| row.delivered)
    }

    /// How often the positions of a channel were read.
    pub(crate) fn newest_queries(&self) -> usize {
        self.newest_queries.load(Ordering::Relaxed)
    }

    /// How often a lease was requested.
    pub(crate) fn lease_queries(&self) -> usize {
        self.lease_queries.load(Ordering::Relaxed)
    }

    /// Replaces the rows of a channel by this number of rows, and wakes the requests that wait.
    pub(crate) fn restore(&self, channel: Uuid, events: i64) {
        lock(&self.rows).remove(&channel);
        self.deliver(channel, events);
    }

    /// How many requests wait for a change.
    pub(crate) fn waiting(&self) -> usize {
        self.changes.receiver_count()
    }

    fn read(&self, channel: Uuid, after: i64, PageSize { events: limit, bytes: max_bytes }: PageSize) -> FeedPage {
        let channels = lock(&self.rows);
        let Some(channel) = channels.get(&channel) else {
            return FeedPage::default();
        };
        let mut bytes = 0;
        let fits = |event: &FeedEvent| {
            let is_first = bytes == 0;
            bytes += event.record.len();
            is_first || bytes <= max_bytes
        };
        let rows = channel.rows.iter().filter(|(position, _)| **position > after);
        let events = rows.map(|(position, row)| FeedEvent { position: *position, record: row.record.clone() });
        let events = events.take(limit).take_while(fits).collect();
        // As in the tables of sinks: if all rows were deleted, the oldest row is the next one.
        let oldest = channel.rows.keys().next().copied().or((channel.newest > 0).then_some(channel.newest + 1));
        FeedPage::of(after, events, FeedPosition { oldest, newest: channel.newest })
    }
}

#[async_trait]
impl FeedTable for MemoryTable {
    async fn newest(&self, channel: Uuid) -> Result<FeedPosition, FeedError> {
        self.newest_queries.fetch_add(1, Ordering::Relaxed);
        Ok(self.read(channel, 0, NOTHING).position)
    }

    async fn page(&self, channel: Uuid, after: i64, most: PageSize) -> Result<FeedPage, FeedError> {
        Ok(self.read(channel, after, most))
    }

    async fn lease(&self, consumer: &str, channel: Uuid, most: PageSize, valid: Duration) -> Result<Leased, FeedError> {
        self.lease_queries.fetch_add(1, Ordering::Relaxed);
        let mut cursors = lock(&self.cursors);
        let key = (consumer.to_owned(), channel);
        let known = cursors.get(&key);
        if known.is_some_and(|cursor| cursor.lease.is_some()) {
            return Ok(Leased::Held);
        }
        let mut page = self.read(channel, known.map_or(0, |cursor| cursor.through), most);
        if let Some(oldest) = page.gone {
            if known.is_some() {
                return Ok(Leased::Gone { oldest });
            }
            page = self.read(channel, oldest - 1, most);
        }
        let (Some(first), Some(last)) = (page.events.first(), page.events.last()) else {
            return Ok(Leased::Nothing);
        };
        // A consumer without a cursor begins with the oldest event, and has a cursor from its first lease on.
        let new = || Cursor { through: first.position - 1, ..Cursor::default() };
        let cursor = cursors.entry(key).or_insert_with(new);
        cursor.leases += 1;
        let lease = format!("lease-{}", cursor.leases);
        cursor.lease = Some((lease.clone(), last.position));
        Ok(Leased::Events { lease, expires_in: valid, events: page.events })
    }

    async fn commit(&self, consumer: &str, channel: Uuid, lease: &str, through: i64) -> Result<Committed, FeedError> {
        let mut cursors = lock(&self.cursors);
        let cursor = cursors.entry((consumer.to_owned(), channel)).or_default();
        let last = match &cursor.lease {
            Some((own, last)) if own == lease => *last,
            _ => return Ok(Committed::NotHeld),
        };
        if !(cursor.through + 1..=last).contains(&through) {
            return Ok(Committed::Beyond);
        }
        (cursor.through, cursor.lease) = (through, None);
        Ok(Committed::Moved)
    }

    async fn consumers(&self) -> Result<Vec<ConsumerState>, FeedError> {
        let state = |((consumer, channel), cursor): (&(String, Uuid), &Cursor)| ConsumerState {
            consumer: consumer.clone(),
            channel: *channel,
            through: cursor.through,
            leased_until: cursor.lease.is_some().then_some(Timestamp::MAX),
            waiting_since: self.delivered_after(*channel, cursor.through),
            is_gone: self.read(*channel, cursor.through, ONE).gone.is_some(),
        };
        Ok(lock(&self.cursors).iter().map(state).collect())
    }

    async fn channels(&self) -> Result<Vec<ChannelPosition>, FeedError> {
        if self.is_locked.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
        self.channel_queries.fetch_add(1, Ordering::Relaxed);
        let channels: Vec<_> = lock(&self.rows).keys().copied().collect();
        let position = |channel| ChannelPosition {
            channel,
            position: self.read(channel, 0, NOTHING).position,
            oldest_since: self.delivered_after(channel, 0),
        };
        Ok(channels.into_iter().map(position).collect())
    }

    async fn set_cursor(&self, consumer: &str, channel: Uuid, through: i64) -> Result<(), FeedError> {
        let newest = self.read(channel, 0, NOTHING).position.newest;
        if through > newest {
            return Err(FeedError::TooHigh { through, newest });
        }
        let mut cursors = lock(&self.cursors);
        let cursor = cursors.entry((consumer.to_owned(), channel)).or_default();
        (cursor.through, cursor.lease) = (through, None);
        Ok(())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
