//! Compressing a closed file, and reading it again.
//!
//! # Invariants
//!
//! * **The plain file goes last.** It is read into an unfinished file beside it, which is synced and then renamed. The
//!   plain one is removed only after the compressed one has been read back and holds the same. A crash leaves, before the
//!   renaming, an unfinished file, which is removed and made again; after it, both files, which are compared.
//! * **No other file is replaced.** A file that already has the name of the compressed one stays.
//!
//! # Cancellation
//!
//! `stop` is looked at between chunks. What was not finished is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use strum::{EnumString, IntoStaticStr};
use tokio_util::sync::CancellationToken;

use super::closed::ClosedFiles;
use super::opening::{lock, rename_new, sync_directory};

/// Read or written at once.
const CHUNK: usize = 128 * 1024;

/// How closed files are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
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

    /// A name without that ending, and which it had.
    pub(super) fn split(name: &str) -> (&str, Option<Self>) {
        let packed = [Self::Gzip, Self::Zstd].map(|form| Some((name.strip_suffix(form.ending())?, Some(form))));
        packed.into_iter().flatten().next().unwrap_or((name, None))
    }
}

/// Compresses a closed file, and leaves the plain one beside it.
///
/// # Errors
/// `AlreadyExists` where there is such a compressed file, `TimedOut` where `stop` has fired; whatever the system says.
pub(super) fn pack(
    files: &ClosedFiles,
    name: &str,
    compression: Compression,
    stop: &CancellationToken,
) -> io::Result<()> {
    let (plain, packed) = (files.path(name, None), files.path(name, Some(compression)));
    let unfinished = files.unfinished_path(name, compression);
    let written = write(compression, &plain, &unfinished, stop).and_then(|()| rename_new(&unfinished, &packed));
    if let Err(error) = written {
        // Where it cannot be removed now, it is when closed files are looked after again.
        let _ = fs::remove_file(unfinished);
        return Err(error);
    }
    sync_directory(&packed)
}

fn write(compression: Compression, plain: &Path, unfinished: &Path, stop: &CancellationToken) -> io::Result<()> {
    let plain = File::open(plain)?;
    let packed = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    lock(&packed)?;
    let packed = match compression {
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(packed, flate2::Compression::default());
            copy(&plain, &mut encoder, stop)?;
            encoder.finish()?
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(packed, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            encoder.include_checksum(true)?;
            copy(&plain, &mut encoder, stop)?;
            encoder.finish()?
        }
    };
    inherit(&plain, &packed)?;
    packed.sync_all()
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
pub(super) fn reader(path: &Path, form: Option<Compression>) -> io::Result<Box<dyn BufRead>> {
    let file = BufReader::with_capacity(CHUNK, File::open(path)?);
    Ok(match form {
        None => Box::new(file),
        Some(Compression::Gzip) => Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(file))),
        Some(Compression::Zstd) => Box::new(BufReader::with_capacity(CHUNK, zstd::Decoder::with_buffer(file)?)),
    })
}

/// Whether a compressed file holds what the plain one does.
///
/// # Errors
/// As [`pack`]; whatever the decoder says of a file that cannot be read to its end.
pub(super) fn is_same(
    files: &ClosedFiles,
    name: &str,
    compression: Compression,
    stop: &CancellationToken,
) -> io::Result<bool> {
    let mut plain = reader(&files.path(name, None), None)?;
    let mut packed = reader(&files.path(name, Some(compression)), Some(compression))?;
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

fn copy(plain: &File, to: &mut impl Write, stop: &CancellationToken) -> io::Result<()> {
    let mut plain = BufReader::with_capacity(CHUNK, plain);
    loop {
        require_running(stop)?;
        let chunk = plain.fill_buf()?;
        let length = chunk.len();
        if length == 0 {
            return Ok(());
        }
        to.write_all(chunk)?;
        plain.consume(length);
    }
}

fn require_running(stop: &CancellationToken) -> io::Result<()> {
    if stop.is_cancelled() { Err(io::Error::new(ErrorKind::TimedOut, "stopped")) } else { Ok(()) }
}
