//! The connection to the servers, and the JetStream API requests of the sink. The lanes of a sink share it.
//!
//! # Invariants
//!
//! * **One connection for each sink,** made at its first use. The client reconnects automatically.
//! * **Bounded.** The timeout bounds every request.
//! * **Refused or unknown.** A request that a server has answered with an error was not carried out. A request without an
//!   answer may have been carried out, or may still be carried out later.

use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, HeaderMap, Request, RequestErrorKind, ServerAddr};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls::ClientConfig;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use uuid::Uuid;

use super::failure::{DENIED, NO_MESSAGE, RequestFailure, unanswered, unreadable};
use crate::SinkError;
use crate::settings::{Login, NatsSettings};
use net::http;
use net::tasks::lock;

/// The delay between two attempts to reconnect.
const RECONNECT: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Ack {
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) duplicate: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct StoredMessage {
    #[serde(default)]
    pub(super) subject: String,
    #[serde(rename = "seq")]
    pub(super) sequence: u64,
    #[serde(rename = "hdrs", default, deserialize_with = "decoded")]
    pub(super) headers: Vec<u8>,
    #[serde(rename = "data", default, deserialize_with = "decoded")]
    pub(super) body: Vec<u8>,
}

/// The sink's connection to the servers.
pub(super) struct Server {
    pub(super) settings: NatsSettings,
    /// Identifies this run of the process.
    pub(super) instance: Uuid,
    /// The maximum number of events in one delivery. This number depends on the settings of the stream.
    pub(super) at_once: AtomicUsize,
    client: OnceCell<Client>,
    /// The last error that the client has reported since it was connected.
    pub(super) trouble: Arc<Mutex<Option<String>>>,
    /// Why the stream acknowledges messages before they are on a disk, according to its settings.
    pub(super) early_ack: Mutex<Option<&'static str>>,
    /// Whether this user lacks a permission for the samples that show how the account maps subjects. No more are sent then.
    pub(super) may_not_trace: AtomicBool,
}

impl Server {
    pub(super) fn new(settings: NatsSettings, at_once: usize) -> Self {
        let (client, trouble) = (OnceCell::new(), Arc::default());
        let (early_ack, may_not_trace) = (Mutex::default(), AtomicBool::default());
        Self { settings, instance: Uuid::new_v4(), at_once: at_once.into(), client, trouble, early_ack, may_not_trace }
    }

    /// The connection. Fails if it is not connected at the moment.
    pub(super) async fn client(&self) -> Result<Client, SinkError> {
        let client = self.client.get_or_try_init(|| self.connect()).await?;
        if client.connection_state() == State::Connected {
            return Ok(client.clone());
        }
        let trouble = lock(&self.trouble).clone().map(|trouble| format!(": {trouble}")).unwrap_or_default();
        Err(SinkError::away(format!("{} cannot be reached{trouble}", self.settings.shown_servers())))
    }

    async fn connect(&self) -> Result<Client, SinkError> {
        let servers = self.settings.shown_servers();
        let set_up = |message: String| SinkError::unusable(format!("connecting to {servers}: {message}"));
        let trouble = self.trouble.clone();
        let options = match &self.settings.login {
            Login::None => ConnectOptions::new(),
            Login::Credentials(credentials) => ConnectOptions::with_credentials(credentials.expose())
                .map_err(|_| set_up("credentials_file contains no user credentials".to_owned()))?,
            Login::Password(user, password) => {
                ConnectOptions::with_user_and_password(user.clone(), password.expose().to_owned())
            }
            Login::Token(token) => ConnectOptions::with_token(token.expose().to_owned()),
        };
        let tls = self.tls().map_err(|error| set_up(error.to_string()))?;
        let options = options
            .name("channeld")
            .require_tls(self.requires_tls())
            .tls_client_config(tls)
            .connection_timeout(self.settings.timeout)
            .request_timeout(Some(self.settings.timeout))
            .max_reconnects(None)
            // The library's default delay grows with every reconnection since the process started, and soon takes seconds.
            .reconnect_delay_callback(|attempt| if attempt <= 1 { Duration::ZERO } else { RECONNECT })
            .event_callback(move |event| {
                match event {
                    Event::Connected => *lock(&trouble) = None,
                    Event::ServerError(error) => *lock(&trouble) = Some(error.to_string()),
                    Event::ClientError(error) => *lock(&trouble) = Some(error.to_string()),
                    _ => {}
                }
                ready(())
            });
        let addresses: Result<Vec<ServerAddr>, _> =
            self.settings.servers.iter().map(|url| ServerAddr::from_url(url.clone())).collect();
        let addresses = addresses.map_err(|error| set_up(error.to_string()))?;
        // `connection_timeout` bounds this attempt for each server.
        options.connect(addresses).await.map_err(|error| {
            let root = http::reason(&error);
            if let Some(refusal) = http::find(&error) {
                return set_up(format!("TLS failed: {root}{}", self.advice(refusal)));
            }
            match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    set_up(format!("login refused ({root}): check the credentials, user, password or token"))
                }
                ConnectErrorKind::Tls => set_up(format!("TLS failed: {root}")),
                _ => SinkError::away(format!("{servers} cannot be reached: {root}")),
            }
        })
    }

    /// The advice for a failed TLS handshake: this client refused the server's certificate, or the server refused the
    /// client's.
    fn advice(&self, error: &rustls::Error) -> &'static str {
        match (error, &self.settings.identity) {
            (rustls::Error::AlertReceived(_), None) => {
                "; does the server ask for a client certificate (client_certificate_file)?"
            }
            (rustls::Error::AlertReceived(_), Some(_)) => "; does the server know the CA of client_certificate_file?",
            (error, _) => http::advice(error),
        }
    }

    /// Whether the connection must use TLS even if the server does not ask for it.
    fn requires_tls(&self) -> bool {
        let NatsSettings { authorities, identity, servers, .. } = &self.settings;
        authorities.is_some() || identity.is_some() || servers.iter().any(|url| url.scheme() == "tls")
    }

    fn tls(&self) -> Result<ClientConfig, rustls::Error> {
        let NatsSettings { authorities, identity, .. } = &self.settings;
        let by = |is_used| http::tls(authorities.as_ref(), identity.as_ref(), is_used, Arc::default());
        // A server may require TLS even if the settings do not. If the system's authorities cannot be loaded, a connection
        // without TLS must still be possible.
        by(true).or_else(|error| if self.requires_tls() { Err(error) } else { by(false) })
    }

    /// The version of the server, and the size of the largest message that the server accepts, with its headers, in bytes.
    pub(super) async fn info(&self) -> Result<(String, usize), SinkError> {
        let info = self.client().await?.try_server_info();
        Ok(info.map_or((String::new(), usize::MAX), |info| (info.version, info.max_payload)))
    }

    /// The first message that the query selects: by `seq`, `next_by_subj` or `last_by_subj`.
    pub(super) async fn message(&self, query: &Value) -> Result<Option<StoredMessage>, RequestFailure> {
        #[derive(Deserialize)]
        struct Found {
            message: StoredMessage,
        }
        match self.ask::<Found>("STREAM.MSG.GET", query).await {
            Err(failure) if failure.is(NO_MESSAGE) => Ok(None),
            answer => Ok(Some(answer?.message)),
        }
    }

    /// Sends a request about the stream to the JetStream API, and returns the answer.
    pub(super) async fn ask<T: DeserializeOwned>(&self, what: &str, request: &Value) -> Result<T, RequestFailure> {
        let subject = format!("$JS.API.{what}.{}", self.settings.stream);
        self.request(subject, Request::new().payload(request.to_string().into())).await
    }

    /// Publishes a message, and waits for the acknowledgement of the stream.
    pub(super) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Ack, RequestFailure> {
        self.request(subject, Request::new().headers(headers).payload(body)).await
    }

    /// Publishes a message of a batch without waiting for an answer: the server acknowledges the batch as a whole.
    pub(super) async fn send(&self, subject: String, headers: HeaderMap, body: Bytes) -> Result<(), RequestFailure> {
        let client = self.client().await.map_err(RequestFailure::Unanswered)?;
        let sent = timeout(self.settings.timeout, client.publish_with_headers(subject, headers, body)).await;
        sent.map_err(|_| self.timed_out())?.map_err(|error| unanswered(http::root_cause(&error)))
    }

    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        subject: String,
        request: Request,
    ) -> Result<T, RequestFailure> {
        let client = self.client().await.map_err(RequestFailure::Unanswered)?;
        let answer = timeout(self.settings.timeout, client.send_request(subject, request)).await;
        let message = answer.map_err(|_| self.timed_out())?.map_err(|error| match error.kind() {
            RequestErrorKind::TimedOut => self.timed_out(),
            RequestErrorKind::NoResponders => {
                unanswered("no answer from JetStream: it is off, still starting or without a leader".to_owned())
            }
            _ => unanswered(http::root_cause(&error)),
        })?;
        let mut answer: Value = serde_json::from_slice(&message.payload).map_err(unreadable)?;
        match answer.get_mut("error").map(Value::take) {
            Some(error) => Err(RequestFailure::Refused(serde_json::from_value(error).map_err(unreadable)?)),
            None => serde_json::from_value(answer).map_err(unreadable),
        }
    }

    /// The failure of a request without an answer. If the user is not allowed to make a request, the server reports an
    /// error and does not answer the request. The failure therefore includes the error that was reported last.
    fn timed_out(&self) -> RequestFailure {
        let said = format!("no answer within {:?}", self.settings.timeout);
        if let Some(denied) = self.denied() {
            return RequestFailure::Unanswered(SinkError::unusable(format!("{said}: {denied}")));
        }
        let trouble = lock(&self.trouble).take().map(|trouble| format!(": {trouble}")).unwrap_or_default();
        unanswered(format!("{said}{trouble}"))
    }

    /// The server's last report, if it is about a missing permission, with advice. A server does not say to which request it
    /// belongs.
    fn denied(&self) -> Option<String> {
        let trouble = lock(&self.trouble).take_if(|trouble| trouble.to_lowercase().contains(DENIED))?;
        Some(format!("{trouble}: give the user this permission"))
    }

    /// The error for an event that could not be published. A refusal counts as the fault of the event unless its code is
    /// known to have another cause.
    pub(super) fn error_of_event(&self, failure: RequestFailure) -> SinkError {
        let stream = &self.settings.stream;
        let refused = |said| SinkError::refused(format!("the stream {stream} refuses it: {said}"));
        failure.error(stream, || self.denied(), refused)
    }

    /// The error for a failed request that is not about an event.
    pub(super) fn error_in(&self, doing: &str, failure: RequestFailure) -> SinkError {
        let stream = &self.settings.stream;
        let refused = |said| SinkError::unusable(format!("{doing} the stream {stream}: {said}"));
        failure.error(stream, || self.denied(), refused)
    }
}

fn decoded<'de, D: Deserializer<'de>>(base64: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(base64)?).map_err(D::Error::custom)
}
