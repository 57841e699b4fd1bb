//! The statements. `{schema}` is the quoted name of the schema.
//!
//! The files explain why a *delayed copy* is harmless: a statement that the server executes although its sender has
//! abandoned it, possibly after newer statements.

use std::collections::BTreeSet;

pub(super) const APPLIED: &str = "select coalesce(max(number), 0) from {schema}.migrations";
pub(super) const WHICH: &str = "select id, incomplete, changes from {schema}.state";
pub(super) const OPEN: &str = include_str!("statements/open.sql");
pub(super) const COMMIT: &str = include_str!("statements/commit.sql");
pub(super) const OFFER: &str = include_str!("statements/offer.sql");
pub(super) const CLAIM: &str = include_str!("statements/claim.sql");
pub(super) const CLAIMABLE: &str = include_str!("statements/claimable.sql");
pub(super) const ENTRIES: &str = include_str!("statements/entries.sql");
pub(super) const BODY: &str = "select value from {schema}.entries where channel_id = $1 and kind = $2 and key = $3";
pub(super) const RELEASE: &str = include_str!("statements/release.sql");
pub(super) const CHANNELS: &str = "select channel_id from {schema}.channels where epoch > 0";
pub(super) const BEAT: &str = include_str!("statements/beat.sql");
pub(super) const JOIN: &str = include_str!("statements/join.sql");
pub(super) const INSTANCES: &str = include_str!("statements/instances.sql");
pub(super) const CONFIGURATIONS: &str = include_str!("statements/configurations.sql");
pub(super) const OWNERSHIP: &str = include_str!("statements/ownership.sql");
pub(super) const LEAVE: &str = include_str!("statements/leave.sql");
pub(super) const ASK: &str = include_str!("statements/ask.sql");
pub(super) const LOOK: &str = include_str!("statements/look.sql");
pub(super) const WITHDRAW: &str = include_str!("statements/withdraw.sql");
pub(super) const TAKE: &str = include_str!("statements/take.sql");
pub(super) const ANSWER: &str = include_str!("statements/answer.sql");
pub(super) const SHOW: &str = include_str!("statements/show.sql");
pub(super) const FORGET: &str = include_str!("statements/forget.sql");
pub(super) const BEGIN_COPY: &str = include_str!("statements/begin_copy.sql");
pub(super) const END_COPY: &str = include_str!("statements/end_copy.sql");
pub(super) const EXAMINE: &str = include_str!("statements/examine.sql");

/// The tables that a statement uses, separated by commas.
pub(super) fn tables(statement: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let names = statement.split("{schema}.").skip(1).filter_map(|rest| rest.split(|letter| !is_part(letter)).next());
    names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_statement_are_found_in_its_text() {
        for (statement, found) in [
            (SHOW, "proofs"),
            (TAKE, "requests"),
            (BEAT, "instances"),
            (OWNERSHIP, "channels, instances"),
            (COMMIT, "channels, entries"),
            (BODY, "entries"),
            (WHICH, "state"),
        ] {
            assert_eq!(tables(statement), found);
        }
    }
}
