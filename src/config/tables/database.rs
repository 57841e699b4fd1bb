//! The connection to a PostgreSQL database, and names in it: for the state and for sinks.

use std::error::Error;
use std::str::FromStr;

use super::tls::{read_authorities, read_identity};
use crate::config::reading::{Reading, Reported, Section, all};
use net::http::root_cause;
use net::postgres::{Address, ServerSettings};

const ADDRESS: &str =
    "must be the address of a PostgreSQL database, such as \"postgresql://channeld@db.internal/channeld\"";

/// Options of libpq that are set in another way here, and the advice for each.
const OPTIONS: [(&str, &str); 4] = [
    (
        "sslmode",
        "must have sslmode disable, prefer or require: where TLS is used, the certificate is always checked in full",
    ),
    ("sslrootcert", "must not have sslrootcert; set ca_file"),
    ("sslcert", "must not have sslcert; set client_certificate_file"),
    ("sslkey", "must not have sslkey; set client_key_file"),
];

/// Reads `url` or `url_file`, and the TLS settings. The result has no hosts if neither key is set.
pub(crate) fn read_server(section: &Section<'_>) -> Result<ServerSettings, Reported> {
    all!(ServerSettings {
        config: read_url(section),
        authorities: read_authorities(section, "ca_file"),
        identity: read_identity(section),
    })
}

/// Records a problem if neither `url` nor `url_file` is set.
pub(crate) fn check_url(section: &Section<'_>, server: &ServerSettings) -> Result<(), Reported> {
    if server.has_host() { Ok(()) } else { Err(section.missing("url")) }
}

fn read_url(section: &Section<'_>) -> Result<Address, Reported> {
    let server: Reading<_> = section.secret("url", |text| {
        let config = Address::from_str(text.trim()).map_err(|error| unreadable(&error))?;
        let server = ServerSettings { config, ..ServerSettings::default() };
        if server.has_host() { Ok(server.config) } else { Err(ADDRESS.to_owned()) }
    });
    Ok(server?.unwrap_or_default())
}

/// Why an address cannot be used. Of the client's messages, only the messages about an option contain no secret.
fn unreadable(error: &(dyn Error + 'static)) -> String {
    let said = root_cause(error);
    let instead = |(option, instead): &(&str, &'static str)| said.ends_with(&format!("`{option}`")).then_some(*instead);
    OPTIONS.iter().find_map(instead).unwrap_or(ADDRESS).to_owned()
}

/// An identifier of at most `limit` characters that needs no escaping.
pub(crate) fn identifier(limit: usize, example: &'static str) -> impl Fn(&str) -> Result<String, String> {
    move |text| {
        let is_name = text.len() <= limit
            && text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        let message = || {
            let letters = "must be of lower-case letters, digits and _";
            format!("{letters}, {limit} at most, and begin with no digit, such as {example:?}")
        };
        if is_name { Ok(text.to_owned()) } else { Err(message()) }
    }
}
