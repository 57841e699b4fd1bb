//! Runs a command to its end and returns its output.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) errors: String,
}

impl Told {
    /// Runs the program. Asserts that it prints no secret.
    pub(super) async fn by(arguments: &[&str], config: &Path, secrets: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
        command.args(arguments).arg("--config").arg(config).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        let said = format!("{errors}{}", String::from_utf8_lossy(&output.stdout));
        assert!(!secrets.iter().any(|secret| said.contains(secret)), "a secret was printed: {said}");
        Self { code: output.status.code(), out: output.stdout, errors }
    }

    /// The JSON objects in the output. Asserts that the command succeeded.
    pub(crate) fn json(&self) -> Vec<Value> {
        assert_eq!(self.code, Some(0), "{self:?}");
        let text = std::str::from_utf8(&self.out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// One member of each JSON object in the output.
    pub(crate) fn each(&self, member: &str) -> Vec<Value> {
        self.json().into_iter().map(|mut object| object[member].take()).collect()
    }
}

/// Sends a signal to a running process.
pub(crate) fn signal(process: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
