//! Log lines: text for people, one JSON object per line for programs, and the priority for the journal. Text from a
//! service, a file name or an event cannot break a line. A log target has the form that an operator uses, such as
//! `channeld::api`, independent of the crate that contains the module.

use std::borrow::Cow;
use std::fmt::{self, Debug, Write};
use std::io;
use std::os::fd::AsFd;

use anstyle::Style;
use rustix::fs::fstat;
use serde::Serializer;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

const NAME: Style = Style::new().dimmed();

/// Formats the message and then `name=value` pairs, separated by spaces. No content can end the line, move a terminal's
/// cursor, or change colors or the text direction.
pub(super) fn on_one_line() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(write_field).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => {}
        // The fields that the bridge from the `log` crate adds: the target and the source location.
        name if name.starts_with("log.") => return Ok(()),
        name if writer.has_ansi_escapes() => write!(writer, "{NAME}{name}={NAME:#}")?,
        name => write!(writer, "{name}=")?,
    }
    write!(Escaping(writer), "{value:?}")
}

/// Writes printable characters unchanged, and all others with Rust's escapes.
struct Escaping<'a, 'w>(&'a mut Writer<'w>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_escaped) {
            match part.char_indices().next_back() {
                Some((at, last)) if is_escaped(last) => write!(self.0, "{}{}", &part[..at], last.escape_debug())?,
                _ => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// Matches control characters, and the Unicode characters that end a line or change the text direction.
fn is_escaped(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

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
        let mut fields = Fields { target: shown(metadata.target()).into(), rest: Map::new() };
        event.record(&mut fields);
        let Fields { target, mut rest } = fields;
        let message = rest.remove("message").unwrap_or_default();
        let level = metadata.level().as_str();
        let first = [("timestamp", time.into()), ("level", level.into()), ("target", target), ("message", message)];
        let line = first.map(|(name, value): (&str, Value)| (name.to_owned(), value)).into_iter().chain(rest);
        let mut json = Vec::new();
        serde_json::Serializer::new(&mut json).collect_map(line).map_err(|_| fmt::Error)?;
        writeln!(to, "{}", String::from_utf8_lossy(&json))
    }
}

/// The target and the fields of a line. Of the fields that the bridge from the `log` crate adds, only the target is
/// kept, because the others name source locations.
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

/// Defines methods of [`Visit`] for types that JSON also has.
macro_rules! taken {
    ($($record:ident: $type:ty),*) => {$(
        fn $record(&mut self, field: &Field, value: $type) {
            self.take(field, value);
        }
    )*};
}

impl Visit for Fields {
    taken!(record_i64: i64, record_u64: u64, record_f64: f64, record_bool: bool, record_str: &str);

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.take(field, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, format!("{value:?}"));
    }
}

/// The crates of channeld that write logs, without the program itself. A target begins with the name of its crate.
pub const CRATES: [&str; 11] =
    ["api", "channel", "cluster", "console", "feed", "ledger", "net", "operator", "record", "sink", "telemetry"];

/// Converts a target to its displayed form.
pub(super) fn shown(target: &str) -> Cow<'_, str> {
    let is_own = target.split("::").next().is_some_and(|first| CRATES.contains(&first));
    if is_own { format!("channeld::{}", target.strip_prefix("net::").unwrap_or(target)).into() } else { target.into() }
}

/// The directives that an operator wrote, with the directives for `channeld` repeated for its crates.
pub(super) fn directives(written: &str) -> String {
    let parts = || written.split(',').map(str::trim);
    let mut all = Vec::new();
    // A directive applies to all targets with its prefix. `channel=debug` would therefore also apply to `channeld`, so
    // `channeld` gets a directive of its own.
    let own = parts().any(|part| part == "channeld" || part.starts_with("channeld="));
    if !own && parts().any(|part| part.starts_with("channeld::channel")) {
        let level = parts().rfind(|part| !part.contains('='));
        all.push(format!("channeld={}", level.unwrap_or("off")).into());
    }
    for directive in parts() {
        all.push(Cow::from(directive));
        let Some(rest) = directive.strip_prefix("channeld") else { continue };
        if let Some(module) = rest.strip_prefix("::") {
            all.extend([module.into(), format!("net::{module}").into()]);
        } else if rest.is_empty() || rest.starts_with(['=', '[']) {
            all.extend(CRATES.map(|name| format!("{name}{rest}").into()));
        }
    }
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_for_channeld_applies_to_all_its_crates() {
        assert_eq!(directives("info, channeld::api=debug"), "info,channeld::api=debug,api=debug,net::api=debug");
        assert!(directives("warn,channeld=trace").ends_with(",sink=trace,telemetry=trace"));
        assert_eq!(directives("channelder=debug,hyper=off"), "channelder=debug,hyper=off");
        let of_channel = "channeld=warn,warn,channeld::channel=debug,channel=debug,net::channel=debug";
        assert_eq!(directives("warn,channeld::channel=debug"), of_channel);
    }

    #[test]
    fn a_target_is_shown_by_its_module() {
        let shown = ["sink::file", "net::http", "channeld::daemon", "sled::log", "sinks"].map(|target| shown(target));
        assert_eq!(shown, ["channeld::sink::file", "channeld::http", "channeld::daemon", "sled::log", "sinks"]);
    }
}
