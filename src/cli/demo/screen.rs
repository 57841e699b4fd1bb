//! A sink that prints one readable line an event.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use anstyle::{AnsiColor, Style};
use async_trait::async_trait;
use serde::Deserialize;

use crate::event::Offset;
use crate::record::Message;
use crate::sink::{Delivery, Sink, SinkError, Undelivered};

const VERIFIED: Style = AnsiColor::Green.on_default().bold();
const UNSIGNED: Style = AnsiColor::Yellow.on_default();
const QUIET: Style = Style::new().dimmed();

/// Prints events, up to a limit; then it is closed.
#[derive(Debug)]
pub(super) struct Screen {
    limit: Option<u64>,
    shown: Mutex<Shown>,
}

/// What has been shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    pub(super) verified: u64,
    pub(super) unsigned: u64,
    /// Of the verified ones, those that came after younger ones.
    pub(super) late: u64,
    highest: Option<Offset>,
}

/// What a line says of a record.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    time: Option<&'a str>,
    verification: Verification,
    decoded: Option<Decoded>,
}

#[derive(Deserialize)]
struct Verification {
    status: String,
    #[serde(default)]
    signers: Vec<String>,
    required: Option<usize>,
}

#[derive(Deserialize)]
struct Decoded {
    name: Option<String>,
    service: Option<String>,
}

impl Screen {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self { limit, shown: Mutex::default() }
    }

    pub(super) fn shown(&self) -> Shown {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, record: &Message) -> Result<(), SinkError> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if self.limit.is_some_and(|limit| shown.verified + shown.unsigned >= limit) {
            return Err(SinkError::Closed);
        }
        let late = shown.highest > Some(record.offset());
        print(record, late)?;
        shown.highest = shown.highest.max(Some(record.offset()));
        if record.record().is_verified() {
            shown.verified += 1;
            shown.late += u64::from(late);
        } else {
            shown.unsigned += 1;
        }
        Ok(())
    }
}

#[async_trait]
impl Sink for Screen {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        for (delivered, record) in delivery.messages.iter().enumerate() {
            self.show(record).map_err(|error| Undelivered::after(delivered, error))?;
        }
        // Ends now, and not with the next event.
        let limit = self.limit.unwrap_or(u64::MAX);
        let shown = self.shown();
        if shown.verified + shown.unsigned >= limit {
            return Err(Undelivered::after(delivery.messages.len(), SinkError::Closed));
        }
        Ok(())
    }
}

fn print(record: &Message, late: bool) -> Result<(), SinkError> {
    let line = match serde_json::from_slice::<Line<'_>>(record.body()) {
        Ok(line) => text(record, &line, late),
        Err(_) => String::from_utf8_lossy(record.body()).into_owned(),
    };
    writeln!(anstream::stdout(), "{line}").map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => SinkError::Closed,
        _ => SinkError::Io { doing: "writing to standard output".to_owned(), source: error },
    })
}

fn text(record: &Message, line: &Line<'_>, late: bool) -> String {
    let style = if record.record().is_verified() { VERIFIED } else { UNSIGNED };
    let what = line.decoded.as_ref().map(|decoded| {
        [decoded.service.as_deref(), decoded.name.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(".")
    });
    let signatures = match line.verification.required {
        Some(required) => format!("{} of {required} signatures", line.verification.signers.len()),
        None => "no proof, by its nature".to_owned(),
    };
    format!(
        "{style}{:<8}{style:#} {:>5}  {QUIET}{:<20}{QUIET:#}  {:<16}  {:<28} {QUIET}{signatures}{}{QUIET:#}",
        line.verification.status,
        record.offset(),
        line.time.unwrap_or_default(),
        line.kind,
        what.unwrap_or_default(),
        if late { ", its proof came late" } else { "" },
    )
}
