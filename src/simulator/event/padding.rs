//! Makes events large or deep. The padding bytes are shared by all events with the same padding. They are in the
//! payload of a notice, or in the signed text of an event with a proof.
//!
//! # Invariants
//!
//! * **Shared.** A page of ten large events consists of ten small texts and ten references to the same bytes. A signed
//!   text begins with the shared bytes, and the hash of this beginning is computed only once.

use std::sync::LazyLock;

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use sha3::{Digest, Keccak256};

use proof::verify::Hash;

/// The maximum number of padding bytes in a page. Clients refuse larger pages without reading them.
const MOST_A_PAGE: usize = 62_000_000;

/// For events of 6 MB.
pub(crate) static LARGE: LazyLock<Padding> = LazyLock::new(|| Padding::of_text(6_000_000));

/// For events of 1 MB.
pub(crate) static MEDIUM: LazyLock<Padding> = LazyLock::new(|| Padding::of_text(1_000_000));

/// For events of 10 kB.
pub(crate) static SMALL: LazyLock<Padding> = LazyLock::new(|| Padding::of_text(10_000));

/// For events whose JSON is 100,000 levels deep.
pub(crate) static DEEP: LazyLock<Padding> = LazyLock::new(|| {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    Padding::new(&deep, &deep)
});

/// A member `padding`, the first member of a JSON object.
pub(crate) struct Padding {
    /// The beginning of a payload without a signed text.
    pub(crate) notice: Bytes,
    /// The beginning of a signed text, in base64.
    pub(crate) signed: Bytes,
    /// A hasher that has already processed `signed`.
    hasher: Keccak256,
}

impl Padding {
    /// Returns the padding for events of about `size` bytes. In a signed text the padding is shorter, because base64
    /// encodes three characters as four.
    fn of_text(size: usize) -> Self {
        let text = |size: usize| format!(r#""{}""#, "x".repeat(size));
        Self::new(&text(size), &text(size / 4 * 3))
    }

    fn new(in_notice: &str, in_signed: &str) -> Self {
        let mut signed = format!(r#"{{"padding":{in_signed}"#);
        // The text after the padding is encoded separately.
        let whole = signed.len().next_multiple_of(3);
        signed.extend(std::iter::repeat_n(' ', whole - signed.len()));
        let signed = STANDARD.encode(signed);
        let hasher = Keccak256::new_with_prefix(&signed);
        Self { notice: format!(r#"{{"padding":{in_notice}"#).into(), signed: signed.into(), hasher }
    }

    /// Returns the hash of a signed text, given the part after the padding.
    pub(crate) fn event_hash(&self, rest: &str) -> Hash {
        Hash(self.hasher.clone().chain_update(rest).finalize().into())
    }

    /// Returns the maximum number of events in a page.
    pub(crate) fn limit(&self) -> usize {
        MOST_A_PAGE / self.notice.len().max(self.signed.len())
    }
}

/// A body that consists of copied bytes and of large parts that other bodies use too.
#[derive(Default)]
pub(crate) struct SharedBody {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl SharedBody {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { done: Vec::new(), open: Vec::with_capacity(bytes) }
    }

    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    pub(crate) fn share(&mut self, bytes: &Bytes) {
        self.done.extend([std::mem::take(&mut self.open).into(), bytes.clone()]);
    }
}

impl From<SharedBody> for Body {
    fn from(SharedBody { mut done, open }: SharedBody) -> Self {
        if done.is_empty() {
            return open.into();
        }
        done.push(open.into());
        Self::from_stream(stream::iter(done.into_iter().map(Ok::<_, std::convert::Infallible>)))
    }
}
