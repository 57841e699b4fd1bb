//! A PostgreSQL server with its default settings, except for the directory and the socket. It syncs its commits to the
//! disk.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::unistd::User;
use tempfile::TempDir;

use super::machine::scratch;

/// The directory in which Debian installs the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The server refuses to run as root. Debian's package creates this user.
const USER: &str = "postgres";

/// The unit of processor time in `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// A running server. It is stopped on drop.
pub(crate) struct Server {
    directory: TempDir,
    programs: PathBuf,
}

/// The database of one run.
pub(crate) struct Database<'a> {
    server: &'a Server,
    pub(crate) url: String,
}

impl Server {
    /// Returns `None` if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        let versions = fs::read_dir(VERSIONS).ok()?.flatten();
        let programs = versions.map(|version| version.path().join("bin")).max()?;
        let directory = scratch();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let server = Self { directory, programs };
        let data = server.data();
        fs::create_dir(&data).unwrap();
        if let Some(user) = user() {
            chown(&data, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        server
            .run("initdb", &["-A", "trust", "--locale=C", "-E", "UTF8", "-U", USER, "-D", &data.display().to_string()]);
        let options = format!("-c listen_addresses= -k {}", data.display());
        server.run("pg_ctl", &["-w", "-D", &data.display().to_string(), "-o", &options, "start"]);
        Some(server)
    }

    pub(crate) fn new_database(&self) -> Database<'_> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("run_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let host = self.data().display().to_string();
        self.run("createdb", &["-h", &host, "-U", USER, &name]);
        let url = format!("postgresql://{USER}@{}/{name}?sslmode=disable", host.replace('/', "%2F"));
        Database { server: self, url }
    }

    /// The processor time of all processes of the server, including processes that have ended.
    pub(crate) fn cpu(&self) -> Duration {
        let data = self.data().canonicalize().unwrap();
        let ticks = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let is_ours = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data);
            let stat = fs::read_to_string(entry.path().join("stat")).ok().filter(|_| is_ours)?;
            let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
            // The times of the process and of the children that it has waited for.
            fields[11..15].iter().map(|field| field.parse::<u32>().ok()).sum::<Option<u32>>()
        });
        TICK * ticks.sum::<u32>()
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Runs a program of PostgreSQL, asserts that it succeeds, and returns its output.
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(self.programs.join(program));
        // The server keeps the standard output of `pg_ctl` open, so it must not be a pipe.
        let log = fs::File::options().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stderr(log.try_clone().unwrap());
        if program == "pg_ctl" {
            command.stdout(log);
        }
        if let Some(user) = user() {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let output = if program == "pg_ctl" {
            assert!(command.status().unwrap().success(), "{command:?}: {}", self.log());
            return String::new();
        } else {
            command.output().unwrap()
        };
        assert!(output.status.success(), "{command:?}: {}", self.log());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Database<'_> {
    pub(crate) fn ask(&self, question: &str) -> String {
        self.server.run("psql", &["-X", "-A", "-t", "-d", &self.url, "-c", question])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.data().display().to_string();
        if Path::new(&data).join("postmaster.pid").exists() {
            self.run("pg_ctl", &["-w", "-m", "immediate", "-D", &data, "stop"]);
        }
    }
}

/// The user for the server's processes if this process runs as root.
fn user() -> Option<User> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    Some(User::from_name(USER).unwrap().expect("its package makes that user"))
}
