//! Headers of the operator's choice, and who we say we are to the endpoint.
//!
//! # Invariants
//!
//! * **Each header has one origin.** What the sink makes itself, or the connection needs, cannot be set, and nothing is
//!   set twice, in whatever case its name is written.
//! * **No value shows.** Values are marked as sensitive, those in the configuration file too.

use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::config::keys::{Key, Keys, Reading, Reported};
use crate::config::secret;
use crate::http::{basic, sensitive};

/// What the sink or the connection makes, beside all that begin with [`OWN_PREFIX`].
const OWN: [HeaderName; 10] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::HOST,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
];

const OWN_PREFIX: &str = "webhook-";

/// Longer names and values are refused by many servers.
const NAME_LIMIT: usize = 128;
const VALUE_LIMIT: usize = 8 * 1024;

const ILLEGAL_VALUE: &str = "must be visible ASCII and spaces, 8 KiB at most";

/// `bearer_token`, `username` with `password`, `headers` and `header_files`.
pub(super) fn read(keys: &mut Keys, sink: &Key) -> Result<HeaderMap, Reported> {
    let authorization = read_authorization(keys, sink);
    let mut headers = HeaderMap::new();
    let mut outcome = Ok(());
    match authorization {
        Ok(Some(value)) => drop(headers.insert(header::AUTHORIZATION, value)),
        Ok(None) => {}
        Err(reported) => outcome = Err(reported),
    }
    for (table, from_file) in [("headers", false), ("header_files", true)] {
        let table = sink.at(table);
        for name in keys.names(&table)? {
            match read_header(keys, &table.at(&name), &name, from_file, &headers) {
                Ok((name, value)) => drop(headers.insert(name, value)),
                Err(reported) => outcome = Err(reported),
            }
        }
    }
    outcome.map(|()| headers)
}

fn read_header(
    keys: &mut Keys,
    key: &Key,
    name: &str,
    from_file: bool,
    others: &HeaderMap,
) -> Result<(HeaderName, HeaderValue), Reported> {
    let text = if from_file { keys.file(key, secret::from_file) } else { keys.quoted(key) };
    let text = text?.ok_or_else(|| keys.missing(key))?;
    let value = value(&text).ok_or_else(|| keys.wrong(key, ILLEGAL_VALUE));
    let name = check_name(name, others).map_err(|message| keys.wrong(key, message));
    Ok((name?, value?))
}

fn check_name(name: &str, others: &HeaderMap) -> Result<HeaderName, String> {
    let legal = HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| name.as_str().len() <= NAME_LIMIT);
    let name = legal.ok_or("is not the name of a header: letters, digits and dashes, 128 at most")?;
    if name.as_str().starts_with(OWN_PREFIX) || OWN.contains(&name) {
        return Err("is a header that the sink makes itself; remove it".to_owned());
    }
    if others.contains_key(&name) {
        return Err(match name {
            header::AUTHORIZATION => "is made of bearer_token, or of username and password; keep one".to_owned(),
            _ => "is set twice, here or in the other table of headers; keep one".to_owned(),
        });
    }
    Ok(name)
}

fn value(text: &str) -> Option<HeaderValue> {
    let legal = text.len() <= VALUE_LIMIT && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    sensitive(text).filter(|_| legal)
}

fn read_authorization(keys: &mut Keys, sink: &Key) -> Reading<HeaderValue> {
    let bearer = secret::read_as(keys, sink, "bearer_token", bearer);
    let basic = read_basic(keys, sink, "username", "password");
    match (bearer?, basic?) {
        (Some(_), Some(_)) => {
            let message = "is set together with a bearer token; keep one of the two";
            Err(keys.wrong(&sink.at("username"), message))
        }
        (bearer, basic) => Ok(bearer.or(basic)),
    }
}

fn bearer(text: &str) -> Result<HeaderValue, String> {
    let legal = !text.is_empty() && text.len() <= VALUE_LIMIT && text.bytes().all(|byte| byte.is_ascii_graphic());
    let value = sensitive(&format!("Bearer {text}")).filter(|_| legal);
    value.ok_or_else(|| "must be visible ASCII without spaces; give the token alone, without \"Bearer\"".to_owned())
}

/// A user's name and password, each under its own key; both or neither.
pub(super) fn read_basic(keys: &mut Keys, sink: &Key, username: &str, password: &str) -> Reading<HeaderValue> {
    let user = keys.optional(&sink.at(username), check_username);
    let secret = secret::read(keys, sink, password, check_password);
    match (user?, secret?) {
        (None, None) => Ok(None),
        (Some(user), Some(secret)) => Ok(Some(basic(&user, secret.expose()))),
        (None, Some(_)) => Err(keys.wrong(&sink.at(username), format!("is missing beside {password}; set both"))),
        (Some(_), None) => {
            let message = format!("is set without {password}; set {password} or {password}_file");
            Err(keys.wrong(&sink.at(username), message))
        }
    }
}

fn check_username(text: &str) -> Result<String, String> {
    match text {
        "" => Err("is empty; give a name".to_owned()),
        text if text.contains(|c: char| c == ':' || c.is_control()) => {
            Err("must not have a colon or a control character in it".to_owned())
        }
        text => Ok(text.to_owned()),
    }
}

fn check_password(text: &str) -> Result<(), &'static str> {
    if text.contains(char::is_control) { Err("must not have a control character in it") } else { Ok(()) }
}
