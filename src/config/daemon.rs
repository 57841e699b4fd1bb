//! Settings of the process: its state, its admin address, its log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use reqwest::header::{HeaderMap, HeaderName};

use super::built_in::no_traces;
use super::channel::{self, Channel};
use super::files::{Text, read_pem};
use super::problem::ConfigError;
use super::section::{Reader, Reading, Reported, Section, all};
use super::state;
use super::values::{http_url, size_in, word};
use super::verification;
use ::ledger::store::{PostgresSettings, StateSettings};
use ::operator::SignerNames;
use net::http::{self, Authorities};
use telemetry::Log;
use telemetry::trace::Otlp;

/// The settings for a command that works on the state of this machine. No secret is read, because secrets can be absent
/// while the daemon does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// `[state]` and `[cluster]`: where the state of the channels is stored.
    pub state: StateSettings,
    /// `[log]`: the level and format of the log.
    pub log: Log,
    /// `[verification.signer_names]`: the displayed names of signers.
    pub signer_names: SignerNames,
    /// `[channels.NAME]`, in the order of their names.
    pub channels: Vec<Channel>,
}

impl Local {
    /// Loads only this part: a mistake elsewhere is not an error.
    ///
    /// # Errors
    /// Every problem with this part. If the file cannot be read, only that problem.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        load_part(file, |root| {
            all!(Self {
                state: state::read(root),
                log: read_log(root),
                signer_names: verification::signer_names(root),
                channels: Ok(channel::read_all(root)),
            })
        })
    }
}

/// Loads only `admin.listen`, the address of the health checks: a mistake elsewhere is not an error.
///
/// # Errors
/// Every problem with this part. If the file cannot be read, only that problem.
pub fn load_listen(file: Option<&Path>) -> Result<Option<SocketAddr>, ConfigError> {
    load_part(file, read_listen)
}

/// Loads where each of the two backends keeps its state, whichever is in use: a mistake elsewhere is not an error.
///
/// # Errors
/// Every problem with this part. If the file cannot be read, only that problem.
pub fn load_both_backends(file: Option<&Path>) -> Result<(PathBuf, PostgresSettings), ConfigError> {
    load_part(file, state::read_both)
}

pub(super) fn load_part<T>(
    file: Option<&Path>,
    read: impl FnOnce(&Section<'_>) -> Result<T, Reported>,
) -> Result<T, ConfigError> {
    let reader = Reader::open(&Text::read(file)?, std::env::vars_os())?;
    let part = read(&reader.root());
    reader.finish(part)
}

pub(super) fn read_memory(root: &Section<'_>) -> Result<u64, Reported> {
    let range = ByteSize::mib(32)..=ByteSize::tib(1);
    root.section("limits").required("memory", size_in(range)).map(|ByteSize(bytes)| bytes)
}

pub(super) fn read_listen(root: &Section<'_>) -> Result<Option<SocketAddr>, Reported> {
    root.section("admin").required("listen", |text| match text.trim() {
        "" => Ok(None),
        address => address.parse().map(Some).map_err(|_| {
            "must be an IP address and a port, such as \"127.0.0.1:9464\" or \"[::]:9464\"; \"\" turns it off"
                .to_owned()
        }),
    })
}

/// The host names that requests to the admin listener may use, in addition to its addresses.
pub(super) fn read_hosts(root: &Section<'_>) -> Result<Vec<String>, Reported> {
    let admin = root.section("admin");
    let hosts = admin.list("hosts")?.unwrap_or_default();
    let is_name = |host: &String| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    if hosts.iter().all(is_name) {
        return Ok(hosts);
    }
    Err(admin.wrong("hosts", "must be names of hosts, without a port, such as [\"channeld.internal\"]"))
}

pub(super) fn read_log(root: &Section<'_>) -> Result<Log, Reported> {
    let log = root.section("log");
    all!(Log { level: log.required("level", str::parse), format: log.required("format", word) })
}

/// Where traces are exported.
pub(super) fn read_otlp(root: &Section<'_>) -> Reading<Otlp> {
    let log = root.section("log");
    let endpoint = log.required("otlp_endpoint", |text| match text.trim() {
        "" => Ok(None),
        address => http_url(address).map(Some),
    });
    let headers = log.secret("otlp_headers", headers);
    let authorities = log.file("otlp_ca_file", |path| read_pem(path, Authorities::from_pem));
    let (endpoint, headers, authorities) = (endpoint?, headers?.unwrap_or_default(), authorities?);
    if let Some(endpoint) = &endpoint {
        log.note_plaintext("otlp_endpoint", endpoint, "what traces say");
        if let Some(why) = no_traces() {
            log.wrong("otlp_endpoint", why);
        }
    }
    Ok(endpoint.map(|endpoint| Otlp { endpoint, headers, authorities }))
}

/// Parses headers as in `OTEL_EXPORTER_OTLP_HEADERS`: `name=value`, separated by commas.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let header = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, http::sensitive(value.trim())?))
    };
    let headers = text.split(',').filter(|part| !part.trim().is_empty()).map(header);
    headers.collect::<Option<_>>().ok_or_else(|| "must be headers, such as \"name=value,name=value\"".to_owned())
}
