//! Plants each kind of fault, and removes it.

use rand::Rng;
use rand::rngs::StdRng;
use simulator::{EventSpec, Honesty, Kind as EventKind, Misbehaviour, Tampering};

use super::fault::{Fault, Held, Kind};
use super::target::Target;
use super::world::World;

mod files;
pub(super) mod process;
pub(super) mod rules;
mod sinks;

pub(super) async fn plant(kind: Kind, target: Target, world: &mut World, random: &mut StdRng) -> Held {
    match target {
        Target::Channel(channel) => in_channel(kind, channel, world, random),
        Target::Lane(channel, sink) => sinks::plant_in_lane(kind, channel, sink, world).await,
        Target::Sink(sink) => sinks::plant(kind, sink, world, random).await,
        Target::Server => {
            world.database.server.kill();
            Held::Nothing
        }
        Target::Process => process::plant(kind, world, random).await,
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
            (Target::Sink(sink) | Target::Lane(_, sink), held) => sinks::remove(self.kind, sink, held, world).await,
            (Target::Server, _) => world.database.server.run(),
            (Target::Process, _) => process::remove(self.kind, world).await,
        }
    }
}
