//! Reads the environment: variables begin with `CHANNELD_`, and `__` separates levels.
//!
//! Variable names are upper-case and are read in lower case, and a shell variable cannot contain a dash. The name of a
//! channel or sink in the file is therefore matched without regard to case, and with `_` for `-`:
//! `CHANNELD_CHANNELS__EAST_COAST__START` sets `channels.East-Coast.start`.

use std::collections::BTreeMap;
use std::ffi::OsString;

use figment::Figment;
use figment::value::Value;

use crate::config::key::{Key, PREFIX, plain};
use crate::config::problem::Problem;
use crate::config::sources::layer::{Layer, merged};

/// Names the configuration file. The command line uses this variable. It is not a key.
pub const FILE_VARIABLE: &str = "CHANNELD_CONFIG";

/// The beginning of the origin of a value that a variable has set.
pub(crate) const ENVIRONMENT: &str = "environment variable ";

/// OpenTelemetry's own variables, and the keys that they set if nothing else does.
const TELEMETRY: [(&str, &str); 2] =
    [("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint"), ("OTEL_EXPORTER_OTLP_CERTIFICATE", "otlp_ca_file")];

/// Merges OpenTelemetry's own variables over the defaults.
pub(crate) fn add_telemetry(defaults: Figment, variables: &[(OsString, OsString)]) -> Figment {
    let set = |name: &str| variables.iter().find(|(variable, _)| *variable == *name)?.1.clone().into_string().ok();
    TELEMETRY.iter().fold(defaults, |layers, (variable, key)| match set(variable) {
        Some(text) if !text.is_empty() => {
            let key = Key::default().at("log").at(key);
            layers.merge(Layer::value(format!("{ENVIRONMENT}{variable}"), &key, text))
        }
        _ => layers,
    })
}

/// Merges the variables over the layers, in the order of their names. Also returns the problems with them, by their keys.
pub(crate) fn add(
    mut layers: Figment,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> (Figment, Vec<(Key, Problem)>) {
    let named = variables.into_iter().map(|(name, text)| (name.to_string_lossy().into_owned(), text));
    let (written, mut set, mut problems) = (merged(&layers), BTreeMap::new(), Vec::new());
    for (variable, text) in named.collect::<BTreeMap<_, _>>() {
        let Some(levels) = variable.strip_prefix(PREFIX).filter(|levels| !is_kubernetes(levels)) else { continue };
        if variable == FILE_VARIABLE {
            continue;
        }
        let origin = format!("{ENVIRONMENT}{variable}");
        let read = find(levels, &written).and_then(|key| match (text.into_string(), set.get(&key)) {
            _ if key.find_in(&written).is_some_and(|value| value.as_dict().is_some()) => {
                Err((key, "is a table; name one of its keys after another __".to_owned()))
            }
            (_, Some(other)) => Err((key, format!("is also set by {other}; keep one"))),
            (Err(_), None) => Err((key, "is not UTF-8 text".to_owned())),
            (Ok(text), None) => Ok((key, text)),
        });
        match read {
            Ok((key, text)) => {
                layers = layers.merge(Layer::value(origin, &key, text));
                set.insert(key, variable);
            }
            Err((key, message)) => {
                let problem = Problem { key: key.to_string(), origin: Some(origin), message };
                problems.push((key, problem));
            }
        }
    }
    (layers, problems)
}

/// Returns the key that a variable sets, or a key and its problem.
fn find(levels: &str, written: &Value) -> Result<Key, (Key, String)> {
    levels.split("__").try_fold(Key::default(), |table, level| {
        let name = level.to_ascii_lowercase();
        match resolve(&name, table.find_in(written)) {
            Ok(name) => Ok(table.at(&name)),
            Err(message) => Err((table.at(&name), message)),
        }
    })
}

/// The name in a table that matches one level of a variable, in lower case.
fn resolve(name: &str, table: Option<&Value>) -> Result<String, String> {
    if name.is_empty() {
        return Err("has an empty level; write __ between levels and nowhere else".to_owned());
    }
    let names = table.and_then(Value::as_dict).into_iter().flat_map(|table| table.keys());
    let alike: Vec<_> = names.filter(|known| plain(known) == plain(name)).collect();
    match alike[..] {
        [] => Ok(name.to_owned()),
        [one] => Ok(one.clone()),
        [one, other, ..] => Err(format!("is ambiguous ({one} or {other}); set it in the file")),
    }
}

/// Whether Kubernetes sets a variable like this for a Service whose name begins with `channeld` ("Discovering services"
/// in its documentation). Such a variable announces an address and is not a setting.
fn is_kubernetes(levels: &str) -> bool {
    let words: Vec<_> = levels.split('_').collect();
    let is_of_service = |at: usize| match words[at..] {
        ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] | ["PORT"] => true,
        ["PORT", number, "TCP" | "UDP" | "SCTP", ..] => number.parse::<u16>().is_ok(),
        _ => false,
    };
    !levels.contains("__") && (0..words.len()).any(is_of_service)
}
