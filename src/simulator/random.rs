//! Everything that looks random, drawn from the seed: the same seed gives the same service.
//!
//! # Invariants
//!
//! * **Stateless.** A draw depends on the seed, what it is for, and a number; never on what was drawn before. Event
//!   one million is made without making those before it.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

/// What a draw is for. Two purposes never share their numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Purpose {
    ApiKey = 1,
    Channel,
    Network,
    Signer,
    Stranger,
    Mix,
    Gap,
    EventId,
    EventIdMask,
    Facts,
    Content,
    Altered,
    Fault,
    Quorum,
}

/// The generator of one purpose. `owner` and `index` say whose and which: a channel's number and an event's index.
pub(super) fn draw(seed: u64, purpose: Purpose, owner: u64, index: u64) -> StdRng {
    let mut key = [0; 32];
    let words = [seed, purpose as u64, owner, index];
    for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    StdRng::from_seed(key)
}

/// A random UUID.
pub(super) fn uuid(rng: &mut StdRng) -> Uuid {
    uuid::Builder::from_random_bytes(rng.random()).into_uuid()
}

/// `0x` and that many random bytes in hex.
pub(super) fn hex_of<const N: usize>(rng: &mut StdRng) -> String {
    let bytes: [u8; N] = std::array::from_fn(|_| rng.random());
    format!("0x{}", hex::encode(bytes))
}

/// The API key of a simulator that was not given one.
pub(super) fn api_key(seed: u64) -> String {
    let key: [u8; 16] = draw(seed, Purpose::ApiKey, 0, 0).random();
    format!("sim-{}", hex::encode(key))
}
