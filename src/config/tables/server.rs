//! How servers are reached: the certificates of TLS connections, and PostgreSQL databases, for the state and for sinks.

use std::error::Error;
use std::str::FromStr;

use crate::config::reading::values::text_if;
use crate::config::reading::{Reading, Reported, Section, all};
use crate::config::sources::files::read_named;
use net::http::{Authorities, Identity, PemError, PrivateKeyDer, certificates, private_key, root_cause};
use net::postgres::{Address, ServerSettings};

/// The largest certificate file, in bytes. A system's complete list of authorities has about a fifth of this size.
const CERTIFICATES_LIMIT: usize = 1024 * 1024;

/// The longest identifier in PostgreSQL.
pub(crate) const NAME_LIMIT: usize = 63;

const ADDRESS: &str =
    "must be the address of a PostgreSQL database, such as \"postgresql://channeld@db.internal/channeld\"";

/// The options of libpq that are restricted in an address, with the advice for each.
const OPTIONS: [(&str, &str); 9] = [
    ("sslmode", "must have sslmode disable, prefer or require: with TLS, the certificate is always checked in full"),
    ("sslrootcert", "must not have sslrootcert; set ca_file"),
    ("sslcert", "must not have sslcert; set client_certificate_file"),
    ("sslkey", "must not have sslkey; set client_key_file"),
    (
        "target_session_attrs",
        "must have target_session_attrs any or read-write: to use the primary of several hosts, write read-write",
    ),
    ("gssencmode", "must not have gssencmode: connections are encrypted with TLS only; remove it, and use sslmode"),
    ("passfile", "must not have passfile: write the address with its password into the file that url_file names"),
    ("service", "must not have service: service files are not read; write host, dbname and user into the address"),
    (
        "servicefile",
        "must not have servicefile: service files are not read; write host, dbname and user into the address",
    ),
];

/// The other options of libpq that the client does not know. Only known names are shown in messages, because another name can
/// be a part of a password that was not escaped.
const UNSUPPORTED: [&str; 18] = [
    "client_encoding",
    "fallback_application_name",
    "gssdelegation",
    "gsslib",
    "krbsrvname",
    "max_protocol_version",
    "min_protocol_version",
    "replication",
    "require_auth",
    "requirepeer",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslpassword",
    "sslsni",
];

/// Reads the authorities in the file whose path is the value.
pub(crate) fn read_authorities(section: &Section<'_>, name: &str) -> Reading<Authorities> {
    section.file(name, |path| read_pem(path, Authorities::from_pem))
}

/// Reads `client_certificate_file`, and `client_key_file` or `client_key_command`.
pub(crate) fn read_identity(section: &Section<'_>) -> Reading<Identity> {
    let key = section.stored_secret("client_key", |text| explain_pem(private_key(text)));
    identity(section, ["client_certificate_file", "client_key_file"], key)
}

/// Reads `tls_certificate` and `tls_key`: the certificate of a server.
pub(crate) fn read_server_identity(section: &Section<'_>) -> Reading<Identity> {
    let key = section.secret_in_file("tls_key", |text| explain_pem(private_key(text)));
    identity(section, ["tls_certificate", "tls_key"], key)
}

/// Reads a certificate with its chain, and combines it with its key. The names of both keys are for messages.
fn identity(
    section: &Section<'_>,
    [chain_name, key_name]: [&str; 2],
    key: Reading<PrivateKeyDer<'static>>,
) -> Reading<Identity> {
    let chain = section.file(chain_name, |path| read_pem(path, certificates));
    let chain_key = section.key.at(chain_name);
    match (chain?, key?) {
        (None, None) => Ok(None),
        (Some(chain), Some(key)) => explain_pem(Identity::new(chain, key)).map(Some).map_err(|message| {
            section.wrong(key_name, format!("{message}; it must be the key of the first certificate in {chain_key}"))
        }),
        (Some(_), None) => {
            Err(section.wrong(chain_name, format!("is set without {}; set both", section.key.at(key_name))))
        }
        (None, Some(_)) => Err(section.wrong(key_name, format!("is set without {chain_key}; set both"))),
    }
}

/// Reads and parses a certificate file.
fn read_pem<T>(path: &str, parse: impl FnOnce(&str) -> Result<T, PemError>) -> Result<T, String> {
    explain_pem(parse(&read_named(path, CERTIFICATES_LIMIT)?))
}

fn explain_pem<T>(parsed: Result<T, PemError>) -> Result<T, String> {
    parsed.map_err(|error| format!("the file {error}"))
}

/// Reads `url` or `url_file`, and the TLS settings. If the address `is_required`, it is a problem if neither key is
/// set. If the address is not required and neither key is set, the result has no hosts.
pub(crate) fn read_server(section: &Section<'_>, is_required: bool) -> Result<ServerSettings, Reported> {
    all!(ServerSettings {
        config: match section.secret("url", address) {
            Ok(None) if is_required => Err(section.missing("url")),
            read => read.map(Option::unwrap_or_default),
        },
        authorities: read_authorities(section, "ca_file"),
        identity: read_identity(section),
    })
}

fn address(text: &str) -> Result<Address, String> {
    let config = Address::from_str(text.trim()).map_err(|error| unreadable(&error))?;
    let server = ServerSettings { config, ..ServerSettings::default() };
    if server.has_host() { Ok(server.config) } else { Err(ADDRESS.to_owned()) }
}

/// Explains why an address cannot be used. Of the client's messages, only those about an option are used, because other
/// messages can contain a secret.
fn unreadable(error: &(dyn Error + 'static)) -> String {
    let said = root_cause(error);
    let is_about = |option: &str| said.ends_with(&format!("`{option}`"));
    if let Some((_, instead)) = OPTIONS.iter().find(|(option, _)| is_about(option)) {
        return (*instead).to_owned();
    }
    match UNSUPPORTED.iter().find(|option| is_about(option)) {
        Some(option) => format!("must not have {option}, which is not supported: remove it"),
        None => ADDRESS.to_owned(),
    }
}

/// An identifier of at most `limit` characters that needs no escaping.
pub(crate) fn identifier(limit: usize, example: &'static str) -> impl Fn(&str) -> Result<String, String> {
    move |text| {
        let is_name = text.len() <= limit
            && text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        let letters = "must be of lower-case letters, digits and _";
        text_if(is_name, text, &format!("{letters}, {limit} at most, and begin with no digit, such as {example:?}"))
    }
}
