//! Connects to a PostgreSQL server: the state's database, and the databases of sinks.
//!
//! # Invariants
//!
//! * **TLS is checked.** With TLS, the server must present a certificate of a trusted authority. If the operator names
//!   authorities, only these are trusted; otherwise the system's authorities are trusted. If the operator names
//!   authorities or a client certificate, no data crosses a network without TLS. The only exception is an address with
//!   `sslmode=disable`.
//! * **Silence is an error.** A server that does not answer within [`ANSWER_TIMEOUT`] counts as unreachable.
//! * **Secrets are silent.** No error and no `Debug` output shows a password or a key.
//!
//! # Cancellation
//!
//! If the future of a statement is dropped, the server may still execute the statement.

use crate::http::{Authorities, Identity};

#[cfg(feature = "postgres")]
mod client;
#[cfg(feature = "postgres")]
mod early_ack;
#[cfg(feature = "postgres")]
mod hosts;

#[cfg(not(feature = "postgres"))]
pub use absent::Address;
#[cfg(feature = "postgres")]
pub use client::{
    ANSWER_TIMEOUT, Connector, DatabaseError, OnNotification, OpenConnection, advice_on_standby, advised, answered,
    answered_within, bigint,
};
#[cfg(feature = "postgres")]
pub use early_ack::EarlyAck;
#[cfg(feature = "postgres")]
pub use tokio_postgres::Config as Address;

/// The database and the settings of the connection to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// `url`. Its `Debug` shows no password.
    pub config: Address,
    /// `ca_file`: the authorities that TLS trusts instead of the system's.
    pub authorities: Option<Authorities>,
    /// `client_certificate_file` and `client_key_file`, for servers that request a certificate.
    pub identity: Option<Identity>,
}

/// The address of a server, in a program without PostgreSQL. It only records whether an address is configured.
#[cfg(not(feature = "postgres"))]
mod absent {
    use std::convert::Infallible;
    use std::str::FromStr;

    use super::ServerSettings;

    /// An address whose text is not parsed.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Address {
        is_set: bool,
    }

    impl FromStr for Address {
        type Err = Infallible;

        fn from_str(text: &str) -> Result<Self, Self::Err> {
            Ok(Self { is_set: !text.is_empty() })
        }
    }

    impl ServerSettings {
        /// Whether an address is configured.
        pub fn has_host(&self) -> bool {
            self.config.is_set
        }

        /// A description for people.
        pub fn place(&self) -> String {
            "PostgreSQL".to_owned()
        }
    }
}
