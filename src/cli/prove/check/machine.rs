//! The part of `channeld check --connect` that concerns this machine: whether a daemon could lock the state directory, create
//! its control socket, and listen on its admin address and on the address of its feed. A daemon of this configuration that is already running is no failure.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::timeout;

use super::connect::ConnectionCheck;
use crate::config::Config;
use crate::daemon::{cannot_listen, feed_cannot_listen};
use feed::FeedListener;
use net::Chain;
use operator::api::GetStatus;
use operator::{Listener, Report, Socket};

/// How long to wait for the status of a running daemon.
const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon that answers on the control socket in the state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    None,
    /// It runs a channel of this configuration. The configuration may have changed since it was loaded.
    Own,
    /// All its channels differ from the channels of this configuration.
    Other,
}

/// The checks that fail.
pub(super) async fn failures(config: &Config) -> Vec<ConnectionCheck> {
    let (running, path) = (running(config).await, config.state.path.display().to_string());
    let failure = |what, name: &str, message: String| Some(ConnectionCheck::new(what, name, Err(message)));
    let lock = config.state.in_use().filter(|_| running != Running::Own);
    let lock = lock.and_then(|error| failure("state", &path, error.to_string()));
    let control = Socket::path_in(&config.state.path)
        .err()
        .and_then(|error| failure("control socket", &path, format!("commands could not reach the daemon: {error}")));
    let admin = config.listen.and_then(|address| {
        let error = Listener::check(address).err()?;
        let is_own = error.kind() == ErrorKind::AddrInUse && running == Running::Own;
        let message = format!("{}: {}", cannot_listen(address), Chain(&error));
        failure("admin listener", &address.to_string(), message).filter(|_| !is_own)
    });
    let feed = match &config.feed {
        Some(feed) => FeedListener::bind(&feed.listen).await.err().and_then(|error| {
            let is_own = error.kind() == ErrorKind::AddrInUse && running == Running::Own;
            let message = format!("{}: {}", feed_cannot_listen(&feed.listen, &error), Chain(&error));
            failure("feed", &feed.listen.to_string(), message).filter(|_| !is_own)
        }),
        None => None,
    };
    [lock, control, admin, feed].into_iter().flatten().collect()
}

async fn running(config: &Config) -> Running {
    let status = operator::ask(&config.state.path, &GetStatus { here: true }, "");
    let is_own = |report: &Report| {
        let is_configured = |id| config.channels.iter().any(|channel| channel.channel.id == id);
        report.channels.iter().any(|channel| is_configured(channel.channel_id))
    };
    match timeout(PATIENCE, status).await {
        Ok(Ok(None)) => Running::None,
        Ok(Ok(Some(Ok(report)))) if !is_own(&report) => Running::Other,
        // A daemon that listens but does not answer has probably been started with this configuration.
        _ => Running::Own,
    }
}
