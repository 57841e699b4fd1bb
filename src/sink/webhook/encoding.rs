//! Compressed bodies.
//!
//! What is signed is the body before it is compressed: most receivers are given that by what they are built on.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::bufread::GzEncoder;

use crate::{Compression, blocking};

/// A longer body is compressed off the async threads.
const LONG: usize = 256 * 1024;

/// The level of zstd where nothing else is asked for.
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// As the header `content-encoding` calls it.
    pub(super) fn encoding(self) -> &'static str {
        self.into()
    }
}

/// A body as it is sent.
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
