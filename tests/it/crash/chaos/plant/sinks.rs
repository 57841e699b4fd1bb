//! Faults of sinks and of their servers.

use std::fs;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rusqlite::Connection;
use serde_json::{Value, json};
use simulator::{EventSpec, Kind as EventKind};

use super::super::fault::{Held, Kind};
use super::super::world::{CHANNELS, HOOKS, World, has_sink, number};
use super::{files, rules};
use crate::support::{Line, Nats, Reply, STREAM, fill};

/// How long a change of a SQLite database waits for the daemon.
const BUSY: Duration = Duration::from_secs(30);

/// A slow table needs this time for each row, and gets this number of rows of each channel at once: 20 s of work, while a statement may take
/// 10 s.
const SLOW_ROW: Duration = Duration::from_millis(500);
const SLOW_ROWS: usize = 40;

/// Answers of an endpoint that are not HTTP.
const GARBAGE: [&str; 4] = [
    "HTTP/1.1 2OO OK\r\ncontent-length: 0\r\n\r\n",
    "HTTP/9.9 200 OK\r\ncontent-length: 0\r\n\r\n",
    "SSH-2.0-OpenSSH_9.2\r\n",
    "\u{0}\u{1}\u{2}\u{3}\r\n\r\n",
];

/// Fewer bytes than any event has.
const TINY: u64 = 100;

pub(super) async fn plant_in_lane(kind: Kind, channel: usize, sink: &'static str, world: &mut World) -> Held {
    if kind != Kind::HookRefusesOne {
        world.refuses_even.insert((channel, sink));
    }
    match kind {
        Kind::TableRefuses => {
            let condition = format!("new.channel = 'c{channel}' and new.event_offset % 2 = 0");
            let refuse = format!(
                "create trigger refuses before insert on events when {condition} begin select raise(abort, 'refused'); end"
            );
            let table = open(world, sink);
            table.execute_batch(&refuse).unwrap();
            Held::Table(table)
        }
        Kind::WarehouseRefuses => {
            rules::refuse_every_second(&world.database, number(sink), channel).await;
            Held::Nothing
        }
        _ => {
            let offset = world.simulator.publish_one(channel, EventSpec::Honest(EventKind::WatcherEvent));
            world.refused.insert(((channel, sink), offset));
            let texts = [format!(r#""channel":"c{channel}""#), format!(r#""offset":{offset},"#)];
            let is_refused = move |body: &str| texts.iter().all(|text| body.contains(text));
            world.hooks[number(sink)].receiver.refuse_with(422, is_refused);
            Held::Offsets(vec![offset])
        }
    }
}

pub(super) async fn plant(kind: Kind, sink: &'static str, world: &mut World, random: &mut StdRng) -> Held {
    *world.outages.entry(sink).or_default() += 1;
    let always = |reply| world.hooks[number(sink)].receiver.always(Some(reply));
    match kind {
        Kind::HookHangs => always(Reply::Hang),
        Kind::HookRefusesAll => always(Reply::Refuse([400, 404, 500, 503][random.random_range(0..4)], None)),
        Kind::HookLimits => always(Reply::Refuse(429, Some(1))),
        Kind::HookBabbles => {
            world.hooks[number(sink)].receiver.garble(Some(GARBAGE[random.random_range(0..GARBAGE.len())]));
        }
        Kind::TableLocked => {
            let table = open(world, sink);
            table.execute_batch("begin immediate").unwrap();
            return Held::Table(table);
        }
        Kind::WarehouseLocked => {
            let session = world.database.server.client(&world.database.name).await;
            let lock = format!("begin; lock table events_{} in exclusive mode", number(sink));
            session.batch_execute(&lock).await.unwrap();
            return Held::Session(session);
        }
        Kind::WarehouseSlow => {
            rules::slow_down(&world.database, number(sink), SLOW_ROW).await;
            for channel in (0..CHANNELS).filter(|channel| has_sink(*channel, sink)) {
                world.simulator.publish(channel, SLOW_ROWS.try_into().unwrap());
            }
        }
        Kind::FirstHostSilent => {
            world.hosts[0].becomes(Line::Silent);
            // After another fault, the sink may use the second host.
            world.hosts[1].cut();
        }
        Kind::BusStops => world.nats.kill(),
        Kind::BusRefuses => drop(world.nats.change(limit(&world.nats, random).await).await),
        Kind::DiskFull => return Held::File(fill(&world.small_disk())),
        Kind::FileUnwritable => fs::rename(world.directory(sink), files::away(world, sink)).unwrap(),
        _ => return Held::Lost(files::restore(world, sink, random.random_range(5..40))),
    }
    Held::Nothing
}

/// A limit of the stream that refuses each new event.
async fn limit(nats: &Nats, random: &mut StdRng) -> Value {
    let state = nats.api(&format!("STREAM.INFO.{STREAM}"), json!({})).await["state"].take();
    let limits =
        [json!({"max_msgs": state["messages"]}), json!({"max_bytes": state["bytes"]}), json!({"max_msg_size": TINY})];
    limits[random.random_range(0..limits.len())].clone()
}

pub(super) async fn remove(kind: Kind, sink: &str, held: Held, world: &World) {
    match (kind, held) {
        (Kind::TableRefuses, Held::Table(table)) => table.execute_batch("drop trigger refuses").unwrap(),
        (_, Held::Table(table)) => table.execute_batch("rollback").unwrap(),
        (_, Held::Session(session)) => session.batch_execute("rollback").await.unwrap(),
        (_, Held::File(filling)) => fs::remove_file(filling).unwrap(),
        (Kind::WarehouseRefuses | Kind::WarehouseSlow, _) => rules::drop_all(&world.database, number(sink)).await,
        (Kind::FirstHostSilent, _) => {
            world.hosts[0].becomes(Line::Good);
            // The sink returns to the first host.
            world.hosts[1].cut();
        }
        (Kind::BusStops, _) => world.nats.run(),
        (Kind::BusRefuses, _) => {
            let unlimited = json!({"max_msgs": -1, "max_bytes": -1, "max_msg_size": -1});
            drop(world.nats.change(unlimited).await);
        }
        (Kind::FileUnwritable, _) => fs::rename(files::away(world, sink), world.directory(sink)).unwrap(),
        _ if HOOKS.contains(&sink) => {
            let receiver = &world.hooks[number(sink)].receiver;
            receiver.always(None);
            receiver.refuse(None);
            receiver.garble(None);
        }
        _ => {}
    }
}

fn open(world: &World, sink: &str) -> Connection {
    let table = Connection::open(world.table(sink)).unwrap();
    table.busy_timeout(BUSY).unwrap();
    table
}
