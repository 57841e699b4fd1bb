//! The error envelope, which is shown to people. It decides only one thing: whether a 404 comes from the service.

use serde_json::Value;

use super::Answer;

/// The number of bytes of an error's body that are read. An envelope has a few hundred bytes.
pub(super) const MAX_ENVELOPE: usize = 64 * 1024;

/// The number of characters of a `message` that are shown.
const MAX_MESSAGE: usize = 200;

/// The number of characters of a `code` that are shown.
const MAX_CODE: usize = 64;

/// Replaces the key.
const REDACTED: &str = "[api key]";

/// Reads the envelope as far as possible, and whether it is one. `type` and `code` may be missing, but not both. All
/// other fields may be missing or new.
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

/// A text of the service in a form that can be shown: without control characters and the key, and at most `bound`
/// characters long.
///
/// The key is replaced before the text is truncated, so that the end contains no part of the key.
fn presentable(text: &str, key: &str, bound: usize) -> Option<Box<str>> {
    let text = text.replace(key, REDACTED).replace(char::is_control, " ").replace(key, REDACTED);
    let text: String = text.trim().chars().take(bound).collect();
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "k3y-secret";

    #[test]
    fn a_partial_new_or_absent_envelope_is_no_error() {
        for body in ["", "<html>", "{", "[]", "7", r#"{"code":7,"message":null}"#, r#"{"code":" "}"#] {
            let bare = Answer { status: 503, code: None, message: None };
            assert_eq!(read(503, body.as_bytes(), KEY).0, bare, "{body}");
        }
    }

    #[test]
    fn a_message_is_bounded_free_of_control_characters_and_of_the_key() {
        let message = format!("no\n\u{1b}[31mkey {KEY}: {}", "x".repeat(500));
        let body = serde_json::json!({"code": "NEW_CODE", "message": message}).to_string();
        let (answer, _) = read(401, body.as_bytes(), KEY);
        assert_eq!(answer.code.as_deref(), Some("NEW_CODE"));
        let shown = answer.message.expect("there is a message");
        assert!(shown.starts_with("no  [31mkey [api key]: xx"), "{shown}");
        assert_eq!(shown.chars().count(), MAX_MESSAGE);
    }

    #[test]
    fn a_key_at_the_cut_leaves_no_half_of_itself() {
        let message = format!("{}{KEY}", "x".repeat(MAX_MESSAGE - 3));
        let body = serde_json::json!({ "message": message, "code": KEY }).to_string();
        let (answer, _) = read(400, body.as_bytes(), KEY);
        assert!(!answer.to_string().contains("k3y"), "{answer}");
    }

    #[test]
    fn a_body_with_a_type_or_a_code_is_the_envelope_and_no_other() {
        for (body, is_envelope) in [
            (r#"{"type":"NOT_FOUND"}"#, true),
            (r#"{"code":"CHANNEL_NOT_FOUND"}"#, true),
            (r#"{"code":404,"type":null}"#, false),
            (r#"{"message":"no Route matched with those values"}"#, false),
            ("<html>", false),
            ("", false),
        ] {
            assert_eq!(read(404, body.as_bytes(), KEY).1, is_envelope, "{body}");
        }
    }
}
