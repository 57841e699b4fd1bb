//! The errors of a configuration, or a command, that needs a part which this program was built without.

use ::ledger::store::HAS_POSTGRES;
use ::sink::is_built_in;
use telemetry::trace::HAS_OTLP;

/// How to get a program with the part.
const REMEDY: &str = "use a released package or image, or build it with `cargo build --release --features";

/// Why a sink of this type cannot be used; `None` if it can.
pub fn not_built_in(kind: &str) -> Option<String> {
    let needs = if kind == "kafka" { ", which needs a C++ compiler and OpenSSL (libssl-dev)" } else { "" };
    (!is_built_in(kind))
        .then(|| format!("is \"{kind}\", and this channeld was built without it: {REMEDY} {kind}`{needs}"))
}

/// Why the console cannot be opened.
#[cfg(not(feature = "console"))]
pub(crate) fn no_console() -> String {
    format!("this channeld was built without the console: {REMEDY} console`")
}

/// Why the state cannot be in PostgreSQL; `None` if it can.
pub(crate) fn no_shared_state() -> Option<String> {
    (!HAS_POSTGRES).then(|| format!("is \"postgres\", and this channeld was built without it: {REMEDY} postgres`"))
}

/// Why traces cannot be exported; `None` if they can.
pub(crate) fn no_traces() -> Option<String> {
    (!HAS_OTLP).then(|| format!("is set, and this channeld was built without the export of traces: {REMEDY} otlp`"))
}
