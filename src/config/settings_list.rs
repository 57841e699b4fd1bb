//! How `channeld check` shows settings: one list, printed as a JSON object or as text.
//!
//! # Invariants
//!
//! * **No secret.** A list contains names of files and headers, but no value that could be a secret.

use std::time::Duration;

use bytesize::ByteSize;
use jiff::fmt::friendly::SpanPrinter;
use serde_json::Value;

use ::record::printable;

/// Settings by name, in the order in which they are printed. The name of a number contains its unit: names of durations end
/// with `_seconds`, names of sizes in bytes with `size` or `_bytes`.
pub type SettingsList = Vec<(&'static str, Value)>;

/// The longest list whose values are printed. For a longer list, only the number of values is printed.
const LISTED: usize = 5;

/// The settings as a JSON object.
pub fn object(shown: SettingsList) -> Value {
    shown.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The name and the text of a setting. Returns `None` if the setting is not set or is an empty list.
pub fn row<'n>(name: &'n str, value: &Value) -> Option<(&'n str, String)> {
    let label = name.strip_suffix("_seconds").unwrap_or(name);
    let text = match value {
        Value::Null => return None,
        Value::Bool(is_set) => if *is_set { "yes" } else { "no" }.to_owned(),
        Value::Number(number) => match number.as_u64() {
            Some(seconds) if label != name => {
                SpanPrinter::new().unsigned_duration_to_string(&Duration::from_secs(seconds))
            }
            Some(bytes) if name.ends_with("size") || name.ends_with("_bytes") => {
                ByteSize(bytes).display().iec().to_string()
            }
            _ => number.to_string(),
        },
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => printable(text),
        Value::Array(values) if values.len() > LISTED => format!("{} values", values.len()),
        Value::Array(values) => joined(values.iter().filter_map(|value| Some(row(name, value)?.1)), ", ")?,
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, value)| row(name, value));
            joined(members.map(|(label, text)| format!("{label} {text}")), "; ")?
        }
    };
    Some((label, text))
}

fn joined(texts: impl Iterator<Item = String>, separator: &str) -> Option<String> {
    Some(texts.collect::<Vec<_>>().join(separator)).filter(|joined| !joined.is_empty())
}
