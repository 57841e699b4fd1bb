//! The environment: `CHANNELD_` and `__` between levels.
//!
//! Names are written in capitals and read in lower case, and a shell's variable cannot hold a dash. The name of a
//! channel or sink of the file is therefore found without regard to case, and with `_` for `-`:
//! `CHANNELD_CHANNELS__EAST_COAST__START` sets `channels.East-Coast.start`.

use std::collections::BTreeMap;
use std::ffi::OsString;

use figment::value::{Dict, Value};

use super::keys::{Key, locate};
use super::layers::{ENVIRONMENT, Layer, PREFIX};
use super::problem::Problem;

/// The layers that the variables make over `written`, in the order of their names, and what is wrong with them.
pub(super) fn layers(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    written: &Dict,
) -> (Vec<Layer>, Vec<Problem>) {
    let ours = variables.into_iter().filter_map(|(name, text)| {
        let name = name.to_string_lossy().into_owned();
        let levels = name.strip_prefix(PREFIX)?.to_owned();
        (!is_kubernetes(&levels)).then_some((name, (levels, text)))
    });
    let (mut layers, mut problems) = (Vec::new(), Vec::new());
    let mut set = BTreeMap::new();
    for (variable, (levels, text)) in ours.collect::<BTreeMap<_, _>>() {
        match value(&levels, text, written) {
            Ok((key, text)) => match set.insert(key.clone(), variable.clone()) {
                None => layers.push(Layer::value(ENVIRONMENT, &variable, &key, text)),
                Some(other) => problems.push(problem(&key, &variable, format!("is also set by {other}; keep one"))),
            },
            Err((key, message)) => problems.push(problem(&key, &variable, message)),
        }
    }
    (layers, problems)
}

fn problem(key: &Key, variable: &str, message: String) -> Problem {
    Problem { key: key.to_string(), origin: Some(format!("{ENVIRONMENT} {variable}")), message }
}

fn value(levels: &str, text: OsString, written: &Dict) -> Result<(Key, String), (Key, String)> {
    let mut names = Vec::new();
    for level in levels.split("__") {
        let name = match resolve(level, &names, written) {
            Ok(name) => name,
            Err(message) => return Err((Key::from([names, vec![level.to_ascii_lowercase()]].concat()), message)),
        };
        names.push(name);
    }
    let key = Key::from(names);
    if matches!(locate(written, key.names()), Some(Value::Dict(..))) {
        return Err((key, "is a table; name one of its keys after another __".to_owned()));
    }
    match text.into_string() {
        Ok(text) => Ok((key, text)),
        Err(_) => Err((key, "is not UTF-8 text".to_owned())),
    }
}

/// The name that a level of a variable stands for.
fn resolve(level: &str, table: &[String], written: &Dict) -> Result<String, String> {
    let name = level.to_ascii_lowercase();
    if name.is_empty() {
        return Err("has an empty level; write __ between levels and nowhere else".to_owned());
    }
    let table = if table.is_empty() { Some(written) } else { locate(written, table).and_then(Value::as_dict) };
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let alike: Vec<_> = table.into_iter().flat_map(Dict::keys).filter(|known| plain(known) == plain(&name)).collect();
    match alike[..] {
        [] => Ok(name),
        [one] => Ok(one.clone()),
        [one, other, ..] => Err(format!("could mean {one} or {other}; set it in the file")),
    }
}

/// Whether a variable is one that Kubernetes sets for a Service whose name begins with `channeld` ("Discovering
/// services" in its documentation): it announces an address and is nobody's setting.
fn is_kubernetes(levels: &str) -> bool {
    if levels.contains("__") {
        return false;
    }
    let words: Vec<_> = levels.split('_').collect();
    let port = |rest: &[&str]| match rest {
        [] => true,
        [number, "TCP" | "UDP" | "SCTP"] | [number, "TCP" | "UDP" | "SCTP", "PROTO" | "PORT" | "ADDR"] => {
            number.parse::<u16>().is_ok()
        }
        _ => false,
    };
    (0..words.len()).any(|at| match words[at..] {
        ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] => true,
        ["PORT", ref rest @ ..] => port(rest),
        _ => false,
    })
}
