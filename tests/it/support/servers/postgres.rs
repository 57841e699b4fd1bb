//! A PostgreSQL server for tests, in a temporary directory.

use std::fs::{self, Permissions};
use std::io::Write;
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

use crate::support::{LONGEST_WAIT, LOOK_AGAIN, Setup, printed_lines, run, skip};

mod audit;
mod pooler;
mod standby;
mod tls;

pub(crate) use pooler::Pooler;
pub(crate) use tls::ROLE;

/// The directory in which Debian installs the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The server refuses to run as root. Debian's package creates this user.
const USER: &str = "postgres";

/// The settings of each server, appended to its `postgresql.conf`: the last line of a name takes effect.
const SETTINGS: &str = "listen_addresses = ''\nfsync = off\nmax_connections = 200\n";

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
    /// A new database on the server that all tests share. Returns `None` if PostgreSQL is missing: the test is skipped.
    pub(crate) async fn new() -> Option<Self> {
        static SHARED: OnceLock<Option<Arc<Server>>> = OnceLock::new();
        let server = SHARED.get_or_init(|| Server::start().map(Arc::new)).clone();
        if server.is_none() {
            skip("PostgreSQL");
        }
        Some(Self::on(server?).await)
    }

    /// The database of this name on another server.
    pub(crate) fn also_on(&self, server: &Arc<Server>) -> Self {
        Self { server: server.clone(), name: self.name.clone() }
    }

    /// A new database on a server.
    pub(crate) async fn on(server: Arc<Server>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        server.client("postgres").await.batch_execute(&format!("create database {name}")).await.unwrap();
        Self { server, name }
    }

    /// The address of the database, through the server's socket.
    pub(crate) fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// The address of the database, through a relay.
    pub(crate) fn url_by(&self, relay: SocketAddr) -> String {
        format!("postgresql://{USER}@{relay}/{}?sslmode=disable", self.name)
    }

    /// The address of the database for another role.
    pub(crate) fn url_as(&self, role: &str) -> String {
        as_role(&self.url(), role)
    }

    /// The address of the database for another role, through a relay.
    pub(crate) fn url_by_as(&self, relay: SocketAddr, role: &str) -> String {
        as_role(&self.url_by(relay), role)
    }

    /// Dumps channeld's schema into a file in the server's directory.
    pub(crate) fn dump(&self) {
        let mut dump = self.server.command("pg_dump");
        run(dump.args(["-Fc", "-n", "channeld", "-f"]).arg(self.dumped()).arg(self.url()));
    }

    /// Restores the last dump.
    pub(crate) fn restore(&self) {
        let mut restore = self.server.command("pg_restore");
        run(restore.args(["--exit-on-error", "-d"]).arg(self.url()).arg(self.dumped()));
    }

    fn dumped(&self) -> PathBuf {
        self.server.data().join(format!("{}.dump", self.name))
    }

    /// Executes statements as a superuser.
    pub(crate) async fn change(&self, statements: &str) {
        self.server.client(&self.name).await.batch_execute(statements).await.unwrap();
    }

    /// The rows of a query.
    pub(crate) async fn query(&self, query: &str) -> Vec<Row> {
        self.server.client(&self.name).await.query(query, &[]).await.unwrap()
    }

    /// Like [`query`](Self::query), on a server that may be down.
    pub(crate) async fn try_query(&self, query: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        tokio::spawn(connection);
        client.query(query, &[]).await
    }

    /// The output of psql for statements, which must all succeed.
    pub(crate) fn psql(&self, statements: &str) -> Vec<String> {
        let mut psql = self.server.command("psql");
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.url()).arg("-c").arg(statements);
        printed_lines(&run(&mut psql))
    }

    /// The number that a query returns.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.query(query).await[0].get(0)
    }
}

impl Setup {
    /// Puts the state into a database, for the instance with this name.
    pub(crate) fn sharing(self, database: &Database, instance: &str) -> Self {
        self.with("state.backend", "postgres")
            .with("state.url", database.url())
            .with("cluster.instance", instance)
            .with("cluster.lease", "6s")
    }
}

impl Server {
    /// Returns `None` if the programs are not on this machine.
    pub(crate) fn start() -> Option<Self> {
        let server = Self::with_data()?;
        server.run();
        Some(server)
    }

    /// A server that does not run yet.
    fn with_data() -> Option<Self> {
        let versions = fs::read_dir(VERSIONS).ok()?.flatten();
        let programs = versions.map(|version| version.path().join("bin")).max()?;
        let server = Self::without_data(programs);
        let data = server.data();
        let mut initdb = server.command("initdb");
        initdb.args(["-A", "trust", "--no-sync", "--locale=C", "-U", USER, "-D"]).arg(&data);
        assert!(initdb.stdout(Stdio::null()).status().unwrap().success());
        server.set(SETTINGS);
        Some(server)
    }

    /// Adds lines to the server's settings, which apply from the next start.
    fn set(&self, lines: &str) {
        let mut settings = fs::File::options().append(true).open(self.data().join("postgresql.conf")).unwrap();
        settings.write_all(lines.as_bytes()).unwrap();
    }

    /// A server with an empty directory.
    fn without_data(programs: PathBuf) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let server = Self { directory, programs, keeper: Mutex::default() };
        fs::create_dir(server.data()).unwrap();
        fs::set_permissions(server.data(), Permissions::from_mode(0o700)).unwrap();
        if let Some(user) = user() {
            chown(server.data(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        server
    }

    /// Starts the server with the existing data.
    pub(crate) fn run(&self) {
        let mut keeper = self.command("sh");
        // The shell stops the server when the shell's input ends. The input ends with this process, even if the
        // process is killed.
        let script = "\"$0\" -D \"$1\" -k \"$1\" & read -r end; kill -INT $!; wait";
        keeper.arg("-c").arg(script).arg(self.programs.join("postgres")).arg(self.data());
        let log = fs::File::options().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        *self.keeper.lock().unwrap() = Some(keeper.spawn().unwrap());
        let deadline = Instant::now() + LONGEST_WAIT;
        while !self.command("pg_isready").arg("-q").arg("-h").arg(self.data()).status().unwrap().success() {
            assert!(Instant::now() < deadline, "the server does not start");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Makes the server require a role's password, on the socket.
    pub(crate) async fn ask_password_of(&self, role: &str) {
        let rules = self.data().join("pg_hba.conf");
        let rest = fs::read_to_string(&rules).unwrap();
        fs::write(&rules, format!("local all {role} scram-sha-256\n{rest}")).unwrap();
        self.client("postgres").await.batch_execute("select pg_reload_conf()").await.unwrap();
    }

    /// Kills the server, like the failure of a machine.
    pub(crate) fn kill(&self) {
        let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.lines().next().unwrap().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
        self.keeper.lock().unwrap().take().unwrap().wait().unwrap();
    }

    /// The address of the server, through its socket.
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

    /// The server's log until now.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.path().join("log")).unwrap()).into_owned()
    }

    /// The address on which the server listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.data().join(".s.PGSQL.5432")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A command that runs a program of PostgreSQL or of the system, as an unprivileged user.
    pub(crate) fn command_of(&self, program: &str) -> Command {
        self.command(program)
    }

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

/// The same address for another role.
fn as_role(url: &str, role: &str) -> String {
    url.replacen(&format!("{USER}@"), &format!("{role}@"), 1)
}

/// The user to run PostgreSQL as, if the current user is root.
fn user() -> Option<User> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    Some(User::from_name(USER).unwrap().expect("the package creates this user"))
}
