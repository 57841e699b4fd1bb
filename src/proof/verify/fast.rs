//! Checks signatures faster than recovery does, for signers with known keys. See "How signatures are checked" in
//! [`verify`](super).

mod batch;
mod digits;
mod field;
mod multiples;
mod order;
mod prepared;
mod sums;

pub(super) use batch::read;
pub(super) use prepared::Prepared;
