//! The environment: `CHANNELD_` and `__` between levels.
//!
//! Names are written in capitals and read in lower case, and a shell's variable cannot hold a dash. The name of a
//! channel or sink of the file is therefore found without regard to case, and with `_` for `-`:
//! `CHANNELD_CHANNELS__EAST_COAST__START` sets `channels.East-Coast.start`.

use std::collections::BTreeMap;
use std::ffi::OsString;

use toml::Value;

use super::key::{Key, PREFIX};
use super::problem::Problem;
use super::sources::Sources;

/// The kind of place that a variable is, in messages.
const ENVIRONMENT: &str = "environment variable ";

/// Whether a value was set by a variable; if so, the variable.
pub(super) fn variable<'s>(sources: &'s Sources, key: &Key) -> Option<&'s str> {
    sources.origin(key)?.strip_prefix(ENVIRONMENT)
}

/// Puts the variables over the other sources, in the order of their names. Gives what is wrong with them.
pub(super) fn add(sources: &mut Sources, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<Problem> {
    let named = variables.into_iter().map(|(name, text)| (name.to_string_lossy().into_owned(), text));
    let mut problems = Vec::new();
    for (variable, text) in named.collect::<BTreeMap<_, _>>() {
        let Some(levels) = variable.strip_prefix(PREFIX).filter(|levels| !is_kubernetes(levels)) else { continue };
        let origin = format!("{ENVIRONMENT}{variable}");
        if let Err((key, message)) = set(sources, &origin, levels, text) {
            problems.push(Problem { key: key.to_string(), origin: Some(origin), message });
        }
    }
    problems
}

/// Sets what a variable says; or gives what is wrong with which key.
fn set(sources: &mut Sources, origin: &str, levels: &str, text: OsString) -> Result<(), (Key, String)> {
    let mut key = Key::default();
    for level in levels.split("__") {
        let name = level.to_ascii_lowercase();
        key = key.at(&resolve(&name, sources, &key).map_err(|message| (key.at(&name), message))?);
    }
    let message = match (text.into_string(), variable(sources, &key)) {
        _ if sources.get(&key).is_some_and(Value::is_table) => {
            "is a table; name one of its keys after another __".into()
        }
        (_, Some(other)) => format!("is also set by {other}; keep one"),
        (Err(_), None) => "is not UTF-8 text".to_owned(),
        (Ok(text), None) => {
            sources.set(origin, &key, text);
            return Ok(());
        }
    };
    Err((key, message))
}

/// The name in `table` that a level of a variable, in lower case, stands for.
fn resolve(name: &str, sources: &Sources, table: &Key) -> Result<String, String> {
    if name.is_empty() {
        return Err("has an empty level; write __ between levels and nowhere else".to_owned());
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let alike: Vec<_> = sources.names(table).filter(|known| plain(known) == plain(name)).collect();
    match alike[..] {
        [] => Ok(name.to_owned()),
        [one] => Ok(one.clone()),
        [one, other, ..] => Err(format!("could mean {one} or {other}; set it in the file")),
    }
}

/// Whether Kubernetes sets a variable like this for a Service whose name begins with `channeld` ("Discovering services"
/// in its documentation): it announces an address and is not a setting.
fn is_kubernetes(levels: &str) -> bool {
    let words: Vec<_> = levels.split('_').collect();
    let is_of_service = |at: usize| match words[at..] {
        ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] | ["PORT"] => true,
        ["PORT", number, "TCP" | "UDP" | "SCTP", ..] => number.parse::<u16>().is_ok(),
        _ => false,
    };
    !levels.contains("__") && (0..words.len()).any(is_of_service)
}
