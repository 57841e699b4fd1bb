//! The sinks: where events may go, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use super::keys::{Key, Keys, Reported};
use super::secret::{self, Secret};
use super::values::{check_name, choice, http_url, path, positive_duration, retry_waits};

/// `timeout` of a webhook where none is set.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `retry_wait` and `retry_wait_max` of a webhook where none is set.
const RETRY_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5 * 60));

/// The lengths of a webhook secret, in bytes (Standard Webhooks, "Signature scheme").
const SECRET_LENGTH: std::ops::RangeInclusive<usize> = 24..=64;

/// `[sinks.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// The process's standard output.
    Stdout,
    /// A file.
    File {
        /// Where it is. No other sink has the same path.
        path: PathBuf,
    },
    /// An HTTP endpoint of the operator.
    Webhook(Webhook),
}

/// An endpoint that events are posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The endpoint: http or https, no credentials, no fragment. Its query may hold a token: show
    /// [`Webhook::shown_url`] instead.
    pub url: Url,
    /// What deliveries are signed with: `whsec_` and base64 of 24 to 64 bytes.
    pub secret: Option<Secret>,
    /// The longest wait for an answer. Never zero.
    pub timeout: Duration,
    /// The wait after a first refusal. Never zero.
    pub retry_wait: Duration,
    /// What that wait grows to while refusals last. Not shorter than `retry_wait`.
    pub retry_wait_max: Duration,
}

impl Webhook {
    /// The endpoint without its query, fit for logs and people.
    #[must_use]
    pub fn shown_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_query(None);
        url
    }

    fn read(keys: &mut Keys, sink: &Key) -> Result<Self, Reported> {
        let url = keys.required(&sink.at("url"), http_url);
        let secret = secret::read(keys, sink, "secret", check_secret);
        let timeout = keys.optional(&sink.at("timeout"), positive_duration);
        let (retry_wait, retry_wait_max) = retry_waits(keys, sink, Some(RETRY_WAITS))?;
        let timeout = timeout?.unwrap_or(TIMEOUT);
        Ok(Self { url: url?, secret: secret?, timeout, retry_wait, retry_wait_max })
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.shown_url().as_str())
            .field("secret", &self.secret)
            .field("timeout", &self.timeout)
            .field("retry_wait", &self.retry_wait)
            .field("retry_wait_max", &self.retry_wait_max)
            .finish()
    }
}

/// The types of sinks, by the word for each.
#[derive(Clone, Copy)]
enum Type {
    Stdout,
    File,
    Webhook,
}

const TYPES: [(&str, Type); 3] = [("stdout", Type::Stdout), ("file", Type::File), ("webhook", Type::Webhook)];

/// Reads every sink.
pub(super) fn read_all(keys: &mut Keys) -> Result<BTreeMap<String, Sink>, Reported> {
    let table = Key::new("sinks");
    let mut sinks = Ok(BTreeMap::new());
    for name in keys.names(&table)? {
        check_name(keys, &table.at(&name));
        match (read(keys, &table.at(&name)), &mut sinks) {
            (Ok(sink), Ok(read)) => {
                check_path(keys, &table, &name, &sink, read);
                read.insert(name, sink);
            }
            (Err(reported), _) => sinks = Err(reported),
            (Ok(_), Err(_)) => {}
        }
    }
    sinks
}

fn read(keys: &mut Keys, sink: &Key) -> Result<Sink, Reported> {
    match keys.required(&sink.at("type"), choice(&TYPES)) {
        Ok(Type::Stdout) => Ok(Sink::Stdout),
        Ok(Type::File) => keys.required(&sink.at("path"), path).map(|path| Sink::File { path }),
        Ok(Type::Webhook) => Webhook::read(keys, sink).map(Sink::Webhook),
        Err(reported) => {
            keys.pass_over(sink);
            Err(reported)
        }
    }
}

/// Two sinks in one file would write over each other.
fn check_path(keys: &mut Keys, table: &Key, name: &str, sink: &Sink, others: &BTreeMap<String, Sink>) {
    let Sink::File { .. } = sink else { return };
    if let Some((other, _)) = others.iter().find(|(_, other)| *other == sink) {
        let other = table.at(other);
        keys.wrong(&table.at(name).at("path"), format!("is the file of {other} too; give each sink a file of its own"));
    }
}

fn check_secret(text: &str) -> Result<(), &'static str> {
    let encoded = text.strip_prefix("whsec_");
    match encoded.and_then(|encoded| STANDARD.decode(encoded).ok()) {
        Some(bytes) if SECRET_LENGTH.contains(&bytes.len()) => Ok(()),
        Some(_) => Err("must hold 24 to 64 bytes; make one with: echo whsec_$(openssl rand -base64 32)"),
        None => Err("must be whsec_ followed by base64; make one with: echo whsec_$(openssl rand -base64 32)"),
    }
}
