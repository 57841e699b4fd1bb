//! Faults of the instances and of their database: how each fault begins and ends.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::Signal;

use super::instances::Instances;
use crate::support::Line;

/// The number of instances that run if no fault is active. [`Kind::Join`] starts one more.
pub(super) const RUNNING: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumIter)]
pub(super) enum Kind {
    /// An instance is killed, and later started again.
    Kill,
    /// An instance is stopped for longer than its lease, and then continued.
    Freeze,
    /// Nothing passes between an instance and the database. The connections stay open.
    Silence,
    /// The connections of an instance to the database are cut again and again.
    Resets,
    /// The database executes the requests of an instance, but the connection ends before the answer arrives.
    CutAnswers,
    /// The database terminates all connections again and again.
    Terminations,
    /// The database is killed, and later started again.
    Database,
    /// Every instance is stopped and started, one after the other.
    RollingRestart,
    /// Another instance joins, and later leaves.
    Join,
    /// An instance is stopped, and later started again.
    Leave,
}

/// An active fault.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) began: Instant,
    pub(super) until: Instant,
    instance: usize,
    /// The channels that the instance owned when it was killed. Empty for other kinds of fault.
    pub(super) owned: Vec<usize>,
}

impl Fault {
    /// Begins a fault at a random instance that has no fault, or at the additional instance for [`Kind::Join`].
    ///
    /// Returns `None` if no instance is free, if a fault of this kind is already active, or if a rolling restart would
    /// overlap with another fault.
    pub(super) async fn begin(
        kind: Kind,
        instances: &mut Instances,
        others: &[Self],
        random: &mut StdRng,
        lease: Duration,
    ) -> Option<Self> {
        let is_free = |instance: &usize| others.iter().all(|other| other.instance != *instance);
        let free: Vec<_> = (0..RUNNING).filter(is_free).collect();
        let is_taken = others.iter().any(|other| other.kind == kind || kind == Kind::RollingRestart);
        if free.is_empty() || is_taken {
            return None;
        }
        let instance = if kind == Kind::Join { RUNNING } else { free[random.random_range(0..free.len())] };
        let time = match kind {
            Kind::Kill | Kind::Silence => random.random_range(lease..lease * 2),
            Kind::Freeze => lease + Duration::from_millis(random.random_range(500..3000)),
            Kind::RollingRestart => Duration::ZERO,
            Kind::CutAnswers | Kind::Resets | Kind::Terminations => random.random_range(lease / 6..lease / 2),
            Kind::Database => random.random_range(Duration::ZERO..lease * 3 / 2),
            Kind::Join | Kind::Leave => random.random_range(lease / 2..lease * 4),
        };
        let mut fault = Self { kind, began: Instant::now(), until: Instant::now(), instance, owned: Vec::new() };
        match kind {
            Kind::Kill => {
                fault.owned = instances.owned_by(instance).await;
                fault.began = Instant::now();
                instances.kill(instance).await;
            }
            Kind::Freeze => instances.signal(instance, Signal::STOP),
            Kind::Silence => instances.get(instance).relay.becomes(Line::Silent),
            Kind::CutAnswers => instances.get(instance).relay.becomes(Line::CutsAnswers),
            Kind::Resets | Kind::Terminations => {}
            Kind::Database => instances.database.server.kill(),
            Kind::RollingRestart => {
                for instance in 0..RUNNING {
                    instances.stop(instance).await;
                    instances.start(instance);
                    instances.until_live(RUNNING.try_into().unwrap()).await;
                }
            }
            Kind::Join => instances.start(instance),
            Kind::Leave => instances.stop(instance).await,
        }
        fault.until = Instant::now() + time;
        Some(fault)
    }

    /// Repeats the action of a fault that consists of repeated actions. The database may be down.
    pub(super) async fn go_on(&self, instances: &mut Instances) {
        match self.kind {
            Kind::Resets => instances.get(self.instance).relay.cut(),
            Kind::Terminations => instances.terminate_connections().await,
            _ => {}
        }
    }

    pub(super) async fn end(self, instances: &mut Instances) {
        let instance = self.instance;
        match self.kind {
            Kind::Kill | Kind::Leave => instances.start(instance),
            Kind::Freeze => instances.signal(instance, Signal::CONT),
            Kind::Silence | Kind::CutAnswers => instances.get(instance).relay.becomes(Line::Good),
            Kind::Database => instances.database.server.run(),
            Kind::Join => instances.stop(instance).await,
            Kind::Resets | Kind::Terminations | Kind::RollingRestart => {}
        }
    }
}
