//! The process itself: where it keeps its state, where it answers, what it logs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use reqwest::header::HeaderName;
use url::Url;

use super::channel::{self, Channel};
use super::layers::read_part;
use super::problem::ConfigError;
use super::table::{Merged, Reading, Reported, Table};
use super::values::{http_url, path, word};
use crate::http;
use crate::telemetry::Log;
use crate::telemetry::trace::{Headers, Otlp};

/// `[state]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The directory of cursors, late proofs and quarantine.
    pub path: PathBuf,
}

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where health, metrics and status are served; `None` where they are turned off.
    pub listen: Option<SocketAddr>,
}

/// The part that a command needs which works on the state of this machine. No secret is read: while the daemon does not
/// run, its secrets may be absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// `[state]`: where it is.
    pub state: State,
    /// `[log]`: what is logged.
    pub log: Log,
    /// `[channels.NAME]`, in the order of their names.
    pub channels: Vec<Channel>,
}

impl Admin {
    /// Loads this part alone, as [`Config::load`](super::Config::load) loads all of it: a mistake elsewhere is no error.
    ///
    /// # Errors
    /// What is wrong with it; where the file cannot be read at all, that.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        read_part(file, |merged| Self::read(&mut merged.table("admin")))
    }

    pub(super) fn read(admin: &mut Table<'_>) -> Result<Self, Reported> {
        Ok(Self { listen: admin.required("listen", listen)? })
    }
}

impl Local {
    /// Loads this part alone, as [`Config::load`](super::Config::load) loads all of it: a mistake elsewhere is no error.
    ///
    /// # Errors
    /// What is wrong with it; where the file cannot be read at all, that.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        read_part(file, Self::read)
    }

    fn read(merged: &mut Merged) -> Result<Self, Reported> {
        let (state, log) = (State::read(&mut merged.table("state")), read_log(&mut merged.table("log")));
        let channels = channel::read_all(merged);
        Ok(Self { state: state?, log: log?, channels: channels? })
    }
}

impl State {
    pub(super) fn read(state: &mut Table<'_>) -> Result<Self, Reported> {
        Ok(Self { path: state.required("path", path)? })
    }
}

pub(super) fn read_log(log: &mut Table<'_>) -> Result<Log, Reported> {
    let level = log.required("level", str::parse);
    let format = log.required("format", word);
    Ok(Log { level: level?, format: format? })
}

/// Where traces are exported.
pub(super) fn read_otlp(log: &mut Table<'_>) -> Reading<Otlp> {
    let endpoint = log.required("otlp_endpoint", endpoint);
    let headers = log.secret("otlp_headers", headers);
    let (endpoint, headers) = (endpoint?, headers?.unwrap_or_default());
    Ok(endpoint.map(|endpoint| Otlp { endpoint, headers }))
}

fn listen(text: &str) -> Result<Option<SocketAddr>, String> {
    match text.trim() {
        "" => Ok(None),
        address => address.parse().map(Some).map_err(|_| {
            "must be an IP address and a port, such as \"127.0.0.1:9464\" or \"[::]:9464\"; \"\" turns it off"
                .to_owned()
        }),
    }
}

fn endpoint(text: &str) -> Result<Option<Url>, String> {
    if text.trim().is_empty() { Ok(None) } else { http_url(text).map(Some) }
}

/// As in `OTEL_EXPORTER_OTLP_HEADERS`: `name=value`, with commas between.
fn headers(text: &str) -> Result<Headers, String> {
    let header = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name.to_owned(), http::sensitive(value)?))
    };
    let headers = text.split(',').filter(|part| !part.trim().is_empty()).map(header);
    headers.collect::<Option<_>>().ok_or_else(|| "must be headers, such as \"name=value,name=value\"".to_owned())
}
