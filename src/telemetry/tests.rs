use std::error::Error;
use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing::{info, warn};

use net::Chain;

use super::*;

/// Collects the standard error of a program.
#[derive(Clone, Default)]
pub(super) struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log output of `said`.
fn written(format: LogFormat, with_colours: bool, said: impl FnOnce()) -> String {
    let written = CapturedLog::default();
    let to = written.clone();
    let lines = lines(format, move || to.clone(), with_colours, false);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), said);
    written.text()
}

/// Characters that end a line, move a cursor, or change colors or the text direction.
const NASTY: &str =
    "a\nb\r\n\u{1b}[31mred\u{1b}]0;title\u{7}\u{8}\u{c}\u{b}\0\t\u{7f}\u{85}\u{9b}31m\u{2028}\u{2029}\u{202e}\u{2066}z";

fn say_something_nasty() {
    let error = io::Error::other(NASTY);
    warn!(shown = %NASTY, quoted = NASTY, debug = ?NASTY, error = %Chain(&error), cause = &error as &dyn Error, "it said {NASTY}");
}

#[test]
fn a_log_line_is_one_line_whatever_it_contains() {
    for format in [LogFormat::Text, LogFormat::Json] {
        let written = written(format, false, say_something_nasty);
        let line = written.strip_suffix('\n').expect("a line ends");
        assert!(!line.chars().any(|character| character < ' '), "{line:?}");
    }
}

#[test]
fn a_text_line_escapes_control_characters() {
    let written = written(LogFormat::Text, false, say_something_nasty);
    let is_obeyed =
        |character: &char| character.is_control() || "\u{2028}\u{2029}\u{202e}\u{2066}".contains(*character);
    assert_eq!(written.chars().filter(is_obeyed).collect::<String>(), "\n", "{written:?}");
    for shown in [r"a\nb\r\n\u{1b}[31mred", r"\u{9b}31m", r"\u{202e}"] {
        assert_eq!(written.matches(shown).count(), 6, "{shown} in {written}");
    }
}

#[test]
fn only_our_own_colors_reach_the_terminal() {
    let written = written(LogFormat::Text, true, say_something_nasty);
    assert!(written.contains("\u{1b}[2mshown=\u{1b}[0m"), "{written:?}");
    assert!(!written.contains("\u{1b}[31m"), "{written:?}");
}

#[test]
fn a_json_line_keeps_typed_fields() {
    let written = written(LogFormat::Json, false, || {
        let (channel, error) = ("settlements", io::Error::other(NASTY));
        info!(%channel, wait_ms = 1000, error = %Chain(&error), "failed");
    });
    let line: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"failed".into()));
    assert_eq!((&line["channel"], &line["wait_ms"]), (&"settlements".into(), &1000.into()));
    assert_eq!(line["error"], NASTY);
}

#[test]
fn a_text_line_has_the_documented_form() {
    let written = written(LogFormat::Text, false, || warn!(channel = %"settlements", wait_ms = 1000, "failed"));
    assert!(written.ends_with("  WARN failed channel=settlements wait_ms=1000\n"), "{written}");
}

#[test]
fn a_library_line_has_its_target_and_no_source_path() {
    let path = "/home/user/.cargo/registry/src/sled-0.34.7/src/lib.rs";
    let written = written(LogFormat::Json, false, || {
        info!(
            log.target = "sled::log",
            log.module_path = "sled",
            log.file = path,
            log.line = 7,
            wait_ms = 1_u128,
            "it failed"
        );
    });
    let line: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&line["target"], &line["wait_ms"]), (&"sled::log".into(), &1.into()));
    assert!(!written.contains("log."), "{written}");
}
