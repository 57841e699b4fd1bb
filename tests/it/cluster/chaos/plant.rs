//! Plants each kind of fault, and removes it.

use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::Signal;
use simulator::{EventSpec, Honesty, Kind as EventKind, Misbehaviour, Tampering};

use super::fault::{Fault, Held, Kind};
use super::rows;
use super::target::{TABLES, Target, warehouse};
use super::world::{CHANNELS, STATE_ROLE, World};
use crate::cluster::failures::locked;
use crate::support::{Line, Reply};

pub(super) async fn plant(kind: Kind, target: Target, world: &mut World, random: &mut StdRng) -> Held {
    match target {
        Target::Channel(channel) if rows::is_of_rows(kind) => rows::plant(kind, channel, world).await,
        Target::Channel(channel) => in_channel(kind, channel, world, random),
        Target::Lane(channel, _) => in_lane(kind, channel, world).await,
        Target::Sink(sink) => in_sink(kind, sink, world, random).await,
        Target::Instance(instance) => in_instance(kind, instance, world, random).await,
        Target::Sharing | Target::State => in_database(kind, world).await,
    }
}

fn in_channel(kind: Kind, channel: usize, world: &mut World, random: &mut StdRng) -> Held {
    let events = random.random_range(1..4);
    let misbehaviour = match kind {
        Kind::ServiceFails => Misbehaviour::Status([500, 502, 503][random.random_range(0..3)]),
        Kind::ServiceHangs => [Misbehaviour::Hang, Misbehaviour::SlowBody][random.random_range(0..2)],
        Kind::Forgery => {
            for _ in 0..events {
                let tampering = Tampering::ALL[random.random_range(0..Tampering::ALL.len())];
                world.instances.simulator.publish_one(channel, EventSpec::Forged(tampering));
            }
            return Held::Above(forged(world, channel) - 1);
        }
        _ => {
            let late = EventSpec::Late(EventKind::WatcherEvent);
            let publish = |_| world.instances.simulator.publish_one(channel, late);
            let offsets: Vec<_> = (0..events).map(publish).collect();
            world.late.extend(offsets.iter().map(|offset| (channel, *offset)));
            return Held::Offsets(offsets);
        }
    };
    world.instances.simulator.misbehave(channel, Some(misbehaviour));
    Held::Nothing
}

/// The number of forged events of a channel.
pub(super) fn forged(world: &World, channel: usize) -> u64 {
    let events = world.instances.simulator.offsets(channel).into_iter();
    events.filter(|(_, honesty)| *honesty == Honesty::Forged).count().try_into().unwrap()
}

async fn in_lane(kind: Kind, channel: usize, world: &World) -> Held {
    if kind == Kind::HookRefusesChannel {
        let text = format!(r#""channel":"c{channel}""#);
        world.instances.receiver.refuse_with(503, move |body| body.contains(&text));
        return Held::Nothing;
    }
    let table = TABLES[warehouse(channel)];
    let refuse = format!(
        "create or replace function public.refuse() returns trigger language plpgsql as \
         $$begin raise 'refused'; end$$; \
         create trigger refuses before insert on {table} for each row \
         when (new.channel = 'c{channel}') execute function public.refuse()"
    );
    world.instances.database.change(&refuse).await;
    Held::Nothing
}

async fn in_sink(kind: Kind, sink: &'static str, world: &World, random: &mut StdRng) -> Held {
    let reply = match kind {
        Kind::HookHangs => Reply::Hang,
        Kind::HookRefuses => Reply::Refuse([400, 404, 500, 503][random.random_range(0..4)], None),
        _ => {
            let session = world.session().await;
            let lock = format!("begin; lock table {} in exclusive mode", super::world::table(sink));
            session.batch_execute(&lock).await.unwrap();
            return Held::Session(session);
        }
    };
    world.instances.receiver.always(Some(reply));
    Held::Nothing
}

async fn in_instance(kind: Kind, instance: usize, world: &mut World, random: &mut StdRng) -> Held {
    match kind {
        Kind::Kill => world.kill(instance).await,
        Kind::Freeze => world.freeze(instance, Signal::STOP),
        Kind::Silence => world.instances.get(instance).relay.becomes(Line::Silent),
        Kind::CutAnswers => world.instances.get(instance).relay.becomes(Line::CutsAnswers),
        Kind::Reload => world.reload(instance).await,
        _ => {
            // The instance would deliver the first of these events, or would refuse every event.
            let is_lax = random.random();
            for channel in 0..CHANNELS {
                world.instances.simulator.publish_one(channel, EventSpec::Forged(Tampering::TooFewSignatures));
            }
            world.start_stranger(is_lax);
        }
    }
    Held::Nothing
}

async fn in_database(kind: Kind, world: &World) -> Held {
    let database = &world.instances.database;
    let table = match kind {
        Kind::ServerStops => {
            database.server.kill();
            return Held::Nothing;
        }
        Kind::ProofsRevoked => {
            database.change(&format!("revoke all on channeld.proofs from {STATE_ROLE}")).await;
            return Held::Nothing;
        }
        Kind::NullChannel => {
            rows::add_null_channel(database).await;
            return Held::Nothing;
        }
        Kind::ProofsLocked => "proofs",
        Kind::RequestsLocked => "requests",
        Kind::ChannelsLocked => "channels",
        _ => "state",
    };
    let session = locked(database, table).await;
    if kind == Kind::StateLocked {
        let end = format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{STATE_ROLE}'");
        session.batch_execute(&end).await.unwrap();
    }
    Held::Session(session)
}

impl Fault {
    /// Repeats an action of the fault that the daemon has undone before the status has shown it.
    pub(super) async fn repeat(&self, world: &mut World) {
        if let (Kind::HeldBackDamaged, Target::Channel(channel), false) = (self.kind, self.target, self.is_seen) {
            rows::damage_held_back(world, channel).await;
        }
    }

    pub(super) async fn remove(self, world: &mut World) {
        println!("{:.1?} {:?} ends", world.age(), self.kind);
        match (self.target, self.held) {
            (_, Held::Session(session)) => session.batch_execute("rollback").await.unwrap(),
            (Target::Channel(channel), Held::Offsets(offsets)) => {
                for offset in offsets {
                    world.instances.simulator.prove(channel, offset);
                }
            }
            (Target::Channel(_), Held::Above(_)) => {}
            (Target::Channel(channel), _) if rows::is_of_rows(self.kind) => {
                rows::repair(self.kind, channel, world).await;
            }
            (Target::Channel(channel), _) => world.instances.simulator.misbehave(channel, None),
            (Target::Lane(channel, _), _) if self.kind == Kind::TableRefuses => {
                let allow = format!("drop trigger refuses on {}", TABLES[warehouse(channel)]);
                world.instances.database.change(&allow).await;
            }
            (Target::Lane(..) | Target::Sink(_), _) => {
                world.instances.receiver.always(None);
                world.instances.receiver.refuse(None);
            }
            (Target::Instance(instance), _) => of_instance(self.kind, instance, world).await,
            (Target::Sharing | Target::State, _) => of_database(self.kind, world).await,
        }
    }
}

async fn of_instance(kind: Kind, instance: usize, world: &mut World) {
    match kind {
        Kind::Kill => world.start(instance),
        Kind::Freeze => world.freeze(instance, Signal::CONT),
        Kind::Silence | Kind::CutAnswers => world.instances.get(instance).relay.becomes(Line::Good),
        Kind::Stranger => world.stop(instance).await,
        _ => {}
    }
}

async fn of_database(kind: Kind, world: &World) {
    let database = &world.instances.database;
    match kind {
        Kind::ServerStops => database.server.run(),
        Kind::ProofsRevoked => {
            let grant = format!("grant select, insert, update, delete on channeld.proofs to {STATE_ROLE}");
            database.change(&grant).await;
        }
        _ => rows::remove_null_channel(database).await,
    }
}
