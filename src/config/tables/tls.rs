//! The certificates of TLS connections: the authorities to trust, and the client's own certificate.

use std::path::Path;

use crate::config::reading::{Reading, Section};
use crate::config::sources::files::read_up_to;
use net::http::{Authorities, Identity, PemError, certificates, private_key};

/// The largest certificate file, in bytes. A system's complete list of authorities has about a fifth of this size.
const CERTIFICATES_LIMIT: usize = 1024 * 1024;

/// Reads the authorities in the file whose path is the value.
pub(crate) fn read_authorities(section: &Section<'_>, name: &str) -> Reading<Authorities> {
    section.file(name, |path| read_pem(path, Authorities::from_pem))
}

/// Reads `client_certificate_file` and `client_key_file`.
pub(crate) fn read_identity(section: &Section<'_>) -> Reading<Identity> {
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

/// Reads and parses a certificate file.
fn read_pem<T>(path: &str, parse: impl FnOnce(&str) -> Result<T, PemError>) -> Result<T, String> {
    let text = read_up_to(Path::new(path), CERTIFICATES_LIMIT);
    let text = text.map_err(|error| format!("the file {path:?} {error}; create it, or correct the path"))?;
    explain_pem(parse(&text))
}

fn explain_pem<T>(parsed: Result<T, PemError>) -> Result<T, String> {
    parsed.map_err(|error| format!("the file {error}"))
}
