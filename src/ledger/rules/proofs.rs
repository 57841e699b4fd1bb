//! The recently delivered proofs, which are remembered across restarts.
//!
//! The proofs of a commit are stored as one entry. If the number of proofs exceeds the capacity, the oldest entries are
//! removed.

use std::collections::VecDeque;

use bytes::Bytes;

use super::key::{Changes, Key};
use crate::StateError;
use proof::event::Offset;

/// A digest and an offset.
const PROOF_LENGTH: usize = 16 + 8;

/// Identifies a proof: the first 16 bytes of the signed digest. A collision by chance is practically impossible.
pub type Digest = [u8; 16];

/// Parses the hexadecimal digest of a proof and returns the bytes that identify it.
pub(super) fn digest_from(text: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    hex::decode_to_slice(text.strip_prefix("0x")?.get(..2 * digest.len())?, &mut digest).ok()?;
    Some(digest)
}

/// A proof that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Its digest.
    pub digest: Digest,
    /// The offset of the event that it proved.
    pub offset: Offset,
}

/// The entries that contain a channel's proofs.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// The numbers of the entries, oldest first, each with its number of proofs.
    numbers: VecDeque<(u64, usize)>,
    proofs: usize,
    /// How many proofs to remember.
    pub(super) capacity: usize,
}

impl Chunks {
    pub(super) fn remembering(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.proofs == 0
    }

    /// Adds an entry from the store. Must be called in the order of the entry numbers.
    pub(super) fn load(&mut self, number: u64, value: &[u8]) -> Result<Vec<Proof>, StateError> {
        let proofs = unpack(value).ok_or_else(|| StateError::Damaged("delivered proofs cannot be read".to_owned()))?;
        self.numbers.push_back((number, proofs.len()));
        self.proofs += proofs.len();
        Ok(proofs)
    }

    pub(super) fn add(&mut self, proofs: &[Proof], changes: &mut Changes) {
        if proofs.is_empty() {
            return;
        }
        let number = self.numbers.back().map_or(0, |(last, _)| last + 1);
        changes.push((Key::Proofs(number), Some(pack(proofs))));
        self.numbers.push_back((number, proofs.len()));
        self.proofs += proofs.len();
        while let Some((oldest, count)) = self.numbers.front().copied()
            && self.proofs - count >= self.capacity
        {
            self.numbers.pop_front();
            self.proofs -= count;
            changes.push((Key::Proofs(oldest), None));
        }
    }
}

fn pack(proofs: &[Proof]) -> Bytes {
    proofs
        .iter()
        .flat_map(|Proof { digest, offset }| digest.iter().copied().chain(offset.get().to_be_bytes()))
        .collect()
}

fn unpack(packed: &[u8]) -> Option<Vec<Proof>> {
    let (proofs, rest) = packed.as_chunks::<PROOF_LENGTH>();
    let proof = |packed: &[u8; PROOF_LENGTH]| {
        let (digest, offset) = packed.split_first_chunk()?;
        Some(Proof { digest: *digest, offset: Offset::new(i64::from_be_bytes(offset.try_into().ok()?))? })
    };
    if rest.is_empty() { proofs.iter().map(proof).collect() } else { None }
}
