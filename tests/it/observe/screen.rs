//! Commands on a terminal: the screen of `channeld status --watch`, lists in a pager, and lines that fit the terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use simulator::{Options, Simulator};
use tokio::process::{Child, Command};

use crate::support::{Setup, eventually, signal};

/// The escape sequence that leaves the alternate screen.
const LEAVES_SCREEN: &str = "\u{1b}[?1049l";

/// A program on its own pseudo-terminal.
struct OnTerminal {
    child: Child,
    keyboard: File,
    terminal: File,
    /// The settings of the terminal before the program started.
    settings: String,
    written: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(setup: &Setup, arguments: &[&str]) -> Self {
        Self::start_in(setup, arguments, &[])
    }

    /// Like [`start`](Self::start), with additional environment variables.
    fn start_in(setup: &Setup, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        tcsetwinsize(&master, Winsize { ws_col: 80, ws_row: 24, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        // Do not make it the controlling terminal of the test process.
        let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let terminal = File::options().read(true).write(true).custom_flags(flags).open(path).unwrap();
        let settings = settings(&terminal);
        let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
        let end = || Stdio::from(terminal.try_clone().unwrap());
        command
            .args(arguments)
            .arg("--config")
            .arg(setup.path("channeld.toml"))
            .env_clear()
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied())
            // The program stops its process group on Ctrl-Z. The group must not contain the test process.
            .process_group(0);
        let child = command.stdin(end()).stdout(end()).stderr(end()).kill_on_drop(true).spawn().unwrap();
        let keyboard = File::from(master);
        let (mut screen, written) = (keyboard.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let writes = written.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                writes.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Self { child, keyboard, terminal, settings, written }
    }

    /// Waits until the program has written this text since the last call.
    async fn shows(&self, text: &str) {
        eventually(text, || {
            let mut written = self.written.lock().unwrap();
            // Escape sequences can occur between words.
            let is_there = plain(&written).contains(text);
            is_there.then(|| written.clear())
        })
        .await;
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the program has exited and has restored the terminal. Returns the exit code.
    async fn ended(mut self) -> Option<i32> {
        let code = self.child.wait().await.unwrap().code();
        self.restores_terminal().await;
        code
    }

    /// Waits until the program has left the alternate screen, and asserts that the terminal has its original settings.
    async fn restores_terminal(&self) {
        eventually("the program leaves the alternate screen", || {
            let mut written = self.written.lock().unwrap();
            let has_left = String::from_utf8_lossy(&written).contains(LEAVES_SCREEN);
            has_left.then(|| written.clear())
        })
        .await;
        assert_eq!(settings(&self.terminal), self.settings, "the terminal's settings are restored");
    }
}

fn settings(terminal: &File) -> String {
    format!("{:?}", tcgetattr(terminal).unwrap())
}

/// Removes escape sequences.
fn plain(written: &[u8]) -> String {
    let text = String::from_utf8_lossy(written);
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part
            .strip_prefix('[')
            .map_or(part, |part| part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest));
        text + rest
    })
}

#[tokio::test]
async fn the_screen_shows_state_and_details_and_q_restores_the_terminal() {
    let simulator = Simulator::start(Options { events: 5, channels: 2, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 10).await;
    let mut screen = OnTerminal::start(&setup, &["status", "--watch", "1"]);
    screen.shows(" READY ").await;
    screen.press("\r");
    screen.shows("SIGNERS").await;
    screen.press("\u{1b}");
    screen.shows("CHANNEL").await;
    screen.press("?");
    screen.shows("COLUMNS").await;
    screen.press("?");
    // Only cells that change are written, so not every question is written in full.
    for (question, result) in [("pause", "c0: paused"), ("resume", "c0: resumed")] {
        screen.press("p");
        screen.shows(question).await;
        screen.press("y");
        screen.shows(result).await;
    }
    screen.press("q");
    assert_eq!(screen.ended().await, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn a_signal_restores_the_terminal_and_the_screen_waits_for_a_daemon() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    let screen = OnTerminal::start(&setup, &["status", "--watch", "1"]);
    screen.shows(" NO ANSWER ").await;
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 5).await;
    screen.shows(" READY ").await;
    signal(&screen.child, rustix::process::Signal::TERM);
    assert_eq!(screen.ended().await, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn ctrl_z_restores_the_terminal_and_fg_redraws_the_screen() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 5).await;
    let mut screen = OnTerminal::start(&setup, &["status", "--watch", "1"]);
    for _ in 0..2 {
        screen.shows(" READY ").await;
        screen.press("\u{1a}");
        let process = screen.child.id().unwrap();
        eventually("it is stopped", || {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T').then_some(())
        })
        .await;
        screen.restores_terminal().await;
        signal(&screen.child, rustix::process::Signal::CONT);
    }
    // The column heading is written again only if the whole screen is redrawn.
    screen.shows("CURSOR").await;
    screen.press("q");
    assert_eq!(screen.ended().await, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn events_fit_the_terminal_and_have_colors_if_it_wants_them() {
    let simulator = Simulator::start(Options { events: 8, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    for (variables, with_colours) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let arguments = ["tail", "--from-service", "--events", "8"];
        let mut tail = OnTerminal::start_in(&setup, &arguments, variables);
        assert_eq!(tail.child.wait().await.unwrap().code(), Some(0));
        let text = eventually("all events are written", || {
            let written = String::from_utf8_lossy(&tail.written.lock().unwrap()).into_owned();
            (written.matches("verified").count() + written.matches("unsigned").count() >= 8).then_some(written)
        })
        .await;
        assert_eq!(text.contains("\u{1b}[1m\u{1b}[32mverified"), with_colours, "{text:?}");
        assert_eq!(text.contains('\u{1b}'), with_colours, "{text:?}");
        let widest = plain(text.as_bytes()).lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text:?}");
    }
}

#[tokio::test]
async fn lists_fit_the_terminal_and_go_through_the_pager_of_the_user() {
    let simulator = Simulator::start(Options { events: 8, forged: 0.5, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("events arrive", |_| setup.lines() >= 1).await;
    let pager = [("PAGER", "sed 's/^/paged: /'")];
    for (arguments, summary) in
        [(&["quarantine", "list"][..], " quarantined events: "), (&["search", "c0", "--limit", "8"], "8 events: ")]
    {
        let mut list = OnTerminal::start_in(&setup, arguments, &pager);
        assert_eq!(list.child.wait().await.unwrap().code(), Some(0));
        let text = eventually("the summary is written", || {
            let text = plain(&list.written.lock().unwrap());
            text.contains(summary).then_some(text)
        })
        .await;
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert!(lines.iter().all(|line| line.starts_with("paged:") && line.chars().count() <= 80 + 7), "{text}");
        assert!(lines.len() > 4, "{text}");
    }
    daemon.stop().await;
}
