//! A child process that is measured through `/proc`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The unit of processor time in `/proc`. It is the same on all common architectures.
const TICK: Duration = Duration::from_millis(10);

/// The number of log lines in an error message.
const SHOWN_LINES: usize = 20;

/// A process that is killed on drop.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

/// The resources that a process has used since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Resident bytes now.
    pub(crate) resident: u64,
    /// The largest number of resident bytes since the start.
    pub(crate) peak: u64,
}

impl Cost {
    pub(crate) fn of(pid: u32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let (stat, status) = (read("stat"), read("status"));
        // The program's name is in parentheses and may contain spaces.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u32 = fields[11..13].iter().map(|field| field.parse::<u32>().unwrap()).sum();
        let kibibytes = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let [resident, peak] = ["VmRSS:", "VmHWM:"].map(|name| kibibytes(name) * 1024);
        Self { cpu: TICK * ticks, resident, peak }
    }
}

impl Process {
    /// Starts a program without environment variables. Its standard error is written to `log`.
    pub(crate) fn start(command: &mut Command, stdout: Stdio, log: &Path) -> Self {
        let errors = File::create(log).unwrap();
        let child = command.env_clear().stdin(Stdio::null()).stdout(stdout).stderr(errors).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        Self { child, log: log.to_owned() }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn cost(&self) -> Cost {
        Cost::of(self.child.id())
    }

    /// Ends the benchmark if the process has ended.
    pub(crate) fn must_run(&mut self) {
        if let Some(ended) = self.child.try_wait().unwrap() {
            panic!("it has ended ({ended}):\n{}", self.log_tail());
        }
    }

    /// Sends SIGTERM and asserts that the process succeeds.
    pub(crate) fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "it ended badly ({ended}):\n{}", self.log_tail());
    }

    /// The last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
