//! Explains to an operator why a database cannot be used, and gives advice.

use std::error::Error;

use rustls::{CertificateError, Error as TlsError};
use tokio_postgres::error::SqlState;

use crate::Chain;
use crate::http;
use crate::postgres::ServerSettings;

/// Returns why the connection failed, with advice. `at` is the configuration table that contains the keys, such as `state`.
pub fn advised(error: &(dyn Error + 'static), server: &ServerSettings, at: &str) -> String {
    match http::find::<tokio_postgres::Error>(error).and_then(tokio_postgres::Error::as_db_error) {
        Some(said) => format!("the server says: {}; {}", said.message(), advice_on_refusal(said.code(), server, at)),
        None => format!("{}; {}", Chain(error), advice_on_connecting(error, at)),
    }
}

/// Advice if the server does not accept writes. `at` is the same as in [`advised`].
pub fn advice_on_standby(at: &str) -> String {
    format!("name the primary in {at}.url, or all hosts and target_session_attrs=read-write")
}

/// Advice if the server answers but refuses.
fn advice_on_refusal(code: &SqlState, server: &ServerSettings, at: &str) -> String {
    let role = server.config.get_user().unwrap_or("of this user's name");
    let database = server.config.get_dbname().unwrap_or(role);
    match *code {
        SqlState::INVALID_PASSWORD => format!("correct the password of role {role} in {at}.url"),
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            let certificate = match server.identity {
                None => format!("if it asks for a client certificate, set {at}.client_certificate_file"),
                Some(_) => format!("if it asks for a client certificate, that must be one of the name {role}"),
            };
            format!("let role {role} log in from here: create role, pg_hba.conf; {certificate}")
        }
        SqlState::INVALID_CATALOG_NAME => {
            format!("as a superuser run: create database \"{database}\" owner \"{role}\";")
        }
        SqlState::INSUFFICIENT_PRIVILEGE => {
            format!("as a superuser run: grant connect on database \"{database}\" to \"{role}\";")
        }
        SqlState::TOO_MANY_CONNECTIONS => "each instance needs several connections: raise max_connections".to_owned(),
        SqlState::CANNOT_CONNECT_NOW => "wait until it has started".to_owned(),
        _ => "see the server's log".to_owned(),
    }
}

/// Advice if the connection fails. The client's errors have no kinds, so only their text tells them apart.
fn advice_on_connecting(error: &(dyn Error + 'static), at: &str) -> String {
    let words = Chain(error).to_string();
    if let Some(explained) = http::explained(error) {
        explained.to_owned()
    } else if words.contains("password missing") {
        format!("put the password into {at}.url or, better, into the file that {at}.url_file names")
    } else if words.contains("does not support TLS") {
        format!("turn TLS on there (ssl = on), or set sslmode=disable in {at}.url if you own the network in between")
    } else if let Some(error) = http::find(error) {
        advice_on_tls(error, at)
    } else if words.contains("does not allow writes") {
        format!("no host of {at}.url is the primary: add it")
    } else {
        format!("check host and port in {at}.url, and the network in between")
    }
}

/// Advice if the server's certificate is not accepted, or if the server does not accept the client's certificate.
fn advice_on_tls(error: &TlsError, at: &str) -> String {
    use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext};
    match error {
        TlsError::AlertReceived(_) => {
            format!(
                "the server refuses it: use a {at}.client_certificate_file that was issued by the server's ssl_ca_file"
            )
        }
        TlsError::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            format!("use the host name in its certificate in {at}.url")
        }
        TlsError::InvalidCertificate(Expired | ExpiredContext { .. }) => "its certificate must be renewed".to_owned(),
        _ => format!("name the CA of its certificate in {at}.ca_file"),
    }
}
