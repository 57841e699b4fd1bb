//! Compresses closed files, and reads compressed files.
//!
//! # Invariants
//!
//! * **The plain file is removed last.** The compressed file is written under a temporary name, synced and then renamed.
//!   The plain file is removed only after the two were compared.
//! * **No other file is replaced.** If a file with the name of the compressed file exists, it stays.
//!
//! # Cancellation
//!
//! `stop` is checked between chunks. An unfinished file is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use flate2::bufread::{GzEncoder, MultiGzDecoder};
use tokio_util::sync::CancellationToken;

use super::name::{Compression, unfinished};
use crate::file::system::{lock, rename_new, sync_directory};

/// The size of the chunks in which files are read and written.
const CHUNK: usize = 128 * 1024;

/// Compresses a closed file, and keeps the plain file. The error is `AlreadyExists` if a file named `packed` exists, and
/// `TimedOut` if `stop` has fired.
pub(crate) fn pack(plain: &Path, packed: &Path, compression: Compression, stop: &CancellationToken) -> io::Result<()> {
    let unfinished = unfinished(packed);
    if let Err(error) = write(compression, plain, &unfinished, stop).and_then(|()| rename_new(&unfinished, packed)) {
        // If this fails, the next run of the upkeep removes the file.
        let _ = fs::remove_file(unfinished);
        return Err(error);
    }
    sync_directory(packed)
}

fn write(compression: Compression, plain: &Path, unfinished: &Path, stop: &CancellationToken) -> io::Result<()> {
    let plain = File::open(plain)?;
    let mut packed = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    lock(&packed)?;
    let read = BufReader::with_capacity(CHUNK, &plain);
    let mut packing: Box<dyn Read + '_> = match compression {
        Compression::Gzip => Box::new(GzEncoder::new(read, flate2::Compression::default())),
        Compression::Zstd => {
            let mut packing = zstd::stream::read::Encoder::with_buffer(read, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            packing.include_checksum(true)?;
            Box::new(packing)
        }
    };
    while io::copy(&mut packing.by_ref().take(CHUNK as u64), &mut packed)? > 0 {
        require_running(stop)?;
    }
    // The compressed file gets the permissions and the owner of the plain file.
    let (from, to) = (plain.metadata()?, packed.metadata()?);
    if (from.uid(), from.gid()) != (to.uid(), to.gid()) {
        fchown(&packed, Some(from.uid()), Some(from.gid()))?;
    }
    packed.set_permissions(from.permissions())?;
    packed.sync_all()
}

/// Opens a file, and decompresses it while reading if `form` is not plain.
pub(crate) fn reader(path: &Path, form: Option<Compression>) -> io::Result<Box<dyn BufRead>> {
    let file = BufReader::with_capacity(CHUNK, File::open(path)?);
    Ok(match form {
        None => Box::new(file),
        Some(Compression::Gzip) => Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(file))),
        Some(Compression::Zstd) => Box::new(BufReader::with_capacity(CHUNK, zstd::Decoder::with_buffer(file)?)),
    })
}

/// Whether a compressed file has the same content as the plain file. The error is `TimedOut` if `stop` has fired.
pub(crate) fn is_same(
    plain: &Path,
    packed: &Path,
    compression: Compression,
    stop: &CancellationToken,
) -> io::Result<bool> {
    let (mut plain, mut packed) = (reader(plain, None)?, reader(packed, Some(compression))?);
    loop {
        require_running(stop)?;
        let (left, right) = (plain.fill_buf()?, packed.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(left.is_empty() && right.is_empty());
        }
        plain.consume(length);
        packed.consume(length);
    }
}

fn require_running(stop: &CancellationToken) -> io::Result<()> {
    if stop.is_cancelled() { Err(io::Error::new(ErrorKind::TimedOut, "stopped")) } else { Ok(()) }
}
