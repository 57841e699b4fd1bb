//! The daemon as a process: its log, its signals, its exit. Asserts that the daemon never prints a secret.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nix::fcntl::{FcntlArg, fcntl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::{LONGEST_WAIT, LOOK_AGAIN};

/// The number of log lines that are shown if a test fails.
const SHOWN_LINES: usize = 40;

/// The capacity of the pipe of standard error, and its capacity while nothing reads it: the smallest that the system allows.
const PIPE: i32 = 64 * 1024;
const UNREAD_PIPE: i32 = 4 * 1024;

/// A running `channeld`. It is killed when it is dropped.
pub(crate) struct Daemon {
    child: Child,
    errors: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
    /// The end of standard error that is read.
    pipe: OwnedFd,
    /// Whether reading standard error is stopped.
    log_stalls: watch::Sender<bool>,
    secrets: Vec<String>,
}

/// How the daemon ended.
pub(crate) struct Ended {
    /// `None` if a signal ended the daemon.
    pub(crate) code: Option<i32>,
    pub(crate) log: Log,
}

/// The daemon's output on standard error, in the JSON format.
pub(crate) struct Log(pub(crate) String);

impl Log {
    /// The lines with this message, in order.
    pub(crate) fn lines(&self, message: &str) -> Vec<Value> {
        let lines = self.0.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    /// The lines with this level.
    pub(crate) fn at(&self, level: &str) -> Vec<Value> {
        let lines = self.0.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["level"] == level).collect()
    }

    pub(crate) fn tail(&self) -> String {
        let lines: Vec<_> = self.0.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Daemon {
    /// Runs the program and discards its standard output.
    pub(crate) fn run(arguments: &[&str], config: Option<&Path>, secrets: &[String]) -> Self {
        Self::spawn(arguments, config, secrets, &BTreeMap::new(), Stdio::null(), None)
    }

    /// Like [`run`](Self::run), with these environment variables. Otherwise the environment is empty.
    pub(crate) fn run_in(
        arguments: &[&str],
        config: &Path,
        secrets: &[String],
        environment: &BTreeMap<&str, OsString>,
    ) -> Self {
        Self::spawn(arguments, Some(config), secrets, environment, Stdio::null(), None)
    }

    /// Like [`run`](Self::run), after a command of the shell, which can set limits.
    pub(crate) fn run_after(shell: &str, arguments: &[&str], config: &Path, secrets: &[String]) -> Self {
        Self::spawn(arguments, Some(config), secrets, &BTreeMap::new(), Stdio::null(), Some(shell))
    }

    /// Like [`run`](Self::run), and returns a reader of standard output.
    pub(crate) fn run_piped(arguments: &[&str], config: Option<&Path>, secrets: &[String]) -> (Self, ChildStdout) {
        let mut daemon = Self::spawn(arguments, config, secrets, &BTreeMap::new(), Stdio::piped(), None);
        let stdout = daemon.child.stdout.take().unwrap();
        (daemon, stdout)
    }

    fn spawn(
        arguments: &[&str],
        config: Option<&Path>,
        secrets: &[String],
        environment: &BTreeMap<&str, OsString>,
        stdout: Stdio,
        shell: Option<&str>,
    ) -> Self {
        let program = env!("CARGO_BIN_EXE_channeld");
        let mut command = Command::new(if shell.is_some() { "/bin/sh" } else { program });
        if let Some(shell) = shell {
            // The program takes the place of the shell.
            command.arg("-c").arg(format!("{shell} && exec \"$0\" \"$@\"")).arg(program);
        }
        command
            .args(arguments)
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped());
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let errors = Arc::default();
        let (log_stalls, stalls) = watch::channel(false);
        let stderr = child.stderr.take().unwrap();
        let pipe = stderr.as_fd().try_clone_to_owned().unwrap();
        let reading = tokio::spawn(collect(stderr, Arc::clone(&errors), stalls));
        Self { child, errors, reading, pipe, log_stalls, secrets: secrets.to_vec() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// The value of a line in `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let value = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
        value.trim_matches([':', '\t', ' ', 'k', 'B']).parse::<u64>().unwrap() << 10
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Stops or continues reading standard error. While it is not read, its pipe holds only a few lines.
    pub(crate) async fn stall_log(&self, stalls: bool) {
        let capacity = if stalls { UNREAD_PIPE } else { PIPE };
        // A pipe cannot become smaller than its content, which is still read.
        while fcntl(&self.pipe, FcntlArg::F_SETPIPE_SZ(capacity)).is_err() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.log_stalls.send_replace(stalls);
    }

    /// The log until now.
    pub(crate) fn log(&self) -> Log {
        Log(String::from_utf8_lossy(&self.errors.lock().unwrap_or_else(PoisonError::into_inner)).into_owned())
    }

    /// Whether the daemon has logged this message.
    pub(crate) fn has_logged(&self, message: &str) -> bool {
        self.log().0.contains(&format!(r#""message":"{message}""#))
    }

    /// Whether the daemon has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until `holds` returns true. Panics if the daemon ends first.
    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        self.while_it_moves(what, |daemon| if holds(daemon) { None } else { Some(0) }).await;
    }

    /// Waits until `come` returns `None`. The deadline is extended each time `come` returns another number, which is the
    /// progress. Panics if the daemon ends first.
    pub(crate) async fn while_it_moves(&mut self, what: &str, mut come: impl FnMut(&Self) -> Option<usize>) {
        let (mut furthest, mut deadline) = (None, Instant::now());
        loop {
            let ended = self.child.try_wait().unwrap();
            let Some(now) = come(self) else { return };
            if furthest.replace(now) != Some(now) {
                deadline = Instant::now() + LONGEST_WAIT;
            }
            assert!(ended.is_none(), "the daemon ended ({ended:?}) before: {what}\n{}", self.log().tail());
            assert!(Instant::now() < deadline, "no progress within {LONGEST_WAIT:?}: {what}\n{}", self.log().tail());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until the daemon has logged this message.
    pub(crate) async fn until_logged(&mut self, message: &str) {
        self.until(&format!("log of {message:?}"), |daemon| daemon.has_logged(message)).await;
    }

    /// Sends SIGTERM, and asserts that the daemon exits with code 0.
    pub(crate) async fn stop(self) -> Log {
        self.signal(Signal::TERM);
        let ended = self.ended().await;
        assert_eq!(ended.code, Some(0), "{}", ended.log.tail());
        ended.log
    }

    /// Sends SIGKILL.
    pub(crate) async fn kill(self) -> Log {
        self.signal(Signal::KILL);
        self.ended().await.log
    }

    /// Waits until the daemon has ended.
    pub(crate) async fn ended(mut self) -> Ended {
        let waited = tokio::time::timeout(LONGEST_WAIT, self.child.wait()).await;
        let Ok(status) = waited else { panic!("the daemon does not end:\n{}", self.log().tail()) };
        (&mut self.reading).await.unwrap();
        Ended { code: status.unwrap().code(), log: self.log() }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let log = self.log().0;
        if !std::thread::panicking() {
            assert!(!self.secrets.iter().any(|secret| log.contains(secret)), "a secret was printed: {log}");
        }
    }
}

async fn collect(
    mut from: impl tokio::io::AsyncRead + Unpin,
    into: Arc<Mutex<Vec<u8>>>,
    mut stalls: watch::Receiver<bool>,
) {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        // Fails if the daemon was dropped: its last lines are then read.
        let _ = stalls.wait_for(|stalls| !stalls).await;
        into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..read]);
    }
}
