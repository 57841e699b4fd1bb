//! Reads the environment: variables begin with `CHANNELD_`, and `__` separates levels.
//!
//! A variable is written in upper case, and its name cannot contain a dash. The names of channels and sinks in the file are
//! therefore compared without regard to case, and with `_` instead of `-`: `CHANNELD_CHANNELS__EAST_COAST__START` sets
//! `channels.East-Coast.start`.

use std::collections::BTreeMap;
use std::ffi::OsString;

use figment::value::Value;
use figment::{Figment, Metadata};

use super::{Layer, merged};
use crate::config::key::{Key, PREFIX, plain};
use crate::config::problem::ConfigProblem;

/// The variable that names the configuration file. Only the command line reads this variable. The variable sets no key.
pub const FILE_VARIABLE: &str = "CHANNELD_CONFIG";

/// Whether a variable of this process sets a key inside a table.
pub fn is_in_environment() -> bool {
    let is_key = |name: &str| name.strip_prefix(PREFIX).is_some_and(|levels| levels.contains("__"));
    std::env::vars_os().any(|(name, _)| name.to_str().is_some_and(is_key))
}

/// OpenTelemetry's own variables. Each sets the key next to it, unless the file or another variable sets this key.
const TELEMETRY: [(&str, &str); 2] =
    [("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint"), ("OTEL_EXPORTER_OTLP_CERTIFICATE", "otlp_ca_file")];

/// Merges OpenTelemetry's own variables over the defaults.
pub(crate) fn add_telemetry(mut layers: Figment, variables: &BTreeMap<String, OsString>) -> Figment {
    for (variable, key) in TELEMETRY {
        if let Some(text) = variables.get(variable).and_then(|text| text.to_str()).filter(|text| !text.is_empty()) {
            layers = layers.merge(Layer::value(origin(variable), &Key::default().at("log").at(key), text.to_owned()));
        }
    }
    layers
}

/// Merges the variables over the layers, in the order of the variables' names. Also returns the problems with the
/// variables, by the keys that they set.
pub(crate) fn add(mut layers: Figment, variables: &BTreeMap<String, OsString>) -> (Figment, Vec<(Key, ConfigProblem)>) {
    let (written, mut set, mut problems) = (merged(&layers), BTreeMap::new(), Vec::new());
    for (variable, text) in variables.iter().filter(|(variable, _)| *variable != FILE_VARIABLE) {
        let Some(levels) = variable.strip_prefix(PREFIX).filter(|levels| !is_kubernetes(levels)) else { continue };
        let origin = origin(variable);
        let read = find(levels, &written).and_then(|key| match (text.to_str(), set.get(&key)) {
            _ if key.find_in(&written).is_some_and(|value| value.as_dict().is_some()) => {
                Err((key, "is a table; name one of its keys after another __".to_owned()))
            }
            (_, Some(other)) => Err((key, format!("is also set by {other}; keep one"))),
            (None, None) => Err((key, "is not UTF-8 text".to_owned())),
            (Some(text), None) => Ok((key, text.to_owned())),
        });
        match read {
            Ok((key, text)) => {
                layers = layers.merge(Layer::value(origin, &key, text));
                set.insert(key, variable);
            }
            Err((key, message)) => {
                let problem = ConfigProblem { key: key.to_string(), origin: Some(origin.name.into_owned()), message };
                problems.push((key, problem));
            }
        }
    }
    (layers, problems)
}

fn origin(variable: &str) -> Metadata {
    Metadata::from(format!("environment variable {variable}"), variable)
}

/// Returns the key that a variable sets. The error is a key and its problem.
fn find(levels: &str, written: &Value) -> Result<Key, (Key, String)> {
    let mut key = Key::default();
    for level in levels.split("__").map(str::to_ascii_lowercase) {
        if level.is_empty() {
            return Err((key.at(""), "has an empty level; write __ between levels and nowhere else".to_owned()));
        }
        let table = key.find_in(written).and_then(Value::as_dict);
        let alike = |known: &&String| plain(known) == plain(&level);
        let found: Vec<_> = table.into_iter().flat_map(|table| table.keys()).filter(alike).collect();
        if let [one, other, ..] = found[..] {
            return Err((key.at(&level), format!("is ambiguous ({one} or {other}); set it in the file")));
        }
        key = key.at(found.first().map_or(&level, |known| known));
    }
    Ok(key)
}

/// Whether Kubernetes sets a variable like this for a Service whose name begins with `channeld` ("Discovering services"
/// in its documentation). These variables announce addresses and are not settings.
fn is_kubernetes(levels: &str) -> bool {
    let words: Vec<_> = levels.split('_').collect();
    let is_of_service = |at: usize| match words[at..] {
        ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] | ["PORT"] => true,
        ["PORT", number, "TCP" | "UDP" | "SCTP", ..] => number.parse::<u16>().is_ok(),
        _ => false,
    };
    !levels.contains("__") && (0..words.len()).any(is_of_service)
}
