//! `[admin]`, `[limits]` and `[log]`: the process itself.

use std::net::SocketAddr;

use bytesize::ByteSize;
use reqwest::header::{HeaderMap, HeaderName};

use super::tls::read_authorities;
use crate::config::built_in::no_traces;
use crate::config::reading::values::{http_url, size_in, word};
use crate::config::reading::{Reading, Reported, Section, all};
use net::http;
use telemetry::Log;
use telemetry::trace::Otlp;

pub(crate) fn read_memory(root: &Section<'_>) -> Result<u64, Reported> {
    let range = ByteSize::mib(32)..=ByteSize::tib(1);
    root.section("limits").required("memory", size_in(range)).map(|ByteSize(bytes)| bytes)
}

pub(crate) fn read_listen(root: &Section<'_>) -> Result<Option<SocketAddr>, Reported> {
    root.section("admin").required("listen", |text| match text.trim() {
        "" => Ok(None),
        address => address.parse().map(Some).map_err(|_| {
            "must be an IP address and a port, such as \"127.0.0.1:9464\" or \"[::]:9464\"; \"\" turns it off"
                .to_owned()
        }),
    })
}

/// The host names that requests to the admin listener may use, in addition to its addresses.
pub(crate) fn read_hosts(root: &Section<'_>) -> Result<Vec<String>, Reported> {
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

pub(crate) fn read_log(root: &Section<'_>) -> Result<Log, Reported> {
    let log = root.section("log");
    all!(Log { level: log.required("level", str::parse), format: log.required("format", word) })
}

/// Where traces are exported.
pub(crate) fn read_otlp(root: &Section<'_>) -> Reading<Otlp> {
    let log = root.section("log");
    let endpoint = log.required("otlp_endpoint", |text| match text.trim() {
        "" => Ok(None),
        address => http_url(address).map(Some),
    });
    let headers = log.secret("otlp_headers", headers);
    let authorities = read_authorities(&log, "otlp_ca_file");
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
