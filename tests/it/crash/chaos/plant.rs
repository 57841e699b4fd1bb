//! Plants each kind of fault, and removes it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rusqlite::Connection;
use rustix::process::Signal;
use simulator::{EventSpec, Honesty, Kind as EventKind, Misbehaviour, Tampering};

use super::fault::{Fault, Held, Kind};
use super::target::Target;
use super::world::{BACKLOG, CHANNELS, FILES, World, number};
use crate::support::{Reply, place, run};

/// How many clients of the admin listener never finish.
const CLIENTS: usize = 100;

/// How long a change of a SQLite database waits for the daemon.
const BUSY: Duration = Duration::from_secs(30);

pub(super) async fn plant(kind: Kind, target: Target, world: &mut World, random: &mut StdRng) -> Held {
    match target {
        Target::Channel(channel) => in_channel(kind, channel, world, random),
        Target::Lane(channel, sink) => in_lane(kind, channel, sink, world),
        Target::Sink(sink) => in_sink(kind, sink, world, random).await,
        Target::Server => {
            world.database.server.kill();
            Held::Nothing
        }
        Target::Process => in_process(kind, world, random).await,
    }
}

fn in_channel(kind: Kind, channel: usize, world: &mut World, random: &mut StdRng) -> Held {
    let events = random.random_range(1..4);
    let misbehaviour = match kind {
        Kind::ServiceFails => Misbehaviour::Status([500, 502, 503][random.random_range(0..3)]),
        Kind::ServiceLimits => Misbehaviour::Status(429),
        Kind::ServiceBabbles => [Misbehaviour::EmptyPages, Misbehaviour::LargeError][random.random_range(0..2)],
        Kind::ServiceHangs => [Misbehaviour::Hang, Misbehaviour::SlowBody][random.random_range(0..2)],
        Kind::Forgery => {
            for _ in 0..events {
                let tampering = Tampering::ALL[random.random_range(0..Tampering::ALL.len())];
                world.simulator.publish_one(channel, EventSpec::Forged(tampering));
            }
            return Held::Above(forged(world, channel) - 1);
        }
        _ => {
            let late = EventSpec::Late(EventKind::WatcherEvent);
            let offsets: Vec<_> = (0..events).map(|_| world.simulator.publish_one(channel, late)).collect();
            world.late.extend(offsets.iter().map(|offset| (channel, *offset)));
            return Held::Offsets(offsets);
        }
    };
    world.simulator.misbehave(channel, Some(misbehaviour));
    Held::Nothing
}

/// The number of forged events of a channel.
pub(super) fn forged(world: &World, channel: usize) -> u64 {
    let events = world.simulator.offsets(channel).into_iter();
    events.filter(|(_, honesty)| *honesty == Honesty::Forged).count().try_into().unwrap()
}

fn in_lane(kind: Kind, channel: usize, sink: &'static str, world: &World) -> Held {
    if kind == Kind::TableRefuses {
        let condition = format!("new.channel = 'c{channel}' and new.event_offset % 2 = 0");
        let refuse = format!(
            "create trigger refuses before insert on events when {condition} begin select raise(abort, 'refused'); end"
        );
        let table = open(world, sink);
        table.execute_batch(&refuse).unwrap();
        return Held::Table(table);
    }
    let offset = world.simulator.publish_one(channel, EventSpec::Honest(EventKind::WatcherEvent));
    let texts = [format!(r#""channel":"c{channel}""#), format!(r#""offset":{offset},"#)];
    world.hooks[number(sink)].receiver.refuse_with(422, move |body| texts.iter().all(|text| body.contains(text)));
    Held::Offsets(vec![offset])
}

async fn in_sink(kind: Kind, sink: &'static str, world: &World, random: &mut StdRng) -> Held {
    let always = |reply| world.hooks[number(sink)].receiver.always(Some(reply));
    match kind {
        Kind::HookHangs => always(Reply::Hang),
        Kind::HookRefusesAll => always(Reply::Refuse([400, 404, 500, 503][random.random_range(0..4)], None)),
        Kind::HookLimits => always(Reply::Refuse(429, Some(1))),
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
        Kind::FileUnwritable => fs::rename(world.setup.path(sink), away(world, sink)).unwrap(),
        _ => return Held::Lost(restore(world, sink, random.random_range(5..40))),
    }
    Held::Nothing
}

async fn in_process(kind: Kind, world: &mut World, random: &mut StdRng) -> Held {
    match kind {
        Kind::Kill => {
            let log = world.daemon.take().unwrap().kill().await;
            super::outcome::assert_no_defect(&log);
        }
        Kind::KeyRotated => world.rotate_key(random.random()),
        Kind::KeyWrong => world.give_key("not-the-key"),
        Kind::KeyIsPipe => {
            let pipe = world.setup.path("pipe");
            run(Command::new("mkfifo").arg(&pipe));
            fs::rename(pipe, world.key_file()).unwrap();
        }
        Kind::IdleClients => {
            let address = world.admin().await.address;
            let client = || {
                let mut client = TcpStream::connect(address).unwrap();
                client.write_all(b"GET /livez HT").unwrap();
                client
            };
            return Held::Clients { _open: (0..CLIENTS).map(|_| client()).collect() };
        }
        _ => {
            world.daemon().stall_log(true).await;
            return Held::Nothing;
        }
    }
    if kind != Kind::Kill {
        world.daemon().signal(Signal::HUP);
    }
    Held::Nothing
}

impl Fault {
    pub(super) async fn remove(self, world: &mut World) {
        match (self.target, self.held) {
            (Target::Channel(channel), Held::Offsets(offsets)) => {
                for offset in offsets {
                    world.simulator.prove(channel, offset);
                }
            }
            (Target::Channel(_), Held::Above(_)) => {}
            (Target::Channel(channel), _) => world.simulator.misbehave(channel, None),
            (Target::Lane(..), Held::Table(table)) => table.execute_batch("drop trigger refuses").unwrap(),
            (_, Held::Table(table)) => table.execute_batch("rollback").unwrap(),
            (_, Held::Session(session)) => session.batch_execute("rollback").await.unwrap(),
            (Target::Server, _) => world.database.server.run(),
            (Target::Sink(sink), _) if self.kind == Kind::FileUnwritable => {
                fs::rename(away(world, sink), world.setup.path(sink)).unwrap();
            }
            (Target::Sink(_), Held::Lost(_)) => {}
            (Target::Sink(sink) | Target::Lane(_, sink), _) => {
                let receiver = &world.hooks[number(sink)].receiver;
                receiver.always(None);
                receiver.refuse(None);
            }
            (Target::Process, _) => of_process(self.kind, world).await,
        }
    }
}

async fn of_process(kind: Kind, world: &mut World) {
    match kind {
        Kind::Kill => world.start().await,
        Kind::KeyWrong | Kind::KeyIsPipe => {
            world.give_good_key();
            world.daemon().signal(Signal::HUP);
            world.until_accepted().await;
        }
        Kind::LogStalls => world.daemon().stall_log(false).await,
        _ => {}
    }
}

fn open(world: &World, sink: &str) -> Connection {
    let table = Connection::open(world.table(sink)).unwrap();
    table.busy_timeout(BUSY).unwrap();
    table
}

/// The path of a file's directory while the fault is active.
fn away(world: &World, sink: &str) -> PathBuf {
    world.setup.path(&format!("{sink}-away"))
}

/// Replaces a file with a copy that lacks the last lines, and returns these lines. The copy keeps the backlog of each
/// channel, because channeld notices a restored file only for channels that have a line in it. The copy also keeps the
/// late deliveries. Their offsets are lower than the offsets before them, so their loss is noticed only if a late delivery
/// is the last line of a lane.
fn restore(world: &World, sink: &str, lost: usize) -> BTreeSet<(String, i64)> {
    let file = world.file(sink);
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
    let late: BTreeSet<_> = world.late.iter().map(|(channel, offset)| (Some(format!("c{channel}")), *offset)).collect();
    let late = lines.iter().rposition(|line| late.contains(&place(line))).map_or(0, |last| last + 1);
    let backlog = usize::try_from(BACKLOG).unwrap() * CHANNELS / FILES.len();
    let kept = lines.len().saturating_sub(lost).max(backlog).max(late);
    let copy = file.with_extension("copy");
    fs::write(&copy, lines[..kept].concat()).unwrap();
    fs::rename(copy, file).unwrap();
    lines[kept..].iter().map(|line| place(line)).map(|(channel, offset)| (channel.unwrap(), offset)).collect()
}
