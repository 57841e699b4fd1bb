//! The index over the ends of addresses, hashes and ids, for searches by words: a `tsvector` of words finds only the beginning of
//! a word. The index is over an expression, so an existing table gets it without being rewritten.

use crate::settings::PostgresSettings;
use crate::table::quoted;

/// The expression for the source, the ids, the transaction and the parameters of an event, each in quotes and in lower case. It
/// contains the same text as [`ends_vector`].
pub const ENDS_TEXT: &str = "left(lower('\"' || coalesce(source, '') || '\" \"' || coalesce(replace(event_id::text, '-', ''), '') || \
     '\" \"' || coalesce(replace(operation_id::text, '-', ''), '') || '\" \"' || coalesce(encode(digest, 'hex'), '') || \
     '\" \"' || coalesce(decoded #>> '{chain_event,tx_hash}', '') || '\"' || \
     coalesce(jsonb_path_query_array(decoded, '$.chain_event.params.*')::text, '')), 100000)";

/// The expression that is indexed: the words of [`ENDS_TEXT`], backwards. Each quote becomes an `r`, so that PostgreSQL does not read
/// digits as a number. A query must repeat this expression exactly.
pub fn ends_vector() -> String {
    format!("to_tsvector('simple', replace(reverse({ENDS_TEXT}), '\"', ' r'))")
}

/// The `tsquery` for [`ends_vector`] that finds words with these digits at the end.
pub fn ends_query(digits: &str) -> String {
    let backwards: String = digits.chars().rev().map(|digit| digit.to_ascii_lowercase()).collect();
    format!("r{backwards}:*")
}

/// The name of the index.
pub(super) fn index(table: &str) -> String {
    format!("{table}_ends")
}

pub(super) fn create(settings: &PostgresSettings) -> String {
    let (table, name) = (settings.quoted(), quoted(&index(&settings.table)));
    format!(" create index if not exists {name} on {table} using gin (({}));", ends_vector())
}
