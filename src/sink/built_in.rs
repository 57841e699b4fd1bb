//! The sinks that a build can leave out. Each has a Cargo feature with the same name.

use std::sync::Arc;

use super::{KafkaSettings, NatsSettings, PostgresSettings, Sink, SinkError, SqliteSettings};
use telemetry::metrics::UpkeepFailures;

/// Whether this program was built with the sink of this type.
pub fn is_built_in(kind: &str) -> bool {
    let optional = [
        ("kafka", cfg!(feature = "kafka")),
        ("nats", cfg!(feature = "nats")),
        ("postgres", cfg!(feature = "postgres")),
        ("sqlite", cfg!(feature = "sqlite")),
    ];
    optional.iter().all(|(name, is_built_in)| *name != kind || *is_built_in)
}

/// Defines a function that makes a sink. The function fails if the program was built without the sink.
macro_rules! built_in {
    ($(#[$doc:meta])* $kind:literal $name:ident($($argument:ident: $type:ty),*) => $new:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// If the sink cannot be made on this machine, or if this program was built without it.
        pub fn $name($($argument: $type),*) -> Result<Arc<dyn Sink>, SinkError> {
            #[cfg(feature = $kind)]
            return Ok(Arc::new($new));
            #[cfg(not(feature = $kind))]
            {
                $(let _ = $argument;)*
                Err(SinkError::unusable(concat!("this channeld was built without the feature ", $kind).to_owned()))
            }
        }
    };
}

built_in!(
    /// A sink that produces to a Kafka topic.
    "kafka" kafka(settings: KafkaSettings) => crate::kafka::Kafka::new(settings)
);
built_in!(
    /// A sink that publishes to a JetStream stream.
    "nats" nats(settings: NatsSettings) => crate::nats::Nats::new(settings)
);
built_in!(
    /// A sink with this name that inserts into a table of a PostgreSQL database.
    "postgres" postgres(name: &str, settings: PostgresSettings) => crate::postgres::Postgres::new(name, settings)?
);
built_in!(
    /// A sink that inserts into a table of a SQLite file.
    "sqlite" sqlite(settings: SqliteSettings, failures: UpkeepFailures) => crate::sqlite::Sqlite::new(settings, failures)
);
