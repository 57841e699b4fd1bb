//! Both ends of the control socket: the whole operator API over a Unix socket in the state directory.
//!
//! # Invariants
//!
//! * **Only the owner can connect.** The socket has mode 0600 before it gets its name.
//! * **Bounded:** see [`BOUNDS`].
//! * **Optional.** A daemon whose state path is too long for a socket runs without a socket and logs the reason.
//!
//! # Cancellation
//!
//! Dropping [`Socket::serve`] drops the requests of its clients. A dropped request may or may not have made its change.

use std::convert::Infallible;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::HeaderValue;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tracing::debug;

use super::router::{self, Sources};
use super::server::{self, Bounds};
use crate::request::{BY, MAX_ANSWER, asked, decode, http_request};
use crate::{Refusal, Request};
use ledger::store::shared::{ForwardedRequest, ForwardedResponse};

const NAME: &str = "control.sock";

/// The directory in which the socket is created before it gets its name. A killed process may leave the directory behind.
/// The next process removes it.
const CLOSED: &str = ".control";

/// The maximum length of a path in a socket address, without its terminating zero.
const MAX_PATH: usize = 107;

const BOUNDS: Bounds =
    Bounds { clients: 16, body: 1024 * 1024, each_step: Duration::from_secs(10), ends_with_client: false };

/// A listening socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens in a state directory that this process has locked. Replaces any socket that an earlier process left there.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn listen(directory: &Path) -> io::Result<Self> {
        let path = Self::path_in(directory)?;
        let listener = bind_private(&path, &directory.join(CLOSED))?;
        Ok(Self { listener, path })
    }

    /// The path of the socket in a state directory.
    ///
    /// # Errors
    /// If the path is too long for a socket.
    pub fn path_in(directory: &Path) -> io::Result<PathBuf> {
        let path = directory.join(NAME);
        if path.as_os_str().len() > MAX_PATH {
            let message = format!("{} is longer than {MAX_PATH} bytes: choose a shorter state.path", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(path)
    }

    /// Serves until it is dropped.
    pub async fn serve(self, sources: Sources) -> Infallible {
        let accept = async || self.listener.accept().await.map(|(client, _)| client);
        server::serve(accept, router::complete(sources), BOUNDS).await
    }
}

/// Listens on a socket to which only its owner can connect. Replaces a file that has its path. The directory `closed` exists only
/// while this function runs, or if the process was killed meanwhile.
///
/// # Errors
/// If the socket cannot be created.
pub fn bind_private(path: &Path, closed: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_dir_all(closed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Only the owner can enter this directory, so no other user can connect before the mode of the socket is set.
    DirBuilder::new().mode(0o700).create(closed)?;
    let unnamed = closed.join("s");
    let listener = UnixListener::bind(&unnamed)?;
    std::fs::set_permissions(&unnamed, Permissions::from_mode(0o600))?;
    std::fs::rename(&unnamed, path)?;
    std::fs::remove_dir(closed)?;
    Ok(listener)
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            debug!(%error, "the control socket could not be removed");
        }
    }
}

/// Sends a request to the daemon whose state is in `directory`. Returns `None` if no daemon listens. `by` names the person
/// who makes the request, for the daemon's log. If the daemon does not answer, the request may have been carried out.
///
/// # Errors
/// The refusal of the daemon, or the reason why it did not answer.
pub async fn ask<R: Request>(
    directory: &Path,
    request: &R,
    by: &str,
) -> io::Result<Option<Result<R::Answer, Refusal>>> {
    let Some(answer) = send(directory, asked(request), by).await? else { return Ok(None) };
    Ok(Some(decode(&answer)))
}

/// Sends the parts of an HTTP request. `None` if no daemon listens.
async fn send(directory: &Path, asked: ForwardedRequest, by: &str) -> io::Result<Option<ForwardedResponse>> {
    use io::ErrorKind::{ConnectionRefused, InvalidInput, NotFound};
    let daemon = match UnixStream::connect(directory.join(NAME)).await {
        Ok(daemon) => daemon,
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | InvalidInput) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(daemon)).await.map_err(io::Error::other)?;
    let asking = async {
        let mut request = http_request(asked).expect("an encoded path and these headers are well formed");
        if let Some(by) = HeaderValue::from_str(by).ok().filter(|by| !by.is_empty()) {
            request.headers_mut().insert(BY, by);
        }
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status().as_u16();
        let body = to_bytes(Body::new(answer.into_body()), MAX_ANSWER).await.map_err(io::Error::other)?;
        Ok(ForwardedResponse { status, body: body.into() })
    };
    tokio::select! {
        answer = asking => answer.map(Some),
        Err(error) = connection => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_path_that_is_too_long_is_refused_with_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let long = directory.path().join("x".repeat(MAX_PATH));
        let refused = Socket::listen(&long).unwrap_err().to_string();
        assert!(refused.contains("choose a shorter state.path"), "{refused}");
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_with_owner_only_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        std::fs::write(&path, "left").unwrap();
        std::fs::create_dir(directory.path().join(CLOSED)).unwrap();
        std::fs::write(directory.path().join(CLOSED).join("s"), "left").unwrap();
        let socket = Socket::listen(directory.path()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
        drop(socket);
        assert!(!path.exists());
    }
}
