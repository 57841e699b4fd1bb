//! Reaching a PostgreSQL server: the state's database, and those that sinks write to.
//!
//! # Invariants
//!
//! * **TLS is checked.** Where TLS is used, the server shows a certificate of the system's authorities, or of the operator's
//!   alone. Where the operator names authorities or a client certificate, nothing goes over a network without TLS, unless
//!   the address says `sslmode=disable`.
//! * **No answer is an answer.** A server that says nothing for [`ANSWER_TIMEOUT`] is taken for dead.
//! * **Secrets are silent.** No error and no `Debug` shows a password or a key.
//!
//! # Cancellation
//!
//! A statement whose future is dropped may still be carried out.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use crate::http::{self, Authorities, Identity};

mod advice;

pub use advice::{advice_on_standby, advised};

/// The longest wait for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest wait for a server that is asked to give a statement up.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Which database, and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// `url`. Its `Debug` shows no password.
    pub config: tokio_postgres::Config,
    /// `ca_file`: the authorities that TLS trusts instead of the system's.
    pub authorities: Option<Authorities>,
    /// `client_certificate_file` and `client_key_file`, where the server asks for a certificate.
    pub identity: Option<Identity>,
}

impl ServerSettings {
    /// Which database it is, without what is secret.
    pub fn place(&self) -> String {
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().map(host).collect();
        // As libpq has it: the role's name is the default.
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{database} on {}", hosts.join(","))
    }

    /// Whether the operator asks for TLS by more than the address, which may leave it to the server.
    fn requires_tls(&self) -> bool {
        let by_network = self.config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)));
        let is_named = self.authorities.is_some() || self.identity.is_some();
        by_network && is_named && self.config.get_ssl_mode() == SslMode::Prefer
    }
}

/// A URL alone.
impl FromStr for ServerSettings {
    type Err = tokio_postgres::Error;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        Ok(Self { config: url.parse()?, ..Self::default() })
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// There is no connection, or the server refuses.
    #[error("the database cannot be used")]
    Server(#[from] tokio_postgres::Error),
    /// It has said nothing for so long.
    #[error("no answer for {} s", .0.as_secs())]
    Silent(Duration),
}

/// Makes connections to one database.
pub struct Connector {
    config: tokio_postgres::Config,
    tls: MakeRustlsConnect,
}

/// A connection that is open.
pub struct Open {
    /// Carries statements out.
    pub client: Client,
    _driver: AbortOnDropHandle<()>,
}

impl Connector {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// If no certificate can be checked.
    pub fn new(server: &ServerSettings) -> Result<Self, rustls::Error> {
        let mut config = server.config.clone();
        if server.requires_tls() {
            config.ssl_mode(SslMode::Require);
        }
        let is_used = config.get_ssl_mode() != SslMode::Disable;
        let tls = http::server_tls(server.authorities.as_ref(), server.identity.as_ref(), is_used)?;
        Ok(Self { config, tls: MakeRustlsConnect::new(tls) })
    }

    /// A new connection.
    ///
    /// # Errors
    /// If there is none to be had now.
    pub async fn connect(&self) -> Result<Open, DatabaseError> {
        let connected = answered(self.config.connect(self.tls.clone())).await;
        let (client, connection) = connected?;
        // Its error is that of every statement that waits for an answer.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Open { client, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Asks the server to give up the statement that a connection waits for. Whether it does is not known.
    pub async fn cancel(&self, open: &Open) {
        drop(timeout(CANCEL_TIMEOUT, open.client.cancel_token().cancel_query(self.tls.clone())).await);
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("server", &self.config).finish_non_exhaustive()
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

/// A number as PostgreSQL has it. Epochs and versions stay far below the largest.
pub fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// An answer in time, or that there is none.
///
/// # Errors
/// The server's, or [`DatabaseError::Silent`].
pub async fn answered<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, DatabaseError> {
    match timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(DatabaseError::Silent(ANSWER_TIMEOUT)),
    }
}
