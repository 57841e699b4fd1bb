//! Log lines for programs: one JSON object per line, or a text line with its priority for the journal.

use std::fmt::{self, Debug};
use std::io;
use std::os::fd::AsFd;

use rustix::fs::fstat;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::targets;

/// Prefixes each line with its priority, such as `<4>`. The journal removes the prefix.
pub(super) struct Prefixed<F>(pub(super) F);

impl<S, N, F> FormatEvent<S, N> for Prefixed<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        write!(to, "<{priority}>")?;
        self.0.format_event(context, to, event)
    }
}

/// Whether standard error goes to the journal. systemd passes the device and inode of the journal's stream.
pub fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let named = named.as_deref().and_then(|name| name.split_once(':'));
    let parsed = named.and_then(|(device, inode)| Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?)));
    parsed.is_some_and(|stream| fstat(io::stderr().as_fd()).is_ok_and(|found| (found.st_dev, found.st_ino) == stream))
}

/// Writes one object per line with `timestamp`, `level`, `target`, `message` and the fields.
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (metadata, mut time) = (event.metadata(), String::new());
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields { target: targets::shown(metadata.target()).into(), rest: Map::new() };
        event.record(&mut fields);
        let Fields { target, mut rest } = fields;
        let message = rest.remove("message").unwrap_or_default();
        let level = metadata.level().as_str();
        let first = [("timestamp", time.into()), ("level", level.into()), ("target", target), ("message", message)];
        let line = Object { first, rest };
        writeln!(to, "{}", serde_json::to_string(&line).map_err(|_| fmt::Error)?)
    }
}

struct Object {
    first: [(&'static str, Value); 4],
    rest: Map<String, Value>,
}

impl serde::Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rest = self.rest.iter().map(|(name, value)| (name.as_str(), value));
        serializer.collect_map(self.first.iter().map(|(name, value)| (*name, value)).chain(rest))
    }
}

/// The fields of a line, without the fields that the bridge from the `log` crate adds, because they name source
/// locations.
struct Fields {
    target: Value,
    rest: Map<String, Value>,
}

impl Fields {
    fn take(&mut self, field: &Field, value: impl Into<Value>) {
        match field.name() {
            "log.target" => self.target = value.into(),
            name if name.starts_with("log.") => {}
            name => drop(self.rest.insert(name.to_owned(), value.into())),
        }
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.take(field, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, format!("{value:?}"));
    }
}
