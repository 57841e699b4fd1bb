//! Checks the servers and the stream for `check --connect`. Sends only requests without effects.

use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM};
use async_nats::{HeaderMap, Request};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use uuid::Uuid;

use super::failure::{RequestFailure, ServerRefusal, WRONG_SEQUENCE, WRONG_SEQUENCE_UNNUMBERED};
use super::server::Server;
use super::stream::summary;
use crate::SinkError;
use net::http;
use net::tasks::lock;
use proof::event::ChannelId;
use record::ChannelRef;

/// The longest wait for the sample that the server sends back. The server sends it before it answers the publisher.
const ECHO: Duration = Duration::from_secs(1);

/// The longest wait for the names of other streams.
const LISTING: Duration = Duration::from_secs(2);

impl Server {
    pub(super) async fn probe(&self) -> Result<String, SinkError> {
        let (version, _) = self.info().await?;
        let found = self.stream().await?;
        if found.is_none() && self.settings.create {
            self.can_be_created().await?;
            let name = &self.settings.stream;
            return Ok(format!(
                "NATS {version} is reachable; the stream {name} will be created: it has no limits until you set some"
            ));
        }
        let said = summary(&self.checked(found, &version)?, &self.settings, &version) + self.try_to_publish().await?;
        let is_known = self.check_mapping(&ChannelRef { name: "check".into(), id: ChannelId::default() }).await?;
        let note = "; not checked: whether the account maps the subjects of events to others, because the server does not trace \
                    messages for this user";
        Ok(if is_known { said } else { said + note })
    }

    /// Checks the reasons for which a server refuses to create the stream, as far as the server tells them.
    async fn can_be_created(&self) -> Result<(), SinkError> {
        #[derive(Deserialize)]
        struct Names {
            streams: Option<Vec<String>>,
        }
        let (settings, name) = (&self.settings, &self.settings.stream);
        let is_alone =
            self.client().await?.try_server_info().is_some_and(|info| info.jetstream && info.cluster.is_none());
        if is_alone && settings.replicas > 1 {
            let replicas = settings.replicas;
            return Err(SinkError::unusable(format!(
                "the stream {name} cannot have {replicas} replicas, because the server is not in a cluster: set replicas = 1"
            )));
        }
        for subject in [settings.subject.filter_of_all(), format!("{}.>", settings.positions)] {
            let request = Request::new().payload(json!({"subject": subject}).to_string().into());
            // The user may lack the right to list streams, which the daemon does not need. The server then does not answer.
            let names = timeout(LISTING, self.request::<Names>("$JS.API.STREAM.NAMES".to_owned(), request)).await;
            if let Some(other) = names.ok().and_then(|names| names.ok()?.streams?.into_iter().next()) {
                return Err(SinkError::unusable(format!(
                    "the stream {name} cannot be created, because the stream {other} takes the subject {subject}: name that \
                     stream, or choose another subject and another positions subject"
                )));
            }
        }
        Ok(())
    }

    /// Publishes a sample as a position. The server must refuse it, because no subject has the last message that the sample
    /// expects. The sample shows whether this user may publish, and whether the account maps the subject to another one.
    /// Returns a note for the operator.
    async fn try_to_publish(&self) -> Result<&'static str, SinkError> {
        let (stream, positions) = (&self.settings.stream, &self.settings.positions);
        let subject = format!("{positions}.{}.check-{}", Uuid::nil(), Uuid::new_v4().simple());
        let client = self.client().await?;
        let subscribed = client.subscribe(subject.clone()).await;
        let mut echoes = subscribed.map_err(|error| SinkError::away(http::root_cause(&error)))?;
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, &**stream);
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, i64::MAX.to_string());
        let sample = json!({"test": true, "of": "channeld check"}).to_string();
        match self.publish(subject, headers, sample.into()).await {
            Err(RequestFailure::Refused(ServerRefusal {
                err_code: WRONG_SEQUENCE | WRONG_SEQUENCE_UNNUMBERED,
                ..
            })) => {}
            Err(failure) => return Err(self.error_in("publishing to", failure)),
            Ok(_) => {
                return Err(SinkError::unusable(format!(
                    "the stream {stream} ignores the condition of a message, so that two instances could publish: use NATS 2.11 or newer"
                )));
            }
        }
        if timeout(ECHO, echoes.next()).await.is_ok_and(|echo| echo.is_some()) {
            return Ok("");
        }
        let trouble = lock(&self.trouble).take().unwrap_or_default().to_lowercase();
        if trouble.contains("permissions violation for subscription") {
            return Ok(
                "; not checked: whether the account maps the subjects to others, because this user may not subscribe",
            );
        }
        Err(SinkError::unusable(format!(
            "the account maps the subject {positions}.> to another subject (mappings), so that lanes would not find their positions \
             again: exclude this subject from the mappings"
        )))
    }
}
