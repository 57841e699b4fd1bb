//! The control socket: how a command reaches the process that has the state open. One JSON line each way.
//!
//! # Invariants
//!
//! * **The owner's alone.** It has mode 0600 before it has its name.
//! * **Bounded.** So many clients, so long a request, so long a wait for it.
//! * **Never in the way.** A daemon without a socket, for a path that is too long, runs all the same, and says so.
//!
//! # Cancellation
//!
//! A client that leaves stops nothing that was begun: see [`Operations`].

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::{Answer, Operations, Refusal, Request};

const NAME: &str = "control.sock";

/// Where the socket is made before it has its name. What a process leaves of it when it is killed, the next removes.
const BEGINNING: &str = ".control";

/// What the address of a socket can hold, less its end.
const MAX_PATH: usize = 107;

const MAX_CLIENTS: usize = 16;
const MAX_REQUEST: u64 = 1024 * 1024;
const MAX_ANSWER: u64 = 256 * 1024 * 1024;

/// How long a client may take to ask, or to take its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The wait after a client could not be let in.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// A listening socket. Its file goes with it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens in a state directory that this process has locked, in place of whatever an earlier process left there.
    ///
    /// # Errors
    /// If the path is too long for a socket, or the file system does not let us.
    pub fn listen(directory: &Path) -> io::Result<Self> {
        let path = directory.join(NAME);
        if path.as_os_str().len() > MAX_PATH {
            let message = format!("{} is longer than {MAX_PATH} bytes: choose a shorter state.path", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        // Nobody else reaches into a directory that is the owner's alone, so that nobody connects before the mode is right.
        let closed = directory.join(BEGINNING);
        remove(&closed)?;
        DirBuilder::new().mode(0o700).create(&closed)?;
        let beginning = closed.join("s");
        let listener = UnixListener::bind(&beginning)?;
        std::fs::set_permissions(&beginning, Permissions::from_mode(0o600))?;
        std::fs::rename(&beginning, &path)?;
        std::fs::remove_dir(&closed)?;
        Ok(Self { listener, path })
    }

    /// Answers until it is dropped, each request with the operations of that moment.
    pub async fn serve(self, operations: watch::Receiver<Arc<Operations>>) {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if clients.len() < MAX_CLIENTS => match accepted {
                    Ok((client, _)) => {
                        let operations = operations.borrow().clone();
                        clients.spawn(serve(client, operations));
                    }
                    Err(error) => {
                        warn!(%error, "a client of the control socket could not be let in");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                },
                Some(_) = clients.join_next() => {}
            }
        }
    }
}

/// Removes a directory, if there is one.
fn remove(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            debug!(%error, "the control socket could not be removed");
        }
    }
}

async fn serve(mut client: UnixStream, operations: Arc<Operations>) {
    if let Err(error) = converse(&mut client, &operations).await {
        debug!(%error, "a client of the control socket left");
    }
}

async fn converse(client: &mut UnixStream, operations: &Operations) -> io::Result<()> {
    let request = within(read_line(client, MAX_REQUEST)).await?;
    let answer = match serde_json::from_slice::<Request>(&request) {
        Ok(request) => operations.answer(request).await,
        Err(_) => {
            Err(Refusal::Failed("the running daemon does not know this request: it is of another version".into()))
        }
    };
    within(write_line(client, &answer)).await
}

/// Asks the daemon that listens in a state directory; `None` where none does.
///
/// # Errors
/// If it does not answer. What was asked may have been done.
pub async fn ask(directory: &Path, request: &Request) -> io::Result<Option<Result<Answer, Refusal>>> {
    use io::ErrorKind::{ConnectionRefused, InvalidInput, NotFound};
    let mut daemon = match UnixStream::connect(directory.join(NAME)).await {
        Ok(daemon) => daemon,
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | InvalidInput) => return Ok(None),
        Err(error) => return Err(error),
    };
    write_line(&mut daemon, request).await?;
    let answer = read_line(&mut daemon, MAX_ANSWER).await?;
    Ok(Some(serde_json::from_slice(&answer)?))
}

async fn read_line(from: &mut UnixStream, limit: u64) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(from.take(limit)).read_until(b'\n', &mut line).await?;
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

async fn write_line<T: serde::Serialize>(to: &mut UnixStream, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line).await
}

async fn within<T>(doing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, doing).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_no_address_holds_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let long = directory.path().join("x".repeat(MAX_PATH));
        let refused = Socket::listen(&long).unwrap_err().to_string();
        assert!(refused.contains("choose a shorter state.path"), "{refused}");
    }

    #[tokio::test]
    async fn what_an_earlier_process_left_is_replaced_and_the_mode_is_the_owners() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        std::fs::write(&path, "left").unwrap();
        std::fs::create_dir(directory.path().join(BEGINNING)).unwrap();
        std::fs::write(directory.path().join(BEGINNING).join("s"), "left").unwrap();
        let socket = Socket::listen(directory.path()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
        drop(socket);
        assert!(!path.exists());
    }
}
