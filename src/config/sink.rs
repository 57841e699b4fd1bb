//! `[sinks.NAME]`: where events may go, by name, and in what shape. Each type reads the keys of its own in a file below.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::filter;
use super::table::{Reported, Table};
use super::values::{choice, word};
use crate::record::{Filter, Format, Shape};
use crate::retry::RetryPolicy;
use crate::sink::{self, File, FileSettings, SinkError, Stdout, Webhook, WebhookSettings};

mod file;
mod stdout;
mod webhook;

/// Reads the keys that are a type's own.
type Read = fn(&mut Table<'_>) -> Result<Target, Reported>;

/// Every type of sinks: the word that `type` is set to, and how its table is read.
pub(super) const KINDS: [(&str, Read); 3] =
    [("stdout", stdout::read), ("file", file::read), ("webhook", webhook::read)];

/// `[sinks.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    /// The word for its type.
    pub kind: &'static str,
    /// Where events go.
    pub target: Target,
    /// The shape that they are written in.
    pub shape: Shape,
    /// Which of them it is given, where a channel does not say otherwise; without one, all.
    pub filter: Option<Filter>,
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What its type needs to know.
    pub settings: SinkSettings,
    /// The settings for people, in one line, beside the word for the type. Holds no secret.
    pub shown: String,
    /// The settings for machines, by name. Holds no secret.
    pub json: Map<String, Value>,
    /// The waits while the sink refuses.
    pub retry: RetryPolicy,
    /// After this time of refusals an event becomes a dead letter; without it, never.
    pub give_up_after: Option<Duration>,
}

/// The settings of a sink, by its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkSettings {
    /// Standard output. There is nothing to decide about it.
    Stdout,
    /// A file.
    File(FileSettings),
    /// A webhook.
    Webhook(Box<WebhookSettings>),
}

impl SinkSettings {
    /// Makes the sink. Nothing is opened or sent yet.
    ///
    /// # Errors
    /// If it cannot be made on this machine.
    pub fn build(&self) -> Result<Arc<dyn sink::Sink>, SinkError> {
        Ok(match self {
            Self::Stdout => Arc::new(Stdout::new()?),
            Self::File(settings) => Arc::new(File::new(settings.clone())),
            Self::Webhook(settings) => Arc::new(Webhook::new((**settings).clone())?),
        })
    }
}

impl Target {
    /// For a type without waits of its own, and which never gives up an event.
    fn new(settings: SinkSettings, shown: String, json: Map<String, Value>) -> Self {
        let retry = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };
        Self { settings, shown, json, retry, give_up_after: None }
    }
}

/// Reads every sink.
pub(super) fn read_all(table: &mut Table<'_>) -> Result<BTreeMap<String, Sink>, Reported> {
    let mut sinks = BTreeMap::new();
    let mut outcome = Ok(());
    for name in table.names()? {
        match read(&mut table.table(&name)) {
            Ok(sink) => {
                file::check_conflicts(table, &name, &sink, &sinks);
                sinks.insert(name, sink);
            }
            Err(reported) => outcome = Err(reported),
        }
    }
    outcome.map(|()| sinks)
}

fn read(sink: &mut Table<'_>) -> Result<Sink, Reported> {
    sink.check_name();
    let kinds = KINDS.map(|kind| (kind.0, kind));
    let Ok((kind, read)) = sink.required("type", choice(&kinds)) else {
        sink.pass_over();
        return Err(Reported);
    };
    let target = read(sink);
    let shape = read_shape(sink);
    let filter = filter::read(sink, "filter");
    Ok(Sink { kind, target: target?, shape: shape?, filter: filter? })
}

fn read_shape(sink: &mut Table<'_>) -> Result<Shape, Reported> {
    let format = sink.optional("format", word);
    let include_proof = sink.boolean("include_proof");
    let shape = Shape { format: format?.unwrap_or_default(), include_proof: include_proof?.unwrap_or_default() };
    if shape == (Shape { format: Format::Raw, include_proof: true }) {
        let message = "cannot be set for the format \"raw\", which is the service's event with its proof in it already";
        return Err(sink.wrong("include_proof", message));
    }
    Ok(shape)
}

/// Settings for machines.
fn map<const N: usize>(settings: [(&str, Value); N]) -> Map<String, Value> {
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
