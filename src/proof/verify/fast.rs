//! Checks signatures faster than recovery does, for signers with known keys. See "How signatures are checked" in
//! [`verify`](super).

mod batch;
mod digits;
mod field;
#[cfg(target_arch = "x86_64")]
mod keys;
mod multiples;
mod order;
mod prepared;
mod sums;

#[cfg(test)]
pub(super) use batch::Way;
pub(super) use batch::read;
pub(super) use prepared::Prepared;
