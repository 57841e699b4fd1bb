//! Faults of the daemon's process, and changes of its operator.

use std::fs;
use std::process::Command;

use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::{Resource, Signal};

use super::super::fault::{Held, Kind};
use super::super::outcome::assert_no_defect;
use super::super::world::World;
use crate::support::run;

/// How many clients of the admin listener never finish.
const CLIENTS: usize = 100;

pub(super) async fn plant(kind: Kind, world: &mut World, random: &mut StdRng) -> Held {
    match kind {
        Kind::Kill => {
            world.kills += 1;
            assert_no_defect(&world.daemon.take().unwrap().kill().await);
        }
        Kind::KeyRotated => world.rotate_key(random.random()),
        Kind::KeyWrong => world.give_key("not-the-key"),
        Kind::KeyIsPipe => {
            let pipe = world.setup.path("pipe");
            run(Command::new("mkfifo").arg(&pipe));
            fs::rename(pipe, world.key_file()).unwrap();
        }
        Kind::NoDescriptors => use_up_descriptors(world).await,
        Kind::IdleClients => add_clients(world, CLIENTS).await,
        _ => world.daemon().stall_log(true).await,
    }
    if matches!(kind, Kind::KeyRotated | Kind::KeyWrong | Kind::KeyIsPipe) {
        world.daemon().signal(Signal::HUP);
    }
    Held::Nothing
}

/// Leaves no descriptor free: idle clients use those below the limit. More clients would take each descriptor that is free for a
/// moment, also from the reserve of the state.
pub(in super::super) async fn use_up_descriptors(world: &mut World) {
    let least = world.least_descriptors.max(world.daemon().least_descriptors());
    world.least_descriptors = least;
    world.daemon().limit(Resource::Nofile, Some(least));
    world.has_shortage = true;
    let free = world.daemon().free_descriptors(least);
    add_clients(world, free).await;
}

async fn add_clients(world: &mut World, number: usize) {
    let clients = world.admin().await.idle_clients(number);
    world.clients.extend(clients);
}

pub(super) async fn remove(kind: Kind, world: &mut World) {
    match kind {
        Kind::Kill => world.start().await,
        Kind::KeyWrong | Kind::KeyIsPipe => {
            world.give_good_key();
            world.daemon().signal(Signal::HUP);
            world.until_accepted().await;
        }
        Kind::NoDescriptors => world.free_descriptors(),
        Kind::IdleClients => world.clients.clear(),
        Kind::LogStalls => world.daemon().stall_log(false).await,
        _ => {}
    }
}
