//! Reads the operator's own headers, and the headers that authorize requests.
//!
//! # Invariants
//!
//! * **Each header has one origin.** The operator cannot set a header that the sink makes itself or that the connection
//!   needs. No header can be set twice, in whatever case its name is written.
//! * **No value is shown.** Values are marked as sensitive, including values in the configuration file.

use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::config::reading::values::text_if;
use crate::config::reading::{Reading, Reported, Section};
use net::http::{basic, sensitive};

/// Many servers refuse longer names and values.
const NAME_LIMIT: usize = 128;
const VALUE_LIMIT: usize = 8 * 1024;

/// Reads `bearer_token`, `username` with `password`, `headers`, `header_files` and `header_commands`.
pub(super) fn read(sink: &Section<'_>) -> Result<HeaderMap, Reported> {
    let mut headers = HeaderMap::new();
    if let Ok(Some(value)) = read_authorization(sink) {
        headers.insert(header::AUTHORIZATION, value);
    }
    sink.named_values(["headers", "header_files", "header_commands"], value, |table, key, value| {
        let name = check_name(key, &headers).map_err(|message| table.wrong(key, message));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.insert(name, value);
        }
    })?;
    Ok(headers)
}

fn check_name(name: &str, others: &HeaderMap) -> Result<HeaderName, String> {
    let legal = HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| name.as_str().len() <= NAME_LIMIT);
    let name = legal.ok_or("is not the name of a header: letters, digits and dashes, 128 at most")?;
    if is_own(name.as_str()) {
        return Err("is a header that the sink sets itself; remove it".to_owned());
    }
    if others.contains_key(&name) {
        return Err(match name {
            header::AUTHORIZATION => "is set by bearer_token, or by username and password; keep one".to_owned(),
            _ => "is set twice, here and in another table of headers; keep one".to_owned(),
        });
    }
    Ok(name)
}

/// Whether the sink or the connection sets this header.
fn is_own(name: &str) -> bool {
    let of_connection =
        matches!(name, "host" | "connection" | "transfer-encoding" | "te" | "trailer" | "upgrade" | "expect");
    let of_content = matches!(name, "content-type" | "content-length" | "content-encoding");
    of_connection || of_content || name.starts_with("webhook-")
}

fn value(text: &str) -> Result<HeaderValue, String> {
    let legal = text.len() <= VALUE_LIMIT && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    sensitive(text).filter(|_| legal).ok_or_else(|| "must be visible ASCII and spaces, 8 KiB at most".to_owned())
}

fn read_authorization(sink: &Section<'_>) -> Reading<HeaderValue> {
    let bearer = sink.secret("bearer_token", bearer);
    let basic = read_basic(sink, "username", "password");
    match (bearer?, basic?) {
        (Some(_), Some(_)) => Err(sink.wrong("username", "is set together with a bearer token; keep one of the two")),
        (bearer, basic) => Ok(bearer.or(basic)),
    }
}

fn bearer(text: &str) -> Result<HeaderValue, String> {
    let legal = !text.is_empty() && text.len() <= VALUE_LIMIT && text.bytes().all(|byte| byte.is_ascii_graphic());
    let value = sensitive(&format!("Bearer {text}")).filter(|_| legal);
    value.ok_or_else(|| "must be visible ASCII without spaces; give the token alone, without \"Bearer\"".to_owned())
}

/// Reads the header for a user's name and password. Both keys must be set, or neither.
pub(super) fn read_basic(sink: &Section<'_>, username: &str, password: &str) -> Reading<HeaderValue> {
    let login = sink.login([username, password], check_username, check_password)?;
    Ok(login.map(|(user, secret)| basic(&user, &secret)))
}

fn check_username(text: &str) -> Result<String, String> {
    let legal = !text.is_empty() && !text.contains(|c: char| c == ':' || c.is_control());
    text_if(legal, text, "must be a name without colons and control characters")
}

fn check_password(text: &str) -> Result<String, String> {
    text_if(!text.contains(char::is_control), text, "must not have a control character in it")
}
