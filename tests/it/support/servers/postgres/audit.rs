//! Triggers in a test's database that record the changes of instances, and queries that check the changes afterwards.

use ledger::store::PostgresSettings;
use proof::event::ChannelId;

use super::Database;

impl Database {
    /// Makes channeld's tables, and writes down every change of them from now on.
    pub(crate) async fn watch(&self) {
        let settings = PostgresSettings {
            server: self.url().parse().unwrap(),
            schema: "channeld".to_owned(),
            instance: "audit".to_owned(),
            lease: std::time::Duration::from_secs(6),
        };
        settings.open(None).unwrap().channels().await.unwrap();
        self.change(include_str!("audit.sql")).await;
    }

    /// Asserts that cursors only grew, that no epoch recorded after a later one, and that each epoch of a channel had one
    /// recording owner.
    pub(crate) async fn assert_sound(&self) {
        assert_eq!(self.breaches().await, [] as [String; 0]);
    }

    /// The recorded changes that are not allowed.
    pub(crate) async fn breaches(&self) -> Vec<String> {
        self.query("select breach from audit.breaches").await.iter().map(|row| row.get(0)).collect()
    }

    /// How many times a channel was claimed.
    pub(crate) async fn claims(&self, channel: ChannelId) -> usize {
        let claims =
            format!("select count(distinct epoch) from audit.channels where channel = '{channel}' and epoch > 0");
        usize::try_from(self.number(&claims).await).unwrap()
    }
}
