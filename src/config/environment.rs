//! The environment: `CHANNELD_` and `__` between levels.
//!
//! Names are written in capitals and read in lower case, and a shell's variable cannot hold a dash. The name of a
//! channel or sink of the file is therefore found without regard to case, and with `_` for `-`:
//! `CHANNELD_CHANNELS__EAST_COAST__START` sets `channels.East-Coast.start`.

use std::collections::BTreeMap;
use std::ffi::OsString;

use figment::value::{Dict, Value};

use super::key::Key;
use super::layers::{ENVIRONMENT, Layer, PREFIX};
use super::problem::Problem;
use super::table::locate;

/// The layers that the variables make over `written`, in the order of their names, and what is wrong with them.
pub(super) fn layers(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    written: &Dict,
) -> (Vec<Layer>, Vec<Problem>) {
    let named = variables.into_iter().map(|(name, text)| (name.to_string_lossy().into_owned(), text));
    let (mut layers, mut problems) = (Vec::new(), Vec::new());
    let mut set = BTreeMap::new();
    for (variable, text) in named.collect::<BTreeMap<_, _>>() {
        let Some(levels) = variable.strip_prefix(PREFIX).filter(|levels| !is_kubernetes(levels)) else { continue };
        let value =
            value(levels, text, written).and_then(|(key, text)| match set.insert(key.clone(), variable.clone()) {
                None => Ok(Layer::value(ENVIRONMENT, &variable, &key, text)),
                Some(other) => Err((key, format!("is also set by {other}; keep one"))),
            });
        match value {
            Ok(layer) => layers.push(layer),
            Err((key, message)) => {
                let origin = Some(format!("{ENVIRONMENT} {variable}"));
                problems.push(Problem { key: key.to_string(), origin, message });
            }
        }
    }
    (layers, problems)
}

/// The key that a variable sets, and its text; or what is wrong with which key.
fn value(levels: &str, text: OsString, written: &Dict) -> Result<(Key, String), (Key, String)> {
    let mut key = Key::default();
    for level in levels.split("__") {
        let name = level.to_ascii_lowercase();
        key = key.at(&resolve(&name, &key, written).map_err(|message| (key.at(&name), message))?);
    }
    if matches!(locate(written, key.names()), Some(Value::Dict(..))) {
        return Err((key, "is a table; name one of its keys after another __".to_owned()));
    }
    match text.into_string() {
        Ok(text) => Ok((key, text)),
        Err(_) => Err((key, "is not UTF-8 text".to_owned())),
    }
}

/// The name in `table` that a level of a variable, in lower case, stands for.
fn resolve(name: &str, table: &Key, written: &Dict) -> Result<String, String> {
    if name.is_empty() {
        return Err("has an empty level; write __ between levels and nowhere else".to_owned());
    }
    let is_root = table.names().is_empty();
    let table = if is_root { Some(written) } else { locate(written, table.names()).and_then(Value::as_dict) };
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let alike: Vec<_> = table.into_iter().flat_map(Dict::keys).filter(|known| plain(known) == plain(name)).collect();
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
