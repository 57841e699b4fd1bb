//! The connection pooler pgbouncer.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use tempfile::TempDir;
use tokio_postgres::NoTls;

use super::{Database, USER, user};
use crate::support::{LONGEST_WAIT, LOOK_AGAIN};

/// A pgbouncer in front of a database, in transaction mode.
pub(crate) struct Pooler {
    directory: TempDir,
    database: String,
    child: Child,
}

impl Pooler {
    /// Returns `None` if the program is not on this machine.
    pub(crate) async fn before(database: &Database) -> Option<Self> {
        let program =
            ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().find(|path| Path::new(path).exists())?;
        let directory = tempfile::tempdir().unwrap();
        let (path, server) = (directory.path().display(), database.server.data());
        let users = directory.path().join("users");
        fs::write(&users, format!("\"{USER}\" \"\"\n")).unwrap();
        let settings = format!(
            "[databases]\n* = host={} user={USER}\n[pgbouncer]\nlisten_port = 6432\nlisten_addr =\nunix_socket_dir = {path}\n\
             auth_type = any\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = 3\n",
            server.display(),
            users.display(),
        );
        fs::write(directory.path().join("settings"), settings).unwrap();
        let mut command = database.server.command(program);
        if let Some(user) = user() {
            chown(directory.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        let child = command.arg(directory.path().join("settings")).stderr(Stdio::null()).spawn().unwrap();
        let pooler = Self { directory, database: database.name.clone(), child };
        let deadline = Instant::now() + LONGEST_WAIT;
        while tokio_postgres::connect(&pooler.url(), NoTls).await.is_err() {
            assert!(Instant::now() < deadline, "pgbouncer does not answer");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Some(pooler)
    }

    pub(crate) fn url(&self) -> String {
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgresql://{USER}@{host}:6432/{}?sslmode=disable", self.database)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
