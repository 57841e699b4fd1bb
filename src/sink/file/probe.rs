//! Whether a file could be written, without opening it: a daemon may have it, and one that is not there shall not be made.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{Access, access};

use crate::sink::SinkError;

/// Looks at the file or, where there is none, at the directory that it would be made in.
pub(super) fn look_at(path: &Path) -> Result<String, SinkError> {
    let failed = |doing: String| move |source: io::Error| SinkError::Io { doing, source };
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            let source = io::Error::new(ErrorKind::InvalidInput, "it is no regular file");
            Err(failed(format!("looking at {}", path.display()))(source))
        }
        Ok(metadata) => {
            let may = access(path, Access::READ_OK | Access::WRITE_OK).map_err(io::Error::from);
            may.map_err(failed(format!("{} cannot be read and written by this user", path.display())))?;
            Ok(format!("{} bytes are in it, and this user may write more", metadata.len()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let may = access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from);
            may.map_err(failed(format!("no file can be made in {} by this user", directory.display())))?;
            Ok(format!("it will be made in {}", directory.display()))
        }
        Err(error) => Err(failed(format!("looking at {}", path.display()))(error)),
    }
}
