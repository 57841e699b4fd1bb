//! Compressing a closed file, and reading it again.
//!
//! # Invariants
//!
//! * **The plain file goes last.** It is read into an unfinished file beside it, which is synced and then renamed; the
//!   plain one is removed only after the compressed one has been read back and found to hold the same. A crash leaves,
//!   before the renaming, an unfinished file, which is thrown away and made anew; after it, both, which are compared.
//! * **Nothing of others is replaced.** A file that already has the name of the compressed one stays.
//!
//! # Cancellation
//!
//! `stop` is looked at between chunks. What was not finished is thrown away.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use tokio_util::sync::CancellationToken;

use super::opening::{lock, rename_new, sync_directory};

/// Looked at or written at once.
const CHUNK: usize = 128 * 1024;

/// How closed files are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    /// As `gzip` does.
    Gzip,
    /// As `zstd` does, with a checksum.
    Zstd,
}

impl Compression {
    /// What a compressed file's name ends with.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }

    /// A name without that ending, and whose it was.
    pub(super) fn split(name: &str) -> (&str, Option<Self>) {
        for compression in [Self::Gzip, Self::Zstd] {
            if let Some(name) = name.strip_suffix(compression.ending()) {
                return (name, Some(compression));
            }
        }
        (name, None)
    }
}

/// Compresses a file under another name.
///
/// # Errors
/// `AlreadyExists` where there is a file of that name, `Interrupted` where `stop` has fired; whatever the system says.
pub(super) fn pack(
    compression: Compression,
    plain: &Path,
    unfinished: &Path,
    packed: &Path,
    stop: &CancellationToken,
) -> io::Result<()> {
    let written = write(compression, plain, unfinished, stop).and_then(|()| rename_new(unfinished, packed));
    if let Err(error) = written {
        // Whatever cannot be removed now is at the next look.
        let _ = std::fs::remove_file(unfinished);
        return Err(error);
    }
    sync_directory(packed)
}

fn write(compression: Compression, plain: &Path, unfinished: &Path, stop: &CancellationToken) -> io::Result<()> {
    let mut from = File::open(plain)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    lock(&file)?;
    let file = match compression {
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(file, flate2::Compression::default());
            copy(&mut from, &mut encoder, stop)?;
            encoder.finish()?
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            encoder.include_checksum(true)?;
            copy(&mut from, &mut encoder, stop)?;
            encoder.finish()?
        }
    };
    inherit(&from, &file)?;
    file.sync_all()
}

/// Gives a compressed file the permissions and the owner of the plain one.
fn inherit(plain: &File, packed: &File) -> io::Result<()> {
    let (from, to) = (plain.metadata()?, packed.metadata()?);
    if (from.uid(), from.gid()) != (to.uid(), to.gid()) {
        fchown(packed, Some(from.uid()), Some(from.gid()))?;
    }
    packed.set_permissions(from.permissions())
}

/// What a file holds, decompressed where it is not plain.
pub(super) fn reader(path: &Path, compression: Option<Compression>) -> io::Result<Box<dyn BufRead>> {
    let file = BufReader::with_capacity(CHUNK, File::open(path)?);
    Ok(match compression {
        None => Box::new(file),
        Some(Compression::Gzip) => Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(file))),
        Some(Compression::Zstd) => Box::new(BufReader::with_capacity(CHUNK, zstd::Decoder::with_buffer(file)?)),
    })
}

/// Whether a compressed file holds what the plain one does.
///
/// # Errors
/// As [`pack`]; a compressed file that cannot be read to its end is an error of the kind the decoder gives it.
pub(super) fn same(
    plain: &Path,
    packed: &Path,
    compression: Compression,
    stop: &CancellationToken,
) -> io::Result<bool> {
    let (mut one, mut other) = (reader(plain, None)?, reader(packed, Some(compression))?);
    loop {
        going_on(stop)?;
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(left.is_empty() && right.is_empty());
        }
        one.consume(length);
        other.consume(length);
    }
}

fn copy(from: &mut File, to: &mut impl Write, stop: &CancellationToken) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        going_on(stop)?;
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => to.write_all(&chunk[..read])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn going_on(stop: &CancellationToken) -> io::Result<()> {
    if stop.is_cancelled() { Err(io::Error::new(ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
}
