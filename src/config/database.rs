//! The connection to a PostgreSQL database, and names in it: for the state and for sinks.

use std::error::Error;
use std::str::FromStr;

use super::files::{explain_pem, read_pem};
use super::section::{Reading, Reported, Section, all};
use net::http::{Authorities, Identity, certificates, private_key, root_cause};
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
pub(super) fn read_server(section: &Section<'_>) -> Result<ServerSettings, Reported> {
    all!(ServerSettings {
        config: read_url(section),
        authorities: section.file("ca_file", |path| read_pem(path, Authorities::from_pem)),
        identity: read_identity(section),
    })
}

/// Records a problem if neither `url` nor `url_file` is set.
pub(super) fn check_url(section: &Section<'_>, server: &ServerSettings) -> Result<(), Reported> {
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

/// Reads `client_certificate_file` and `client_key_file`.
pub(super) fn read_identity(section: &Section<'_>) -> Reading<Identity> {
    const CHAIN: &str = "client_certificate_file";
    const KEY: &str = "client_key_file";
    let chain = section.file(CHAIN, |path| read_pem(path, certificates));
    let key = section.secret_file(KEY, |text| explain_pem(private_key(text)));
    let chain_key = section.key.at(CHAIN);
    match (chain?, key?) {
        (None, None) => Ok(None),
        (Some(chain), Some(key)) => {
            let identity = explain_pem(Identity::new(chain, key));
            identity.map(Some).map_err(|message| {
                section.wrong(KEY, format!("{message}; it must be the key of the first certificate in {chain_key}"))
            })
        }
        (Some(_), None) => {
            let message = format!("is set without {}; set both", section.key.at(KEY));
            Err(section.wrong(CHAIN, message))
        }
        (None, Some(_)) => Err(section.wrong(KEY, format!("is set without {chain_key}; set both"))),
    }
}

/// An identifier of at most `limit` characters that needs no escaping.
pub(super) fn identifier(limit: usize, example: &'static str) -> impl Fn(&str) -> Result<String, String> {
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
