//! Generates the keys of channeld.toml(5) from `config/default.toml`: its comments become text, its keys become terms.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::config::DEFAULTS;

/// How many paragraphs at the start of the file describe the file itself. The page leaves them out.
const ABOUT_THE_FILE: usize = 2;

/// Writes the keys, by table.
pub(super) fn write(roff: &mut Roff) {
    let keys = DEFAULTS.splitn(ABOUT_THE_FILE + 1, "\n#\n").last().unwrap_or_default();
    let mut paragraph = Paragraph::default();
    for line in keys.lines() {
        paragraph.add(line, roff);
    }
    paragraph.put(roff);
}

/// Lines of the file that were read but not written yet.
#[derive(Default)]
struct Paragraph<'a> {
    /// The text that explains the following keys or the following table.
    text: Vec<&'a str>,
    /// Keys with their values.
    keys: Vec<Vec<Inline>>,
    /// Further lines of a value that spans several lines.
    more: Vec<&'a str>,
}

impl<'a> Paragraph<'a> {
    fn add(&mut self, line: &'a str, roff: &mut Roff) {
        if let Some(text) = line.strip_prefix("# ") {
            if !self.keys.is_empty() {
                self.put(roff);
            }
            self.text.push(text);
            return;
        }
        // A comment without a space is a key without a default: its value is an example.
        let (line, is_example) = line.strip_prefix('#').map_or((line, false), |line| (line, true));
        if let Some((name, value)) = line.split_once(" = ") {
            let shown = if is_example { italic(value) } else { roman(value) };
            self.keys.push(if value == "[" { vec![bold(name)] } else { vec![bold(name), roman(" = "), shown] });
        } else if line.starts_with('[') {
            let about = std::mem::take(&mut self.text);
            self.put(roff);
            roff.control("SH", [line]);
            if !about.is_empty() {
                roff.text(marked(&about));
            }
        } else if line.is_empty() {
            self.put(roff);
        } else if line != "]" {
            self.more.push(line.trim());
        }
    }

    /// Writes the collected text, or the keys with their explanation.
    fn put(&mut self, roff: &mut Roff) {
        let Self { text, keys, more } = std::mem::take(self);
        if keys.is_empty() && !text.is_empty() {
            roff.control("PP", []);
        }
        for (number, key) in keys.into_iter().enumerate() {
            roff.control(if number == 0 { "TP" } else { "TQ" }, []);
            roff.text(key);
        }
        if !text.is_empty() {
            roff.text(marked(&text));
        }
        if !more.is_empty() {
            roff.control("RS", []).control("PP", []).control("nf", []);
            for line in more {
                roff.text([roman(line)]);
            }
            roff.control("fi", []).control("RE", []);
        }
    }
}

/// Makes text between backticks bold.
fn marked(lines: &[&str]) -> Vec<Inline> {
    let text = lines.join("\n");
    let parts = text.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_a_term_and_the_file_itself_is_not_spoken_of() {
        let (mut roff, mut text) = (Roff::new(), Vec::new());
        write(&mut roff);
        roff.to_writer(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("Each key is also an environment variable") && !text.contains("begins with #"), "{text}");
        for key in [
            "base_url",
            "valid_signers",
            "listen",
            "rotate_size",
            "filter.chain_selector",
            "header_files.X\\-Api\\-Key",
        ] {
            assert!(text.lines().any(|line| line.starts_with(&format!("\\fB{key}\\fR"))), "{key} in\n{text}");
        }
    }
}
