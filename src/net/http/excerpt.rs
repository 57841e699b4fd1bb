//! The beginning of a response body, which a command shows to an operator.

use std::time::Duration;

use reqwest::Response;

/// The number of bytes of the body that are read.
const READ: usize = 4 * 1024;

/// The longest wait for these bytes.
const READING: Duration = Duration::from_secs(2);

/// The longest excerpt, in characters.
const SHOWN: usize = 400;

const REDACTED: &str = "[secret]";

/// Returns the beginning of a body as one line. The line is bounded, and contains no control characters and none of the
/// `secrets`.
pub async fn excerpt(mut response: Response, secrets: &[&str]) -> String {
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk[..chunk.len().min(READ - body.len())]);
            if body.len() == READ {
                break;
            }
        }
    };
    // After a timeout, the part that has arrived is shown.
    let _ = tokio::time::timeout(READING, reading).await;
    one_line(&String::from_utf8_lossy(&body), secrets)
}

fn one_line(text: &str, secrets: &[&str]) -> String {
    let known = secrets.iter().filter(|secret| !secret.is_empty());
    let text = known.fold(text.to_owned(), |text, secret| text.replace(secret, REDACTED));
    let words: Vec<_> = text.split_whitespace().collect();
    let escape = |c: char| if c.is_control() { c.escape_unicode().collect() } else { c.to_string() };
    let line: String = words.join(" ").chars().map(escape).collect();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_bounded_line_without_control_characters_or_secrets() {
        assert_eq!(one_line("<p>\n  no\u{1b}[31m key-1\r\n</p>", &["key-1", ""]), "<p> no\\u{1b}[31m [secret] </p>");
        let long = one_line(&"ü".repeat(1000), &[]);
        assert_eq!((long.chars().count(), long.ends_with('…')), (SHOWN + 1, true));
    }
}
