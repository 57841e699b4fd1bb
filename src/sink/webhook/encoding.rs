//! Compresses bodies.
//!
//! The signature is over the uncompressed body: the frameworks of most receivers decompress a body before the receiver sees
//! it.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::bufread::GzEncoder;

use crate::{Compression, blocking};

/// A body of at least this size, in bytes, is compressed off the async threads.
const LONG: usize = 256 * 1024;

/// The default compression level of zstd.
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// The value of the header `content-encoding`.
    pub(super) fn encoding(self) -> &'static str {
        self.into()
    }
}

/// Compresses a body.
pub(super) async fn encoded(compression: Compression, body: Bytes) -> io::Result<Bytes> {
    if body.len() < LONG { encode(compression, &body) } else { blocking(move || encode(compression, &body)).await }
}

fn encode(compression: Compression, body: &[u8]) -> io::Result<Bytes> {
    let mut encoded = Vec::with_capacity(body.len() / 2);
    match compression {
        Compression::Gzip => {
            GzEncoder::new(body, flate2::Compression::default()).read_to_end(&mut encoded)?;
        }
        Compression::Zstd => {
            zstd::stream::copy_encode(body, &mut encoded, ZSTD_LEVEL)?;
        }
    }
    Ok(encoded.into())
}
