//! `[admin]`, `[limits]` and `[log]`: the process itself.

use std::net::SocketAddr;

use bytesize::ByteSize;
use reqwest::header::{HeaderMap, HeaderName};

use super::server::read_authorities;
use crate::config::problem::built_without;
use crate::config::reading::values::{http_url, size_in, unless_empty, word};
use crate::config::reading::{Reading, Reported, Section, all};
use net::http;
use telemetry::Log;
use telemetry::trace::{HAS_OTLP, Otlp};

pub(crate) fn read_memory(root: &Section<'_>) -> Result<u64, Reported> {
    let range = ByteSize::mib(32)..=ByteSize::tib(1);
    root.section("limits").required("memory", size_in(range))
}

pub(crate) fn read_listen(root: &Section<'_>) -> Result<Option<SocketAddr>, Reported> {
    const MESSAGE: &str =
        "must be an IP address and a port, such as \"127.0.0.1:9464\" or \"[::]:9464\"; \"\" turns it off";
    root.section("admin").required("listen", unless_empty(|text| text.parse().map_err(|_| MESSAGE.to_owned())))
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
    let endpoint = log.required("otlp_endpoint", unless_empty(http_url));
    let headers = log.secret("otlp_headers", headers);
    let authorities = read_authorities(&log, "otlp_ca_file");
    let (endpoint, headers, authorities) = (endpoint?, headers?.unwrap_or_default(), authorities?);
    let Some(endpoint) = endpoint else { return Ok(None) };
    log.note_plaintext("otlp_endpoint", &endpoint, "the content of traces");
    if !HAS_OTLP {
        let why = built_without("the export of traces", "otlp");
        log.wrong("otlp_endpoint", format!("is set, and {why}"));
    }
    Ok(Some(Otlp { endpoint, headers, authorities }))
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
