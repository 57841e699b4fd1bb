//! Finds and explains the cause of a failed request.

use std::error::Error;
use std::io;
use std::iter::successors;

use rustls::{CertificateError, InvalidMessage};

use crate::shortage::Shortage;

/// The TLS library's name for the error that a server uses the certificate of an authority as its own.
const OF_AUTHORITY: &str = "CaUsedAsEndEntity";

/// Finds the first error of type `T` among an error and its sources. An I/O error can wrap another error that is not its
/// source, so wrapped errors are searched too.
pub fn find<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let wrapped = |error: &'e (dyn Error + 'static)| {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as &(dyn Error + 'static))
    };
    let mut each = successors(Some(error), |&error| error.source());
    each.find_map(|error| successors(Some(error), |&error| wrapped(error)).find_map(|error| error.downcast_ref()))
}

/// A text that replaces the message of an error, because that message does not help. `None` if the message is clear.
pub fn explained(error: &(dyn Error + 'static)) -> Option<&'static str> {
    match find(error)? {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            Some("the server does not use TLS at this address: use http:// if this is intended")
        }
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{:?}", other.0) == OF_AUTHORITY =>
        {
            Some(
                "the server uses a CA certificate as its own, usually a self-signed one: use a certificate issued by this CA, or create the certificate without CA:TRUE",
            )
        }
        _ => None,
    }
}

/// Advice that is appended to the message of an error. Empty if no advice is known.
pub fn advice(error: &(dyn Error + 'static)) -> &'static str {
    use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext, UnknownIssuer};

    if let Some(shortage) = Shortage::of(error) {
        return shortage.advice();
    }
    match find(error) {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            "; is the authority of the server's certificate in ca_file?"
        }
        Some(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
            "; the server's certificate must be renewed"
        }
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            "; use the name in the server's certificate"
        }
        None if find::<io::Error>(error).is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) => {
            "; is the server running, and is its address correct?"
        }
        _ => "",
    }
}

/// Why a request failed: an explanation if one is known, otherwise the innermost error.
pub fn reason(error: &(dyn Error + 'static)) -> String {
    explained(error).map_or_else(|| root_cause(error), str::to_owned)
}

/// The innermost error, as the system or the TLS library reports it.
pub fn root_cause(error: &dyn Error) -> String {
    successors(Some(error), |&error| error.source()).last().unwrap_or(error).to_string()
}
