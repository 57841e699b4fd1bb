//! The commands of README.md with which an application reads its first events, as they are written there.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::{Daemon, LONGEST_WAIT, programs};

const HEADING: &str = "\n## Read events from your application\n";

/// Runs a command of the shell at a terminal, as a reader of the document does.
const AT_TERMINAL: &str = "import pty, sys; pty.spawn(['sh', '-c', sys.argv[1]])";

/// How long the commands may take to show the first event.
const SOON: Duration = LONGEST_WAIT;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The first code block in this language in the section.
fn block(language: &str) -> String {
    let readme = text("README.md");
    let (_, section) = readme.split_once(HEADING).expect("the document has the section");
    let (section, _) = section.split_once("\n## ").unwrap();
    let (_, block) = section.split_once(&format!("```{language}\n")).expect("the section has the block");
    block.split_once("\n```").unwrap().0.to_owned()
}

/// The part of a line between two texts.
fn between<'l>(line: &'l str, before: &str, after: &str) -> Option<&'l str> {
    Some(line.split_once(before)?.1.split_once(after)?.0)
}

/// A program, and the lines that it prints.
fn spawn(command: &mut Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// Reads lines until one is accepted. Returns this line.
async fn until(lines: &mut Lines<BufReader<ChildStdout>>, accepts: impl Fn(&str) -> bool) -> String {
    let mut before = Vec::new();
    let search = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if accepts(line.trim_end()) {
                return Some(line.trim_end().to_owned());
            }
            before.push(line);
        }
        None
    };
    let found = timeout(SOON, search).await.ok().flatten();
    found.unwrap_or_else(|| panic!("not printed: {before:#?}"))
}

#[tokio::test]
async fn the_commands_in_the_readme_show_events_in_a_python_shell() {
    if !programs(&["python3", "curl"]) {
        return;
    }
    let commands: Vec<_> = block("sh").lines().map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect();
    let [build, demo, python] = commands.try_into().expect("three commands");
    // The tests have built the program with another profile.
    let profile = build.strip_prefix("cargo build --profile ").unwrap_or_else(|| panic!("{build}"));
    assert!(text("Cargo.toml").contains(&format!("\n[profile.{profile}]\n")), "{build}");
    let arguments = demo.strip_prefix(&format!("target/{profile}/channeld ")).unwrap_or_else(|| panic!("{demo}"));
    let (daemon, stdout) = Daemon::run_piped(&arguments.split(' ').collect::<Vec<_>>(), None, &[]);
    let mut printed = BufReader::new(stdout).lines();
    until(&mut printed, |line| line.contains("A feed serves ")).await;
    let line = until(&mut printed, |_| true).await;
    let address = line.trim();
    let curl = until(&mut printed, |line| line.trim_start().starts_with("curl ")).await;
    let (_curl, mut lines) = spawn(Command::new("sh").arg("-c").arg(&curl));
    until(&mut lines, |line| line.starts_with("data: {\"position\":1,")).await;

    let program = block("python");
    let example = between(&program, "Feed(\"", "\")").unwrap_or_else(|| panic!("{program}"));
    let program = program.replacen(example, address, 1);
    let (mut shell, mut lines) =
        spawn(Command::new("python3").args(["-c", AT_TERMINAL, &python]).env("TERM", "dumb").env_remove("PYTHONPATH"));
    let mut input = shell.stdin.take().unwrap();
    // The document says: press Enter twice.
    input.write_all(format!("{program}\n\n").as_bytes()).await.unwrap();
    for position in 1..=5 {
        let line = until(&mut lines, |line| line.starts_with(&format!("{position} "))).await;
        let words: Vec<_> = line.split(' ').collect();
        assert!(words.len() == 3 && ["verified", "unsigned"].contains(&words[2]), "{line}");
    }
    // Ctrl-C.
    input.write_all(b"\x03").await.unwrap();
    until(&mut lines, |line| line.contains("KeyboardInterrupt")).await;
    daemon.signal(Signal::INT);
    while printed.next_line().await.unwrap().is_some() {}
    assert_eq!(daemon.ended().await.code, Some(0));
}
