//! Opens connections, waits for answers, and explains to an operator why a database cannot be used.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::{CertificateError, Error as TlsError};
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use super::ServerSettings;
use super::hosts::one_by_one;
use crate::{Chain, http};

/// The longest wait for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

impl ServerSettings {
    /// Whether the address names a host.
    pub fn has_host(&self) -> bool {
        !self.config.get_hosts().is_empty()
    }

    /// The database and its hosts, without secrets.
    pub fn place(&self) -> String {
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().map(host).collect();
        // As in libpq, the database name defaults to the role's name.
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{database} on {}", hosts.join(","))
    }

    /// Whether the operator's certificates require TLS although the address leaves the choice to the server.
    fn requires_tls(&self) -> bool {
        let by_network = self.config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)));
        let is_named = self.authorities.is_some() || self.identity.is_some();
        by_network && is_named && self.config.get_ssl_mode() == SslMode::Prefer
    }
}

/// Parses a URL. The other settings get their defaults.
impl FromStr for ServerSettings {
    type Err = tokio_postgres::Error;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        Ok(Self { config: url.parse()?, ..Self::default() })
    }
}

/// Why a request to the database failed.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The connection failed, or the server returned an error.
    #[error("the database cannot be used")]
    Server(#[from] tokio_postgres::Error),
    /// The server did not answer within this time.
    #[error("no answer for {} s", .0.as_secs())]
    Silent(Duration),
}

/// Called for each notification (`NOTIFY`) that a connection receives.
pub type OnNotification = Arc<dyn Fn() + Send + Sync>;

/// Opens connections to one database.
pub struct Connector {
    config: tokio_postgres::Config,
    /// One configuration for each host, in their order.
    hosts: Vec<tokio_postgres::Config>,
    /// The index of the host that the next attempt tries first. If a caller dropped the last attempt, this is the host after
    /// the silent one. Otherwise a caller with a short time limit would never reach it.
    begins_at: AtomicUsize,
    tls: MakeRustlsConnect,
}

/// An open connection.
pub struct OpenConnection {
    /// Executes statements.
    pub client: Client,
    _driver: AbortOnDropHandle<()>,
}

impl Connector {
    /// Creates a connector. It does not connect yet.
    ///
    /// # Errors
    /// If TLS cannot be set up with these certificates.
    pub fn new(server: &ServerSettings) -> Result<Self, rustls::Error> {
        let mut config = server.config.clone();
        if server.requires_tls() {
            config.ssl_mode(SslMode::Require);
        }
        let is_used = config.get_ssl_mode() != SslMode::Disable;
        let tls = http::tls(server.authorities.as_ref(), server.identity.as_ref(), is_used, Arc::default())?;
        let (hosts, begins_at) = (one_by_one(&config), AtomicUsize::default());
        Ok(Self { config, hosts, begins_at, tls: MakeRustlsConnect::new(tls) })
    }

    /// Opens a new connection to the first host that accepts it. Each host has [`ANSWER_TIMEOUT`].
    ///
    /// # Errors
    /// If no host can be reached, or all of them refuse the connection: the error of the last host.
    pub async fn connect(&self) -> Result<OpenConnection, DatabaseError> {
        self.connect_notified(&(Arc::new(|| ()) as OnNotification)).await
    }

    /// Like [`connect`](Self::connect), and calls `notified` for each notification that the connection receives.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub async fn connect_notified(&self, notified: &OnNotification) -> Result<OpenConnection, DatabaseError> {
        let (count, mut at) = (self.hosts.len(), self.begins_at.load(Ordering::Relaxed));
        let mut left = count;
        loop {
            let next = (at + 1) % count;
            self.begins_at.store(next, Ordering::Relaxed);
            let connected = Box::pin(self.connect_to(&self.hosts[at], notified)).await;
            left -= 1;
            match connected {
                Err(error) if left > 0 => {
                    debug!(error = %Chain(&error), "a database host cannot be used: trying the next one");
                }
                connected => {
                    self.begins_at.store(0, Ordering::Relaxed);
                    return connected;
                }
            }
            at = next;
        }
    }

    async fn connect_to(
        &self,
        host: &tokio_postgres::Config,
        notified: &OnNotification,
    ) -> Result<OpenConnection, DatabaseError> {
        let (client, mut connection) = answered(host.connect(self.tls.clone())).await?;
        let notified = notified.clone();
        // The driver ignores the connection's error, because every waiting statement receives that error too.
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    notified();
                }
            }
        });
        Ok(OpenConnection { client, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Asks the server to cancel the statement that the connection waits for. The caller does not learn whether the server
    /// does so.
    pub async fn cancel(&self, open: &OpenConnection) {
        drop(timeout(CANCEL_TIMEOUT, open.client.cancel_token().cancel_query(self.tls.clone())).await);
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("server", &self.config).finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConnection").finish_non_exhaustive()
    }
}

/// Converts a number to PostgreSQL's `bigint`. Epochs and versions stay far below the maximum of `bigint`.
pub fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Waits for an answer for at most [`ANSWER_TIMEOUT`].
///
/// # Errors
/// The server's error, or [`DatabaseError::Silent`].
pub async fn answered<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, DatabaseError> {
    answered_within(ANSWER_TIMEOUT, answer).await
}

/// Like [`answered`], with another longest wait.
///
/// # Errors
/// The server's error, or [`DatabaseError::Silent`].
pub async fn answered_within<T>(
    wait: Duration,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DatabaseError> {
    match timeout(wait, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(DatabaseError::Silent(wait)),
    }
}

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

fn advice_on_refusal(code: &SqlState, server: &ServerSettings, at: &str) -> String {
    // If the URL names no user, the client logs in with the name of the process's user. A placeholder represents this name.
    let role = server.config.get_user().unwrap_or("<role>");
    let database = server.config.get_dbname().unwrap_or(role);
    match *code {
        SqlState::INVALID_PASSWORD => format!("correct the password of role {role} in {at}.url"),
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            let certificate = match server.identity {
                None => format!("if the server asks for a client certificate, set {at}.client_certificate_file"),
                Some(_) => format!("if the server asks for a client certificate, the certificate must name {role}"),
            };
            format!("let role {role} log in from here: create the role and allow it in pg_hba.conf; {certificate}")
        }
        SqlState::INVALID_CATALOG_NAME => {
            format!("as a superuser run: create database \"{database}\" owner \"{role}\";")
        }
        SqlState::INSUFFICIENT_PRIVILEGE => {
            format!("as a superuser run: grant connect on database \"{database}\" to \"{role}\";")
        }
        SqlState::TOO_MANY_CONNECTIONS => "each instance needs several connections: raise max_connections".to_owned(),
        SqlState::CANNOT_CONNECT_NOW => "wait until the server has started".to_owned(),
        _ => "see the server's log".to_owned(),
    }
}

/// Advice if the connection fails. The client's errors have no kinds, so only their text tells them apart.
fn advice_on_connecting(error: &(dyn Error + 'static), at: &str) -> String {
    let words = Chain(error).to_string();
    if let Some(explained) = http::explained(error) {
        explained.to_owned()
    } else if let Some(DatabaseError::Silent(_)) = http::find(error) {
        format!(
            "the server may be overloaded, or wait for a lock: see pg_stat_activity; if nothing reaches it, check host and port in {at}.url, and the network in between"
        )
    } else if words.contains("password missing") {
        format!("put the password into {at}.url or, better, into the file that {at}.url_file names")
    } else if words.contains("does not support TLS") {
        format!(
            "turn TLS on at the server (ssl = on), or set sslmode=disable in {at}.url if you own the network in between"
        )
    } else if let Some(error) = http::find(error) {
        advice_on_tls(error, at)
    } else if words.contains("does not allow writes") {
        format!("no host of {at}.url is the primary: add the primary")
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
                "the server refuses the client certificate: use a {at}.client_certificate_file that was issued by the server's ssl_ca_file"
            )
        }
        TlsError::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            format!("in {at}.url, use the host name of the server's certificate")
        }
        TlsError::InvalidCertificate(Expired | ExpiredContext { .. }) => {
            "the server's certificate must be renewed".to_owned()
        }
        _ => format!("name the CA of the server's certificate in {at}.ca_file"),
    }
}
