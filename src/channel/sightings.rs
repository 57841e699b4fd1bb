//! When each configured signer was last seen to sign: one that falls silent, or is rotated out, shows here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

use crate::verify::{Address, SignerSet};

/// The signers of one channel. A signature is counted without a lock or a search beyond the signer set itself.
#[derive(Debug, Default)]
pub struct Sightings {
    signers: Vec<Sighting>,
    required: usize,
}

#[derive(Debug)]
struct Sighting {
    signer: Address,
    /// Unix seconds; 0 is never.
    last: AtomicI64,
}

impl Sightings {
    /// Of these signers, with what is known of them already.
    pub(super) fn of(signers: &SignerSet, known: &Self) -> Arc<Self> {
        let sighting = |signer: &Address| Sighting { signer: *signer, last: AtomicI64::new(known.at(*signer)) };
        Arc::new(Self { signers: signers.addresses().iter().map(sighting).collect(), required: signers.required() })
    }

    /// These have signed.
    pub(super) fn saw(&self, signers: &[Address], now: i64) {
        for sighting in self.signers.iter().filter(|sighting| signers.contains(&sighting.signer)) {
            sighting.last.store(now, Ordering::Relaxed);
        }
    }

    /// Every signer, and when it was last seen to sign.
    pub fn all(&self) -> impl Iterator<Item = (Address, Option<Timestamp>)> {
        let at = |last: i64| Timestamp::from_second(last).ok().filter(|_| last != 0);
        self.signers.iter().map(move |sighting| (sighting.signer, at(sighting.last.load(Ordering::Relaxed))))
    }

    /// How many of them an event needs; 0 as long as that is not known.
    pub fn required(&self) -> usize {
        self.required
    }

    fn at(&self, signer: Address) -> i64 {
        let known = self.signers.iter().find(|sighting| sighting.signer == signer);
        known.map_or(0, |sighting| sighting.last.load(Ordering::Relaxed))
    }
}
