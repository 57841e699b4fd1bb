//! A program that uses one of the clients: it does one task, and prints JSON lines.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::feed::FeedEvent;
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
        let mut command = command(language)?;
        command.arg(task.to_string());
        Some(Self::of(command))
    }

    pub(super) fn of(command: Command) -> Self {
        // `channeld` would read the variables of the tests as its configuration.
        let mut command = tokio::process::Command::from(command);
        let channeld = Path::new(env!("CARGO_BIN_EXE_channeld")).parent().unwrap();
        let path = format!("{}:{}", channeld.display(), std::env::var("PATH").unwrap());
        let python = shipped("clients/python").display().to_string();
        command.env_clear().env("PATH", path).env("PYTHONPATH", python).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { input: process.stdin.take().unwrap(), _process: process, lines }
    }

    /// The next line. `None` after the last one.
    pub(super) async fn text(&mut self) -> Option<String> {
        timeout(LONGEST_WAIT, self.lines.next_line()).await.expect("the client prints a line").unwrap()
    }

    async fn line(&mut self) -> Option<Value> {
        let line = self.text().await;
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
    static TYPESCRIPT: OnceLock<PathBuf> = OnceLock::new();
    static GO: OnceLock<PathBuf> = OnceLock::new();
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/feed/clients").join(name);
    // Compiled once for all tests of this process.
    let output = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    match language {
        "python" => programs(&["python3"]).then(|| with_argument("python3", &source("driver.py"))),
        "typescript" => typescript_compiler().map(|mut compiler| {
            let program = TYPESCRIPT.get_or_init(|| {
                let directory = output("typescript-client");
                run(compiler.arg("--project").arg(source("tsconfig.json")).arg("--outDir").arg(&directory));
                std::fs::write(directory.join("package.json"), MODULES).unwrap();
                directory.join("tests/it/feed/clients/driver.mjs")
            });
            with_argument("node", program)
        }),
        "go" => go_compiler().map(|mut compiler| {
            let program = GO.get_or_init(|| {
                let program = output("go-client");
                run(compiler.arg("-o").arg(&program).arg(".").current_dir(source("")));
                program
            });
            Command::new(program)
        }),
        _ => panic!("there is no client in {language}"),
    }
}

/// The program with this text, in an empty directory. Returns `None` if the test is skipped.
pub(super) fn example(language: &str, text: &str, directory: &Path) -> Option<Command> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    match language {
        "python" => programs(&["python3"]).then(|| with_argument("python3", &write("example.py", text))),
        "typescript" => typescript_compiler().map(|mut compiler| {
            write("package.json", MODULES);
            std::fs::copy(shipped("clients/typescript/channeld-feed.ts"), directory.join("channeld-feed.ts")).unwrap();
            let options =
                ["--module", "nodenext", "--target", "es2022", "--rewriteRelativeImportExtensions", "--types", "node"];
            run(compiler.args(options).arg("--typeRoots").arg(tools().join("@types")).arg(write("example.ts", text)));
            with_argument("node", &directory.join("example.js"))
        }),
        "go" => go_compiler().map(|mut compiler| {
            let client = shipped("clients/go").display().to_string();
            let module =
                "module example\n\ngo 1.23\n\nrequire channeld.local/feed v0.0.0\n\nreplace channeld.local/feed => ";
            write("go.mod", &format!("{module}{client}\n"));
            write("main.go", text);
            run(compiler.arg("-o").arg("example").arg(".").current_dir(directory));
            Command::new(directory.join("example"))
        }),
        _ => panic!("there is no example in {language}"),
    }
}

/// Tells Node.js that the files are modules.
const MODULES: &str = r#"{"type": "module"}"#;

fn with_argument(program: &str, argument: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(argument);
    command
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/typescript/node_modules")
}

/// Returns `None` if the test is skipped.
fn typescript_compiler() -> Option<Command> {
    let compiler = tools().join("typescript/bin/tsc");
    if !compiler.exists() {
        skip("the TypeScript compiler, which .ci/run puts into target/tools");
        return None;
    }
    programs(&["node"]).then(|| with_argument("node", &compiler))
}

/// Returns `None` if the test is skipped.
fn go_compiler() -> Option<Command> {
    if !Command::new("go").arg("version").output().is_ok_and(|output| output.status.success()) {
        skip("the program: go");
        return None;
    }
    let mut command = Command::new("go");
    // Nothing is downloaded: the client has no dependencies.
    command.arg("build").env("GOPROXY", "off").env("GOFLAGS", "-mod=mod");
    Some(command)
}

/// The path of a shipped file.
pub(super) fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}
