//! Formats fields as text for people. A service, a file name or an event cannot break the line.

use std::fmt::{self, Debug, Write};

use anstyle::Style;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// The style of a field name on a terminal.
const NAME: Style = Style::new().dimmed();

/// Formats the message and then `name=value` pairs, separated by spaces. No content can end the line, move a terminal's
/// cursor, or change colors or the text direction.
pub(super) fn on_one_line() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(write_field).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => {}
        // The source location of a line of the `log` crate. It is omitted because the lines are clear enough without
        // it.
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
