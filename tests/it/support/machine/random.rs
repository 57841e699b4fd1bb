//! What random tests draw: the same each time, and something else under another `CHANNELD_TEST_SEED`.

use rand::SeedableRng;
use rand::rngs::StdRng;

/// What is drawn for one purpose. A test that fails shows the seed, because its output is shown.
pub(crate) fn random(purpose: u64) -> StdRng {
    let seed = seed();
    println!("drawn with CHANNELD_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed.wrapping_add(purpose))
}

/// The seed of this run.
///
/// # Panics
///
/// Where the variable is no number.
pub(crate) fn seed() -> u64 {
    std::env::var("CHANNELD_TEST_SEED").map_or(0, |seed| seed.parse().expect("CHANNELD_TEST_SEED is a number"))
}
