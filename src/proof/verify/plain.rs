//! Replaces `fast` in a build without it: nothing is precomputed, and every key is recovered.
#![allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same functions as those of `fast`")]

use k256::ecdsa::VerifyingKey;

use super::Reason;
use super::known::Known;
use super::reading::Signatures;
use super::signers::Counted;

/// Leaves all proofs to recovery.
pub(super) fn read(_: &Known, _: usize, _: &[Signatures<'_>]) -> Option<Vec<Result<Counted, Reason>>> {
    None
}

/// Stores nothing.
pub(super) struct Prepared;

impl Prepared {
    pub(super) fn nothing(_: usize) -> Self {
        Self
    }

    pub(super) fn recovered(&self, _: usize, _: &VerifyingKey) {}

    pub(super) fn wants_preparing(&self) -> bool {
        false
    }

    pub(super) fn prepare(&self) {}

    #[cfg(test)]
    pub(super) fn learn<'a>(&self, _: impl IntoIterator<Item = &'a [usize]>) {}
}
