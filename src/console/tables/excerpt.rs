//! Shows why a row matches a search: an excerpt of the row's texts that contains a word of the search.
//!
//! # Invariants
//!
//! * **Bounded.** Only the first [`SEARCHED_CHARACTERS`] characters of each text are searched, and an excerpt has at most
//!   [`LONGEST`] characters.
//! * **Untrusted text.** An excerpt is unchanged text of the event. The page that shows the excerpt escapes its
//!   characters.

use std::ops::Range;

use crate::text::json::{Token, Tokens};
use sink::Search;

#[cfg(test)]
mod tests;

/// The fewest digits of a part of an address, a hash or an id that is searched.
const FEWEST_DIGITS: usize = 4;

/// The columns that a search reads. The word index contains the same columns.
pub(super) const SEARCHED_COLUMNS: [&str; 15] = [
    "event_id",
    "type",
    "name",
    "source",
    "service",
    "network",
    "status",
    "status_reason",
    "watcher_id",
    "operation_id",
    "wallet_operation_id",
    "wallet_id",
    "query_id",
    "digest",
    "decoded",
];

/// How many characters of each text are searched.
pub(super) const SEARCHED_CHARACTERS: usize = 50_000;

/// The largest number of characters in an excerpt: the length of a hash.
const LONGEST: usize = 66;

/// The largest number of characters before the word.
const BEFORE: usize = 24;

/// The largest number of characters before a part of an address or a hash. More digits would be wrapped in the narrow column.
const BEFORE_WITHIN_WORD: usize = 10;

/// The largest number of characters in a field's name.
const NAME: usize = 24;

/// Columns that a list shows completely. For a source or a network, the list shows only both ends.
const SHOWN: [&str; 4] = ["type", "name", "service", "status"];

/// The column with the signed content, a JSON text.
const CONTENT: &str = "decoded";

/// A text that contains the word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// The column, or the name of the member in the content. Empty if the word is part of the name itself.
    pub(crate) field: String,
    pub(crate) before: String,
    /// The word as the text spells it.
    pub(crate) word: String,
    pub(crate) after: String,
}

/// How well an occurrence matches a word, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    WholeWord,
    Beginning,
    /// At the end of an address, a hash or an id.
    End,
    Within,
}

#[derive(Clone, Copy)]
struct Field<'t> {
    /// The name of the column or member. Empty if `text` itself is a name.
    name: &'t str,
    text: &'t str,
    /// If `text` is a name, the value of this member.
    value: &'t str,
}

/// Whether a word can be a part of an address, a hash or an id, without `0x`.
pub(super) fn is_hexadecimal(word: &str) -> bool {
    word.len() >= FEWEST_DIGITS && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the excerpt for the first word that the list does not already show. `texts` contains the columns
/// [`SEARCHED_COLUMNS`].
pub(super) fn excerpt(words: &[String], search: Search, texts: &[String]) -> Option<Excerpt> {
    let (mut shown, mut hidden) = (Vec::new(), Vec::new());
    for (name, text) in SEARCHED_COLUMNS.into_iter().zip(texts) {
        match name {
            CONTENT => hidden.extend(members(text)),
            _ if SHOWN.contains(&name) => shown.push(Field { name, text, value: "" }),
            _ => hidden.push(Field { name, text, value: "" }),
        }
    }
    let words = words.iter().map(|word| word.strip_suffix('*').unwrap_or(word)).filter(|word| !word.is_empty());
    let mut not_shown = words.filter(|word| best(&shown, word, search).is_none());
    not_shown.find_map(|word| best(&hidden, word, search)).map(|(field, word)| field.cut(word))
}

/// The names and values of the members of a JSON text. A value in an array gets the array's name.
fn members(json: &str) -> Vec<Field<'_>> {
    let (mut members, mut around, mut name) = (Vec::new(), Vec::new(), "");
    for (_, token) in Tokens::of(json) {
        let value = match token {
            Token::Name(quoted) => {
                name = unquoted(quoted);
                continue;
            }
            Token::Text(quoted) => unquoted(quoted),
            Token::Word(word) => word,
            Token::Open(_) => {
                around.push(name);
                ""
            }
            Token::Close(_) => {
                name = around.pop().unwrap_or_default();
                continue;
            }
            Token::Comma | Token::Colon => continue,
        };
        members.extend([Field { name, text: value, value: "" }, Field { name: "", text: name, value }]);
    }
    members
}

fn unquoted(text: &str) -> &str {
    let text = text.strip_prefix('"').unwrap_or(text);
    text.strip_suffix('"').unwrap_or(text)
}

/// Returns the first occurrence with the best fit. With a word index, occurrences in the middle of a longer word are ignored,
/// because such an index does not find them.
fn best<'t>(fields: &[Field<'t>], word: &str, search: Search) -> Option<(Field<'t>, Range<usize>)> {
    let all = fields.iter().flat_map(|field| occurrences(field.text, word).map(|range| (*field, range)));
    let fitting = all.map(|(field, range)| (fit(field.text, &range), field, range));
    let fitting = fitting.filter(|(fit, ..)| search != Search::Words || *fit != Fit::Within);
    fitting.min_by_key(|(fit, ..)| *fit).map(|(_, field, range)| (field, range))
}

/// The ranges at which a word occurs in a text, ignoring case.
fn occurrences(text: &str, word: &str) -> impl Iterator<Item = Range<usize>> {
    text.char_indices().filter_map(move |(at, _)| begins(&text[at..], word).map(|length| at..at + length))
}

/// If the text begins with the word, returns the length of the word in the text, in bytes.
fn begins(text: &str, word: &str) -> Option<usize> {
    let is_same = |one: char, other: char| {
        let is_ascii = one.is_ascii() && other.is_ascii();
        if is_ascii { one.eq_ignore_ascii_case(&other) } else { one.to_lowercase().eq(other.to_lowercase()) }
    };
    let mut rest = text.chars();
    word.chars().all(|c| rest.next().is_some_and(|next| is_same(next, c))).then(|| text.len() - rest.as_str().len())
}

fn fit(text: &str, word: &Range<usize>) -> Fit {
    let goes_on = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let before = &text[..word.start];
    // A search for hexadecimal digits also finds them after `0x`.
    let before = if is_hexadecimal(&text[word.clone()]) { before.strip_suffix("0x").unwrap_or(before) } else { before };
    let (before, after) = (before.chars().next_back(), text[word.end..].chars().next());
    match (goes_on(before), goes_on(after)) {
        (false, false) => Fit::WholeWord,
        (false, true) => Fit::Beginning,
        (true, false) if is_end(&text[..word.end]) => Fit::End,
        (true, _) => Fit::Within,
    }
}

/// Whether a text ends with an address, a hash or an id.
fn is_end(text: &str) -> bool {
    let last = text.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    is_hexadecimal(last.strip_prefix("0x").unwrap_or(last))
}

impl Field<'_> {
    /// The word with its surroundings, up to [`LONGEST`] characters.
    fn cut(&self, word: Range<usize>) -> Excerpt {
        let (before, after) = (&self.text[..word.start], &self.text[word.end..]);
        let after = if self.value.is_empty() { after.to_owned() } else { format!("{after}: {}", self.value) };
        let (range, word) = (word.clone(), beginning(&self.text[word], LONGEST));
        let room = LONGEST.saturating_sub(word.chars().count());
        let is_within_word = matches!(fit(self.text, &range), Fit::End | Fit::Within);
        let before = end(before, room.min(if is_within_word { BEFORE_WITHIN_WORD } else { BEFORE }));
        let room = room.saturating_sub(before.chars().count());
        Excerpt { field: beginning(self.name, NAME), before, word, after: beginning(&after, room) }
    }
}

/// The first characters of a text, with an ellipsis if the text is longer.
fn beginning(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The last characters of a text, with an ellipsis if the text is longer.
fn end(text: &str, most: usize) -> String {
    match text.chars().count().checked_sub(most) {
        Some(more @ 1..) => format!("…{}", text.chars().skip(more).collect::<String>()),
        _ => text.to_owned(),
    }
}
