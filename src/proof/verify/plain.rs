//! Replaces `fast::Prepared` in a build without `fast`: nothing is precomputed, and every key is recovered.
#![allow(clippy::unused_self, reason = "the same functions as those of `fast`")]

use k256::ecdsa::VerifyingKey;

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
