//! A standby, which can replace a lost server.

use std::net::SocketAddr;

use super::{LOOK_AGAIN, Server, USER};

impl Server {
    /// A standby that replicates this server through a relay. It has only the data that the relay has forwarded.
    pub(crate) fn standby(&self, relay: SocketAddr) -> Self {
        let standby = Self::without_data(self.programs.clone());
        let mut copying = self.command("pg_basebackup");
        copying.args(["--no-sync", "-c", "fast", "-X", "stream", "-R", "-U", USER, "-h", "127.0.0.1", "-p"]);
        copying.arg(relay.port().to_string()).arg("-D").arg(standby.data());
        assert!(copying.status().unwrap().success());
        // The sockets are in the data directory, so the copy contains a lock file. No server uses the new socket yet.
        std::fs::remove_file(standby.socket().with_extension("5432.lock")).unwrap();
        standby.run();
        standby
    }

    /// Promotes the standby: it is an independent server from now on.
    pub(crate) async fn promote(&self) {
        self.client("postgres").await.batch_execute("select pg_promote()").await.unwrap();
    }

    /// Waits until a standby has applied all changes that this server has written until now.
    pub(crate) async fn is_followed_by(&self, standby: &Self) {
        let written = "select pg_current_wal_lsn()::text";
        let written: String = self.client("postgres").await.query_one(written, &[]).await.unwrap().get(0);
        let applied = format!("select pg_last_wal_replay_lsn() >= '{written}'::pg_lsn");
        let client = standby.client("postgres").await;
        while !client.query_one(&applied, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
