//! The error envelope: shown to people. Only of a 404 it decides anything: whether it is the service's.

use serde_json::Value;

use super::Answer;

/// More of an error's body than this is not read; an envelope is a few hundred bytes.
pub(super) const MAX_ENVELOPE: usize = 64 * 1024;

/// The characters of a `message` that are shown.
const MAX_MESSAGE: usize = 200;

/// The characters of a `code` that are shown.
const MAX_CODE: usize = 64;

/// What stands in the place of the key.
const REDACTED: &str = "[api key]";

/// Reads what there is of the envelope, and whether it is one: `type` and `code` may be missing, but not both. Anything else
/// may be missing or new.
pub(super) fn read(status: u16, body: &[u8], key: &str) -> (Answer, bool) {
    let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
    let field = |name, bound| envelope.get(name)?.as_str().and_then(|text| presentable(text, key, bound));
    let answer = Answer {
        status,
        code: field("code", MAX_CODE).or_else(|| field("type", MAX_CODE)),
        message: field("message", MAX_MESSAGE),
    };
    (answer, ["type", "code"].iter().any(|name| envelope.get(name).is_some_and(Value::is_string)))
}

/// A text of the service as it may be shown: no control characters, not the key, no longer than `bound` characters.
///
/// The key is replaced before the text is cut, so that no half of it stays at the end.
fn presentable(text: &str, key: &str, bound: usize) -> Option<Box<str>> {
    let text = text.replace(key, REDACTED).replace(char::is_control, " ").replace(key, REDACTED);
    let text: String = text.trim().chars().take(bound).collect();
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests;
