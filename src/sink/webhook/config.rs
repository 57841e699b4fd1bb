//! The keys of a webhook, and how they are read.

use std::sync::Arc;
use std::time::Duration;

use crate::config::keys::{Key, Keys, Reported};
use crate::config::secret;
use crate::config::values::{http_url, positive_duration, retry_waits};
use crate::retry::RetryPolicy;
use crate::sink::Kind;

use super::{SigningKeys, WebhookSettings};

mod connection;
mod dispatch;
mod headers;

pub(in crate::sink) const KIND: Kind = Kind { word: "webhook", read: |keys, sink| Ok(Arc::new(read(keys, sink)?)) };

/// `timeout` where none is set.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `retry_wait` and `retry_wait_max` where none is set.
const RETRY_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

fn read(keys: &mut Keys, sink: &Key) -> Result<WebhookSettings, Reported> {
    let url = keys.required(&sink.at("url"), http_url);
    let parse = |text: &str| SigningKeys::parse(text).map_err(|error| error.to_string());
    let secrets = secret::read_as(keys, sink, "secret", parse);
    let headers = headers::read(keys, sink);
    let connection = connection::read(keys, sink, url.as_ref().ok());
    let dispatch = dispatch::read(keys, sink);
    let timeout = keys.optional(&sink.at("timeout"), positive_duration);
    let (wait, max_wait) = retry_waits(keys, sink, Some(RETRY_WAITS))?;
    let give_up_after = keys.optional(&sink.at("give_up_after"), positive_duration);
    Ok(WebhookSettings {
        url: url?,
        keys: secrets?.unwrap_or_default(),
        headers: headers?,
        connection: connection?,
        dispatch: dispatch?,
        timeout: timeout?.unwrap_or(TIMEOUT),
        retry: RetryPolicy { wait, max_wait },
        give_up_after: give_up_after?,
    })
}
