//! Draws everything that looks random from the seed: the same seed produces the same service.
//!
//! # Invariants
//!
//! * **Stateless.** A draw depends only on the seed, its purpose, and the two numbers that identify the object. It never
//!   depends on earlier draws. Event one million is made without making the events before it.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

/// The purpose of a draw. Two purposes never share their numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Purpose {
    ApiKey = 1,
    Channel,
    Network,
    Signer,
    Stranger,
    Mix,
    Gap,
    EventId,
    EventIdMask,
    ContentFacts,
    Content,
    Altered,
    Fault,
    Quorum,
}

/// Returns the generator for one purpose. `owner` and `index` identify the object: a channel's number and an event's index.
pub(crate) fn draw(seed: u64, purpose: Purpose, owner: u64, index: u64) -> StdRng {
    let mut key = [0; 32];
    let words = [seed, purpose as u64, owner, index];
    for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    StdRng::from_seed(key)
}

/// Returns a random UUID.
pub(crate) fn uuid(rng: &mut StdRng) -> Uuid {
    uuid::Builder::from_random_bytes(rng.random()).into_uuid()
}

/// Returns `0x` and `N` random bytes in hex.
pub(crate) fn hex_of<const N: usize>(rng: &mut StdRng) -> String {
    let bytes: [u8; N] = std::array::from_fn(|_| rng.random());
    format!("0x{}", hex::encode(bytes))
}

/// Returns the API key of a simulator without a configured key.
pub(crate) fn api_key(seed: u64) -> String {
    let key: [u8; 16] = draw(seed, Purpose::ApiKey, 0, 0).random();
    format!("sim-{}", hex::encode(key))
}
