//! Small files: the operator's configuration and the secrets beside it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than any configuration or secret needs, and little enough to hold in memory.
const FILE_LIMIT: usize = 64 * 1024;

/// Reads a whole file as text. The error continues the sentence "the file …".
pub(super) fn read_bounded(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let mut bytes = Vec::new();
    let limit = FILE_LIMIT as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > FILE_LIMIT {
        return Err(format!("is larger than {} KiB", FILE_LIMIT / 1024));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}
