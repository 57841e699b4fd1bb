//! A PostgreSQL server of the tests' own, in a temporary directory.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use nix::unistd::User;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls, Row};

use super::wait::{LONGEST_WAIT, LOOK_AGAIN};
use super::{Setup, skip};

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The server does not run as root. Debian's package makes this user.
const USER: &str = "postgres";

/// A server. It ends with the test process, or earlier by [`stop`](Self::stop).
pub(crate) struct Server {
    directory: TempDir,
    programs: PathBuf,
    /// The shell that stops the server when its input ends.
    keeper: Mutex<Option<Child>>,
}

/// A database of one test.
pub(crate) struct Database {
    pub(crate) server: Arc<Server>,
    pub(crate) name: String,
}

impl Database {
    /// A new database on the server that all tests share; `None` where there is no PostgreSQL, and the test is skipped.
    pub(crate) async fn new() -> Option<Self> {
        static SHARED: OnceLock<Option<Arc<Server>>> = OnceLock::new();
        let server = SHARED.get_or_init(|| Server::start().map(Arc::new)).clone();
        if server.is_none() {
            skip("PostgreSQL");
        }
        Some(Self::on(server?).await)
    }

    /// A new database on a server.
    pub(crate) async fn on(server: Arc<Server>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        server.client("postgres").await.batch_execute(&format!("create database {name}")).await.unwrap();
        Self { server, name }
    }

    /// Its address, by the server's socket.
    pub(crate) fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Its address, by a relay.
    pub(crate) fn url_by(&self, relay: SocketAddr) -> String {
        format!("postgresql://{USER}@{relay}/{}?sslmode=disable", self.name)
    }

    /// The rows of a query.
    pub(crate) async fn query(&self, query: &str) -> Vec<Row> {
        self.server.client(&self.name).await.query(query, &[]).await.unwrap()
    }

    /// A number that a query gives.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.query(query).await[0].get(0)
    }
}

impl Setup {
    /// With the state in a database, as the instance of this name.
    pub(crate) fn sharing(self, database: &Database, instance: &str) -> Self {
        self.with("state.backend", "postgres")
            .with("state.url", database.url())
            .with("cluster.instance", instance)
            .with("cluster.lease", "6s")
    }
}

impl Server {
    /// `None` where its programs are not on this machine.
    pub(crate) fn start() -> Option<Self> {
        let versions = fs::read_dir(VERSIONS).ok()?.flatten();
        let programs = versions.map(|version| version.path().join("bin")).max()?;
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let server = Self { directory, programs, keeper: Mutex::default() };
        let data = server.data();
        fs::create_dir(&data).unwrap();
        if let Some(user) = user() {
            chown(&data, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        let mut initdb = server.command("initdb");
        initdb.args(["-A", "trust", "--no-sync", "--locale=C", "-U", USER, "-D"]).arg(&data);
        assert!(initdb.stdout(Stdio::null()).status().unwrap().success());
        server.run();
        Some(server)
    }

    /// Starts it on the data that is there.
    pub(crate) fn run(&self) {
        let mut keeper = self.command("sh");
        // The server ends with its keeper's input, which ends with this process, however that ends.
        let script = "\"$0\" -D \"$1\" -k \"$1\" -c listen_addresses= -c fsync=off -c max_connections=200 & \
                      read -r end; kill -INT $!; wait";
        keeper.arg("-c").arg(script).arg(self.programs.join("postgres")).arg(self.data());
        let log = fs::File::options().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        *self.keeper.lock().unwrap() = Some(keeper.spawn().unwrap());
        while !self.command("pg_isready").arg("-q").arg("-h").arg(self.data()).status().unwrap().success() {
            std::thread::yield_now();
        }
    }

    /// Kills it, as a machine that fails would.
    pub(crate) fn kill(&self) {
        let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.lines().next().unwrap().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
        self.keeper.lock().unwrap().take().unwrap().wait().unwrap();
    }

    /// Its address, by its socket.
    pub(crate) fn url(&self, database: &str) -> String {
        let host = self.data().display().to_string().replace('/', "%2F");
        format!("postgresql://{USER}@{host}/{database}?sslmode=disable")
    }

    pub(crate) async fn client(&self, database: &str) -> Client {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            if let Ok((client, connection)) = tokio_postgres::connect(&self.url(database), NoTls).await {
                tokio::spawn(connection);
                return client;
            }
            assert!(Instant::now() < deadline, "the database does not answer");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.data().join(".s.PGSQL.5432")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// One of its programs, or of the system, as a user without rights.
    fn command(&self, program: &str) -> Command {
        let own = self.programs.join(program);
        let mut command = Command::new(if own.exists() { &own } else { Path::new(program) });
        command.current_dir("/");
        if let Some(user) = user() {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.lock().unwrap().take() {
            drop(keeper.stdin.take());
            keeper.wait().ok();
        }
    }
}

/// The user to be, where this one is root.
fn user() -> Option<User> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    Some(User::from_name(USER).unwrap().expect("its package makes that user"))
}

/// A pgbouncer before a database, in its transaction mode.
pub(crate) struct Pooler {
    directory: TempDir,
    database: String,
    child: Child,
}

impl Pooler {
    /// `None` where the program is not on this machine.
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
