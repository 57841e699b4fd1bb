//! Checks signatures faster than recovery does, for signers with known keys. See "How signatures are checked" in
//! [`verify`](super).

mod asking;
mod field;
mod multiples;
mod order;
mod prepared;
mod sums;

pub(super) use asking::read;
pub(super) use prepared::Prepared;
