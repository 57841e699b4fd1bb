//! Reusable buffers for bodies.
//!
//! A page is as long as hundreds of events, and each page is a little longer or shorter than the last. A new allocation
//! for each page fragments the heap, and memory then grows while a channel catches up.
//!
//! Measured with the allocator of glibc and a lag of 50,000 events: at most 39 MiB with these buffers and the shared
//! memory of `record::Lines`, and 44 MiB without these buffers and that shared memory. Other allocators use more. With a
//! lag of 100,000 events, glibc uses 47 MiB with the buffers and the shared memory, and mimalloc 3 uses 125 MiB. Without
//! them, glibc uses 53 MiB, and mimalloc 2 and 3 use 118 to 129 MiB. jemalloc is not used, because its build needs
//! `make`, which a machine with a Rust toolchain and a C compiler may not have.

use std::mem;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::ApiError;
use net::memory::Reserved;
use net::tasks::lock;

/// A body of this size is long. A shorter body is copied into its own allocation.
const LONG: usize = 64 << 10;

/// The number of unused buffers that are kept. A channel that catches up receives one page while it processes two or three
/// others.
const KEPT: usize = 4;

/// A buffer above this size is not kept.
const LARGEST: usize = 2 << 20;

#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// A body, as far as it has been read. The buffer becomes reusable when the last slice of the body is dropped.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    reserved: Reserved,
    buffers: Arc<Buffers>,
}

impl Buffers {
    /// An empty body. `announced` is its announced length, or zero if the length is unknown. Fails if memory for this
    /// length is not available.
    pub(super) fn body(self: &Arc<Self>, announced: usize, reserved: Reserved) -> Result<Body, ApiError> {
        let may_be_long = announced == 0 || announced >= LONG;
        let bytes = if may_be_long { lock(&self.0).pop().unwrap_or_default() } else { Vec::new() };
        let mut body = Body { bytes, reserved, buffers: self.clone() };
        // The buffer gets room for the announced bytes. They may never arrive, so the memory is not kept reserved for them:
        // the reservation only checks that the memory is available.
        let had = body.reserved.bytes();
        body.reserve(announced, announced)?;
        body.reserved.shrink_to(had);
        Ok(body)
    }
}

impl Body {
    /// Adds received bytes, if memory for them is available.
    pub(super) fn extend(&mut self, chunk: &[u8]) -> Result<(), ApiError> {
        self.reserve(chunk.len(), 2 * (self.bytes.len() + chunk.len()))?;
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// Makes room for `more` bytes. `expected` is the length that the body may reach.
    fn reserve(&mut self, more: usize, expected: usize) -> Result<(), ApiError> {
        let missing = (self.bytes.len() + more).saturating_sub(self.reserved.bytes());
        // The reservation grows in increasing steps, like the buffer.
        if missing > 0 && !self.reserved.grow(missing.max(self.bytes.len())) && !self.reserved.grow(missing) {
            return Err(ApiError::TooLong { bytes: expected });
        }
        self.bytes.reserve(more);
        Ok(())
    }

    /// The complete body. A short body returns its buffer at once.
    pub(super) fn freeze(mut self) -> Bytes {
        self.reserved.shrink_to(self.bytes.len());
        if self.bytes.len() < LONG {
            let short = self.bytes.clone();
            self.give_back();
            self.bytes = short;
        }
        Bytes::from_owner(self)
    }

    fn give_back(&mut self) {
        let mut bytes = mem::take(&mut self.bytes);
        let mut buffers = lock(&self.buffers.0);
        if (LONG..=LARGEST).contains(&bytes.capacity()) && buffers.len() < KEPT {
            bytes.clear();
            buffers.push(bytes);
        }
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::memory::ChannelMemory;

    fn read(buffers: &Arc<Buffers>, announced: usize, length: usize, byte: u8) -> Bytes {
        let mut body = buffers.body(announced, Arc::<ChannelMemory>::default().free()).unwrap();
        vec![byte; length].chunks(10_000).for_each(|chunk| body.extend(chunk).unwrap());
        body.freeze()
    }

    #[test]
    fn a_large_buffer_is_reused_when_no_slice_remains() {
        let buffers = Arc::<Buffers>::default();
        let first = read(&buffers, 0, 2 * LONG, 1);
        let (slice, buffer) = (first.slice(70_000..70_010), first.as_ptr());
        drop(first);
        let second = read(&buffers, 2 * LONG, 2 * LONG, 2);
        assert_ne!(second.as_ptr(), buffer, "a slice still uses the buffer");
        assert_eq!(slice, [1; 10][..]);
        drop(slice);
        let third = read(&buffers, LONG, LONG, 3);
        assert_eq!((third.as_ptr(), third.len()), (buffer, LONG));
        assert!(third.iter().all(|byte| *byte == 3));
    }

    #[test]
    fn a_short_body_keeps_no_buffer() {
        let buffers = Arc::<Buffers>::default();
        drop(read(&buffers, 0, LONG, 1));
        let short = read(&buffers, 0, 100, 2);
        assert_eq!((lock(&buffers.0).len(), short.len()), (1, 100));
        let announced = read(&buffers, 100, 100, 3);
        assert_eq!((lock(&buffers.0).len(), announced.len()), (1, 100));
    }

    #[test]
    fn only_a_few_buffers_of_moderate_size_are_kept() {
        let buffers = Arc::<Buffers>::default();
        let held: Vec<_> = (0..2 * KEPT).map(|_| read(&buffers, 0, LONG, 1)).collect();
        drop(held);
        assert_eq!(lock(&buffers.0).len(), KEPT);
        lock(&buffers.0).clear();
        drop(read(&buffers, LARGEST + 1, LARGEST + 1, 1));
        assert!(lock(&buffers.0).is_empty());
    }
}
