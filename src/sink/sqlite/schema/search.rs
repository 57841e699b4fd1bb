//! The full-text indexes of a table: one over the texts of its rows. If the search is for words, another one over the ends of
//! addresses, hashes and ids, because an index over words finds only the beginning of a word.

use rusqlite::functions::FunctionFlags;
use rusqlite::{OptionalExtension, Transaction};
use tracing::info;

use super::SqliteSettings;
use crate::settings::Search;
use crate::table::{quoted, searched};

/// The SQL function that returns the [`ends`] of a text. SQLite has no function that reverses a text.
const ENDS: &str = "channeld_ends";

/// The fewest digits after `0x` of an address or a hash.
const FEWEST_DIGITS: usize = 16;

/// The digits of the last group of an id.
const LAST_GROUP: usize = 12;

/// A full-text index.
pub(super) struct TextIndex {
    name: String,
    tokenizer: &'static str,
    /// The expression for the indexed text of a row.
    text: String,
}

impl TextIndex {
    /// The indexes that the settings request.
    pub(super) fn all(settings: &SqliteSettings) -> Vec<Self> {
        let text = searched(|column| format!("ifnull({}, '')", column.name));
        let [search, ends] = names(&settings.table);
        let ends =
            Self { name: ends, tokenizer: "tokenize='unicode61', detail='none'", text: format!("{ENDS}({text})") };
        match settings.search {
            Search::None => Vec::new(),
            Search::Words => vec![Self { name: search, tokenizer: "tokenize='unicode61'", text }, ends],
            Search::Trigrams => vec![Self { name: search, tokenizer: "tokenize='trigram'", text }],
        }
    }

    fn create(&self) -> String {
        format!("CREATE VIRTUAL TABLE {} USING fts5(text, content='', {})", quoted(&self.name), self.tokenizer)
    }

    /// Copies rows into the index.
    fn fill(&self, table: &str) -> String {
        format!("insert into {} (rowid, text) select id, {} from {}", quoted(&self.name), self.text, quoted(table))
    }

    /// Adds the row `?1` to the index.
    pub(super) fn add(&self, table: &str) -> String {
        format!("{} where id = ?1", self.fill(table))
    }

    /// Removes the rows whose ids are at most `?1`. This form of deletion also works in older SQLite versions. The statement must
    /// repeat the indexed text that it removes.
    pub(super) fn remove(&self, table: &str) -> String {
        let (index, text, table) = (quoted(&self.name), &self.text, quoted(table));
        format!("insert into {index} ({index}, rowid, text) select 'delete', id, {text} from {table} where id <= ?1")
    }
}

/// The names of all indexes that a table can have.
fn names(table: &str) -> [String; 2] {
    ["search", "ends"].map(|kind| format!("{table}_{kind}"))
}

/// Creates, replaces or removes the full-text indexes according to the settings. A new index gets the existing rows only if
/// `fills` is true. All statements over the indexes need this connection, because it gets the function [`ENDS`].
pub(super) fn prepare(transaction: &Transaction<'_>, settings: &SqliteSettings, fills: bool) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    transaction.create_scalar_function(ENDS, 1, flags, |context| {
        let text = context.get_raw(0).as_bytes().unwrap_or_default();
        Ok(ends(&String::from_utf8_lossy(text)))
    })?;
    let wanted = TextIndex::all(settings);
    for name in names(&settings.table) {
        let index = wanted.iter().find(|index| index.name == name);
        let sql = "select sql from sqlite_master where name = ?1 and type = 'table'";
        let found: Option<String> = transaction.query_row(sql, [&name], |row| row.get(0)).optional()?;
        if found == index.map(TextIndex::create) {
            continue;
        }
        if found.is_some() {
            transaction.execute_batch(&format!("drop table {}", quoted(&name)))?;
        }
        let Some(index) = index else { continue };
        transaction.execute_batch(&index.create())?;
        if fills {
            let filled = transaction.execute(&index.fill(&settings.table), [])?;
            info!(table = %name, rows = filled, "full-text index created");
        }
    }
    Ok(())
}

/// The addresses, hashes and ids of a text, each backwards and in lower case, without `0x`. Of an id, only the last group. A word
/// that begins with `c9` here then ends with `9c` in the text.
fn ends(text: &str) -> String {
    let mut ends = String::new();
    let (mut last, mut before) = ("", None);
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_last_group = before == Some('-') && digits.len() == LAST_GROUP;
        before = word.chars().next_back();
        let digits = match digits.strip_prefix("0x") {
            Some(digits) if digits.len() >= FEWEST_DIGITS => digits,
            None if is_last_group => digits,
            _ => continue,
        };
        // The source of an event is also a part of its content.
        if digits != last && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            ends.extend(digits.chars().rev().map(|digit| digit.to_ascii_lowercase()));
            ends.push(' ');
            last = digits;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_hashes_and_ids_have_ends() {
        let address = "0x52908400098527886E0F7030069857D2E4169EE7";
        for (text, backwards) in [
            (address, "7ee9614e2d7589600307f0e68872589000480925 "),
            ("7c9e6679-7425-40de-944b-e07fc1f90ae7 x", "7ea09f1cf70e "),
            (r#"{"to":"0x0123456789abcdef","amount":"123456789012"}"#, "fedcba9876543210 "),
            ("0x0123456789abcdeg 0x01 e07fc1f90ae7 word-with-hyphens é", ""),
            ("", ""),
        ] {
            assert_eq!(ends(text), backwards, "{text}");
        }
        assert_eq!(ends(&format!("{address} {address}")).matches(' ').count(), 1);
    }
}
