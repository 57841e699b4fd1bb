//! Random numbers for tests: the same in each run, and different under another `CHANNELD_TEST_SEED`.

use rand::SeedableRng;
use rand::rngs::StdRng;

/// A generator for one purpose. It prints the seed, which the output of a failed test then contains.
pub(crate) fn random(purpose: u64) -> StdRng {
    let seed = seed();
    println!("drawn with CHANNELD_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed.wrapping_add(purpose))
}

/// The seed of this run.
///
/// # Panics
///
/// If the variable is not a number.
pub(crate) fn seed() -> u64 {
    std::env::var("CHANNELD_TEST_SEED").map_or(0, |seed| seed.parse().expect("CHANNELD_TEST_SEED is a number"))
}
