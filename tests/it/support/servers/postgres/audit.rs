//! Triggers in a test's database that record the changes of instances, and queries that check the changes afterwards.

use ledger::store::PostgresSettings;
use proof::event::ChannelId;

use super::Database;

impl Database {
    /// Creates channeld's tables, and records every change of them from now on.
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

    /// Asserts that cursors only increased, that no epoch recorded a commit after a later epoch had, and that only
    /// one owner recorded commits in each epoch of a channel.
    pub(crate) async fn assert_sound(&self) {
        assert_eq!(self.breaches().await, [] as [String; 0]);
    }

    /// The recorded changes that are not allowed.
    pub(crate) async fn breaches(&self) -> Vec<String> {
        self.query("select breach from audit.breaches").await.iter().map(|row| row.get(0)).collect()
    }

    /// The number of leases that instances took.
    pub(crate) async fn claims(&self, channel: ChannelId) -> usize {
        let claims =
            format!("select count(distinct epoch) from audit.channels where channel = '{channel}' and epoch > 0");
        usize::try_from(self.number(&claims).await).unwrap()
    }
}
