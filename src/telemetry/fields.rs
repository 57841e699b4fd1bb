//! Fields as text for people, on one line whatever a service, a file name or an event puts into them.

use std::fmt::{self, Debug, Write};

use anstyle::Style;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// How a name looks on a terminal.
const NAME: Style = Style::new().dimmed();

/// The message, then `name=value` with spaces between: nothing in them ends the line, moves a terminal's cursor, changes
/// its colours or the direction of what follows.
pub(super) fn on_one_line() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(write_field).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => {}
        // Where a line of the `log` crate comes from: libraries say enough without it.
        name if name.starts_with("log.") => return Ok(()),
        name if writer.has_ansi_escapes() => write!(writer, "{NAME}{name}={NAME:#}")?,
        name => write!(writer, "{name}=")?,
    }
    write!(Escaping(writer), "{value:?}")
}

/// Passes on what can be shown, and of everything else how Rust would write it.
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

/// Control characters, and those by which Unicode ends a line or turns the direction of writing.
fn is_escaped(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
