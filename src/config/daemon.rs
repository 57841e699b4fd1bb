//! The process itself: where it keeps its state, where it answers, what it logs.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use reqwest::header::HeaderName;
use tracing_subscriber::EnvFilter;
use url::Url;

use crate::http;
use crate::trace::{Headers, Otlp};

use super::keys::{Key, Keys, Reported};
use super::secret::{self, Secret};
use super::values::{choice, http_url, path};
use super::{ConfigError, Text, layers};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

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

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// What is logged.
    pub level: LogLevel,
    /// How a line looks.
    pub format: LogFormat,
    /// Where traces are exported; `None` where they are not.
    pub otlp: Option<Otlp>,
}

/// What is logged: a level, or levels by module, in the syntax of [`EnvFilter`], which takes it without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevel(Box<str>);

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogLevel {
    /// The directives.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl State {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, Reported> {
        keys.required(&Key::new("state").at("path"), path).map(|path| Self { path })
    }
}

impl Admin {
    /// Loads this part alone, as [`Config::load`](super::Config::load) loads all of it: what is wrong elsewhere is no
    /// error.
    ///
    /// # Errors
    /// What is wrong with it; where the file cannot be read at all, that.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut keys = layers::merge(&Text::read(file)?, std::env::vars_os())?;
        let admin = Self::read(&mut keys);
        keys.settle(admin)
    }

    pub(super) fn read(keys: &mut Keys) -> Result<Self, Reported> {
        keys.required(&Key::new("admin").at("listen"), listen).map(|listen| Self { listen })
    }
}

impl Log {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, Reported> {
        let log = Key::new("log");
        let lines = Self::read_lines(keys);
        let endpoint = keys.required(&log.at("otlp_endpoint"), endpoint);
        let headers = secret::read_as(keys, &log, "otlp_headers", headers);
        let (endpoint, headers) = (endpoint?, headers?.unwrap_or_default());
        let otlp = endpoint.map(|endpoint| Otlp { endpoint, headers });
        Ok(Self { otlp, ..lines? })
    }

    /// How lines are written, and nothing that is secret: no traces.
    pub(super) fn read_lines(keys: &mut Keys) -> Result<Self, Reported> {
        let log = Key::new("log");
        let level = keys.required(&log.at("level"), level);
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let format = keys.required(&log.at("format"), choice(&formats));
        Ok(Self { level: level?, format: format?, otlp: None })
    }
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
        http::sensitive(value)?;
        Some((name.to_owned(), Secret::new(value)))
    };
    let headers = text.split(',').filter(|part| !part.trim().is_empty()).map(header);
    headers.collect::<Option<_>>().ok_or_else(|| "must be such as \"name=value,name=value\", of headers".to_owned())
}

fn level(text: &str) -> Result<LogLevel, String> {
    let directives = text.trim();
    // To the filter a bare word that is no level is a module to be traced, so that a slip of the pen would silence all
    // the rest.
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let understood = directives.split(',').all(|part| part.contains('=') || is_level(part.trim()));
    if !understood || EnvFilter::try_new(directives).is_err() {
        return Err(format!("must be one of {}, or such as \"info,channeld::api=debug\"", LEVELS.join(", ")));
    }
    Ok(LogLevel(directives.into()))
}
