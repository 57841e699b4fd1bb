//! Small files: the operator's configuration and the secrets beside it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than any secret needs, and little enough to hold in memory.
const SECRET_LIMIT: usize = 64 * 1024;

/// Reads the whole file of a secret as text. The error continues the sentence "the file …".
pub(crate) fn read_secret(path: &Path) -> Result<String, String> {
    read_up_to(path, SECRET_LIMIT)
}

/// As [`read_secret`], with another bound: a number of bytes, a multiple of 1024.
pub(crate) fn read_up_to(path: &Path, bound: usize) -> Result<String, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let mut bytes = Vec::new();
    file.take(bound as u64 + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > bound {
        return Err(format!("is larger than {} KiB", bound / 1024));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}
