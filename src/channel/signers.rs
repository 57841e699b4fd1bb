//! When each configured signer last signed. A signer that falls silent, or is rotated out, shows here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

use crate::verify::{Address, SignerSet};

/// The signers of one channel. Noting a signature takes no lock.
#[derive(Debug, Default)]
pub struct SignerActivity {
    signers: Vec<LastSigned>,
    required: usize,
}

#[derive(Debug)]
struct LastSigned {
    signer: Address,
    /// Unix seconds; 0 is never.
    last: AtomicI64,
}

impl SignerActivity {
    /// For these signers, with what is known of them already.
    pub(super) fn of(signers: &SignerSet, known: &Self) -> Arc<Self> {
        let last_signed = |signer: &Address| LastSigned { signer: *signer, last: AtomicI64::new(known.at(*signer)) };
        Arc::new(Self { signers: signers.addresses().iter().map(last_signed).collect(), required: signers.required() })
    }

    /// Notes that these have signed.
    pub(super) fn saw(&self, signers: &[Address], now: i64) {
        for known in self.signers.iter().filter(|known| signers.contains(&known.signer)) {
            known.last.store(now, Ordering::Relaxed);
        }
    }

    /// Every signer, and when it last signed.
    pub fn all(&self) -> impl Iterator<Item = (Address, Option<Timestamp>)> {
        let at = |last: i64| Timestamp::from_second(last).ok().filter(|_| last != 0);
        self.signers.iter().map(move |known| (known.signer, at(known.last.load(Ordering::Relaxed))))
    }

    /// How many signatures an event needs; 0 while that is not known.
    pub fn required(&self) -> usize {
        self.required
    }

    fn at(&self, signer: Address) -> i64 {
        let known = self.signers.iter().find(|known| known.signer == signer);
        known.map_or(0, |known| known.last.load(Ordering::Relaxed))
    }
}
