//! A program that uses one of the clients: it does one task, and prints JSON lines.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::super::FeedEvent;
use crate::support::{LONGEST_WAIT, programs, run, skip};

/// A running program. It is killed when it is dropped.
pub(super) struct Client {
    _process: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    /// Starts the program in this language. Returns `None` if the test is skipped.
    pub(super) fn start(language: &str, task: &Value) -> Option<Self> {
        let mut command = tokio::process::Command::from(command(language)?);
        // `channeld` would read the variables of the tests as its configuration.
        let channeld = Path::new(env!("CARGO_BIN_EXE_channeld")).parent().unwrap();
        let path = format!("{}:{}", channeld.display(), std::env::var("PATH").unwrap());
        command.arg(task.to_string()).env_clear().env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Some(Self { input: process.stdin.take().unwrap(), _process: process, lines })
    }

    /// The next line. `None` after the last one.
    async fn line(&mut self) -> Option<Value> {
        let line = timeout(LONGEST_WAIT, self.lines.next_line()).await.expect("the client prints a line").unwrap();
        line.map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// A member of the next line that has no notice about a repeated request.
    pub(super) async fn next(&mut self, member: &str) -> Value {
        loop {
            let mut line = self.line().await.unwrap_or_else(|| panic!("the client ended before {member}"));
            if line.get("retry").is_none() {
                assert!(line.get(member).is_some(), "{member}: {line}");
                return line[member].take();
            }
        }
    }

    /// Waits until the client repeats a request for this reason.
    pub(super) async fn until_retry(&mut self, reason: &str) {
        loop {
            let line = self.line().await.unwrap_or_else(|| panic!("the client ended before {reason}"));
            assert!(line.get("retry").is_some(), "{reason}: {line}");
            if line["retry"] == reason {
                return;
            }
        }
    }

    /// The events of the next lines.
    pub(super) async fn events(&mut self, count: usize) -> Vec<FeedEvent> {
        let mut events = Vec::new();
        while events.len() < count {
            events.extend(FeedEvent::all(&self.next("events").await));
        }
        events
    }

    /// The kind of the error with which the client ends, and the oldest position in it.
    pub(super) async fn error(&mut self) -> (String, i64) {
        let error = self.next("error").await;
        assert!(self.line().await.is_none());
        (error["kind"].as_str().unwrap().to_owned(), error["oldest"].as_i64().unwrap())
    }

    /// Asserts that the client ends.
    pub(super) async fn ended(mut self) {
        assert_eq!(self.line().await, None);
    }

    /// Tells the client whether it commits the events of the lease that it printed last.
    pub(super) async fn answer(&mut self, answer: &str) {
        self.input.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
}

/// The program in this language. Returns `None` if the test is skipped.
fn command(language: &str) -> Option<Command> {
    match language {
        "python" => programs(&["python3"]).then(|| {
            let mut command = Command::new("python3");
            command.arg(source("driver.py"));
            command
        }),
        "typescript" => {
            let program = compiled_typescript()?;
            let mut command = Command::new("node");
            command.arg(program);
            Some(command)
        }
        "go" => compiled_go().map(Command::new),
        _ => panic!("there is no client in {language}"),
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/feed/clients").join(name)
}

fn output(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Compiles the program once for all tests of this process.
fn compiled_typescript() -> Option<&'static PathBuf> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let compiler =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/typescript/node_modules/typescript/bin/tsc");
    if !compiler.exists() {
        skip("the TypeScript compiler, which .ci/run puts into target/tools");
        return None;
    }
    programs(&["node"]).then(|| {
        PROGRAM.get_or_init(|| {
            let directory = output("typescript-client");
            run(Command::new("node")
                .arg(&compiler)
                .arg("--project")
                .arg(source("tsconfig.json"))
                .arg("--outDir")
                .arg(&directory));
            std::fs::write(directory.join("package.json"), r#"{"type": "module"}"#).unwrap();
            directory.join("tests/it/feed/clients/driver.mjs")
        })
    })
}

/// Compiles the program once for all tests of this process.
fn compiled_go() -> Option<&'static PathBuf> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    if !Command::new("go").arg("version").output().is_ok_and(|output| output.status.success()) {
        skip("the program: go");
        return None;
    }
    Some(PROGRAM.get_or_init(|| {
        let program = output("go-client");
        let mut build = Command::new("go");
        build.arg("build").arg("-o").arg(&program).arg(".").current_dir(source(""));
        // Nothing is downloaded: the module has no dependencies.
        run(build.env("GOPROXY", "off").env("GOFLAGS", "-mod=mod"));
        program
    }))
}
