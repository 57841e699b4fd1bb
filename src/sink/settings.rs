//! The settings of the sinks whose clients a build can leave out. Every build can read them.

use strum::{EnumString, IntoStaticStr, VariantNames};

mod kafka;
mod nats;
mod postgres;
mod sqlite;
mod subject;

pub use kafka::{KafkaSettings, Mechanism, SaslLogin, Security};
pub use nats::{Login, NatsSettings};
pub use postgres::PostgresSettings;
pub use sqlite::SqliteSettings;
pub use subject::Pattern;

/// The kind of full-text search that a table supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Search {
    /// No search.
    #[default]
    None,
    /// Search for words.
    Words,
    /// Search for any part of a word, of at least three characters.
    Trigrams,
}
