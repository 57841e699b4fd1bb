//! The proofs that were delivered lately, as they are remembered across restarts.
//!
//! A commit's proofs are one entry. When there are more than are to be remembered, the oldest entries go.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Changes, Key, StateError};
use proof::event::{ChannelId, Offset};

/// A digest and an offset.
const PROOF_LENGTH: usize = 16 + 8;

/// What a proof is known by: the first 16 bytes of the digest that was signed. By chance, two proofs never share them.
pub type Digest = [u8; 16];

/// What a proof is known by, from its digest as it is written.
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
    /// The place of the event that it proved.
    pub offset: Offset,
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Its channel.
    pub channel_id: ChannelId,
    /// Its offset there.
    pub offset: Offset,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} of channel {}", self.offset, self.channel_id)
    }
}

/// The entries that hold a channel's proofs.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// The numbers of the entries, oldest first, each with how many proofs it holds.
    numbers: VecDeque<(u64, usize)>,
    proofs: usize,
    /// How many proofs are to be remembered.
    pub(super) capacity: usize,
}

impl Chunks {
    pub(super) fn remembering(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.proofs == 0
    }

    /// Takes over an entry of the store. Entries come in the order of their numbers.
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
