//! Renders untrusted text as HTML. The text is escaped and isolated from the writing direction of the surrounding text, and
//! its invisible characters are made visible.
//!
//! # Invariants
//!
//! * **No text is markup.** `&`, `<`, `>` and both quotes are escaped everywhere.
//! * **Nothing is hidden.** Control characters, characters that change the writing direction, and characters without a
//!   width are shown as a symbol or a code point in a frame.
//! * **Bounded.** Only the beginning of a long text is shown, and the page says that it is cut.

use std::fmt::Write;

use maud::{Markup, PreEscaped, Render};

pub(super) mod json;
#[cfg(test)]
mod tests;

use json::{Token, Tokens};

/// How many characters of a text a table or a heading shows.
const SHORT: usize = 160;

/// How many bytes of a JSON text are shown. Also the largest number of characters of any other text.
const LONG: usize = 200_000;

/// The deepest JSON level that is indented further than its parent.
const DEEPEST: usize = 12;

/// Renders untrusted text within a line of the page.
pub(super) fn text(text: &str) -> Markup {
    isolated(text, SHORT)
}

/// Like [`text`], with a limit on the number of characters.
fn isolated(text: &str, most: usize) -> Markup {
    let mut html = String::with_capacity(text.len() + 16);
    html.push_str("<bdi>");
    let mut rest = text.chars();
    rest.by_ref().take(most).for_each(|c| push(&mut html, c));
    if rest.next().is_some() {
        html.push('…');
    }
    html.push_str("</bdi>");
    PreEscaped(html)
}

/// Turns a message into a sentence: it begins with a capital letter, if it begins with a lower-case word, and it ends with a full stop.
pub(super) fn sentence(message: &str) -> String {
    let message = message.trim_end();
    let first = message.split_whitespace().next().unwrap_or_default();
    let is_word =
        !first.is_empty() && first.trim_end_matches([',', ':', '.', '…']).bytes().all(|byte| byte.is_ascii_lowercase());
    let mut sentence = message.to_owned();
    if is_word {
        sentence[..1].make_ascii_uppercase();
    }
    if !message.is_empty() && !message.ends_with(['.', '!', '?', '…']) {
        sentence.push('.');
    }
    sentence
}

/// Renders untrusted text with up to [`LONG`] characters.
pub(super) fn whole(text: &str) -> Markup {
    isolated(text, LONG)
}

/// Like [`whole`], but the lines of a long hexadecimal value break evenly.
pub(super) fn long(text: &str) -> Markup {
    let mut html = "<bdi>".to_owned();
    push_evenly(&mut html, text, LONG);
    html.push_str("</bdi>");
    PreEscaped(html)
}

/// Renders a piece of untrusted text with one word marked.
pub(super) fn marked(before: &str, word: &str, after: &str) -> Markup {
    let mut html = "<bdi>".to_owned();
    for (text, end) in [(before, "<mark>"), (word, "</mark>"), (after, "</bdi>")] {
        text.chars().for_each(|c| push(&mut html, c));
        html.push_str(end);
    }
    PreEscaped(html)
}

/// Whether a status says that an operation or a query failed.
pub(super) fn is_failure(status: &str) -> bool {
    ["failed", "reverted", "error"].contains(&status)
}

/// Renders untrusted text, or a dash if the text is missing or empty.
pub(super) fn or_dash(of: Option<&str>) -> Markup {
    of.filter(|of| !of.is_empty()).map_or_else(|| PreEscaped("<span class=\"none\">–</span>".to_owned()), text)
}

/// Shortens a long id to its two ends. The tooltip contains the complete id.
pub(super) fn id(id: &str) -> Markup {
    const ENDS: usize = 6;
    let is_long = id.len() > 2 * ENDS + 6 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_long {
        return text(id);
    }
    let head = if id.starts_with("0x") { ENDS } else { ENDS - 2 };
    maud::html! { span.id title=(id) { (&id[..head]) "…" (&id[id.len() - 4..]) } }
}

/// The replacement for a character that would be invisible.
fn visible(c: char) -> Option<String> {
    let is_hidden = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    match c {
        // The Unicode symbols for control characters.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).map(String::from),
        '\x7f' => Some('␡'.to_string()),
        c if c.is_control() || is_hidden => Some(format!("U+{:04X}", u32::from(c))),
        _ => None,
    }
}

/// After how many digits of an address or a hash a line can break. `None` for other texts.
pub(super) fn even_lines(text: &str) -> Option<usize> {
    const ADDRESS: usize = 40;
    let digits = text.trim_matches('"').strip_prefix("0x")?;
    let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match digits.len() {
        ADDRESS if is_hexadecimal => Some(20),
        64.. if is_hexadecimal => Some(16),
        _ => None,
    }
}

/// Appends up to `most` characters. In an address or a hash, lines can break only between groups of digits of the same
/// length, so that no single digit begins a line. In a number with separators, they can break after each separator.
fn push_evenly(html: &mut String, text: &str, most: usize) {
    let even = even_lines(text);
    let is_grouped = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    let begins = text.len() - text.trim_start_matches('"').len() + 2;
    for (at, c) in text.chars().take(most).enumerate() {
        if even.is_some_and(|even| at > begins && (at - begins).is_multiple_of(even)) && c.is_ascii_hexdigit() {
            html.push_str("<wbr>");
        }
        push(html, c);
        if is_grouped && c == ',' {
            html.push_str("<wbr>");
        }
    }
}

fn push(html: &mut String, c: char) {
    match c {
        '&' => html.push_str("&amp;"),
        '<' => html.push_str("&lt;"),
        '>' => html.push_str("&gt;"),
        '"' => html.push_str("&quot;"),
        '\'' => html.push_str("&#39;"),
        c => match visible(c) {
            None => html.push(c),
            Some(shown) => {
                let _ = write!(html, "<span class=\"ctl\" title=\"invisible character\">{shown}</span>");
            }
        },
    }
}

/// A JSON text, rendered with one line per member. Numbers and escapes stay as they are written.
pub(super) struct Json<'a>(pub(super) &'a str);

impl Render for Json<'_> {
    fn render_to(&self, html: &mut String) {
        html.push_str("<pre class=\"json\" tabindex=\"0\"><span class=\"l d0\">");
        let is_cut = lay_out(self.0, html);
        html.push_str("</span></pre>");
        if is_cut {
            html.push_str("<p class=\"note\">This view is truncated. The raw bytes are complete.</p>");
        }
    }
}

/// Renders the lines of a JSON text. Returns whether the text was cut.
fn lay_out(json: &str, html: &mut String) -> bool {
    let mut depth: usize = 0;
    let mut tokens = Tokens::of(json).peekable();
    while let Some((at, token)) = tokens.next() {
        if at > LONG {
            return true;
        }
        match token {
            Token::Open(open) => {
                html.push(open);
                if let Some((_, Token::Close(close))) = tokens.peek() {
                    html.push(*close);
                    tokens.next();
                } else {
                    depth += 1;
                    line(depth, html);
                }
            }
            Token::Close(close) => {
                depth = depth.saturating_sub(1);
                line(depth, html);
                html.push(close);
            }
            Token::Comma => {
                html.push(',');
                line(depth, html);
            }
            Token::Colon => html.push_str(": "),
            Token::Name(name) => part("k", name, html),
            Token::Text(text) => part("s", text, html),
            Token::Word(word) => part("n", word, html),
        }
    }
    false
}

/// Ends a line and begins the next line. The class of a line sets its indentation, because the content policy forbids
/// inline styles.
fn line(depth: usize, html: &mut String) {
    let _ = write!(html, "</span><span class=\"l d{}\">", depth.min(DEEPEST));
}

/// Renders a name or a value. The class sets its color.
fn part(class: &str, text: &str, html: &mut String) {
    let _ = write!(html, "<span class=\"{class}\"><bdi>");
    push_evenly(html, text, LONG);
    html.push_str("</bdi></span>");
}
