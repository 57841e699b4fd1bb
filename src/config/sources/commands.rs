//! Runs the programs that print secrets, which `api_key_command` and similar keys name.
//!
//! # Invariants
//!
//! * **Bounded.** A program that does not end in time is killed, with the programs that it started in its process group. If programs
//!   have failed for too long, no further one is started. The output is read up to a limit.
//! * **No shell.** The words are passed to the program as they are.
//! * **None of our secrets.** The program does not get channeld's own variables.
//! * **The secret stays secret.** The error can contain the standard error of the program, but not its output.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::files::SECRET_LIMIT;
use crate::config::key::PREFIX;
use ::record::printable;

/// How long a program may run.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// How long the programs of one configuration may run that then fail. A secret manager that hangs would otherwise delay a reload by
/// the time limit of each program. Programs that print a secret do not count, because slow ones must not prevent the start.
const FAILING_LIMIT: Duration = Duration::from_secs(60);

/// How long to wait for the end of a killed program, so that it does not remain as a zombie.
const KILL_TIME: Duration = Duration::from_secs(1);

/// How many characters of the standard error are shown.
const MESSAGE_LIMIT: usize = 500;

/// How many bytes of the standard error are searched for the secret. The rest is read and dropped.
const MESSAGE_SEARCHED: usize = 2 * SECRET_LIMIT;

/// The variables by which systemd talks to channeld. A program that has them could report in channeld's name.
const OF_SYSTEMD: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// The secrets that programs printed, by the words of their commands: a program runs once, even if several keys name it.
#[derive(Default)]
pub(crate) struct PrintedSecrets {
    known: BTreeMap<Vec<String>, Result<String, String>>,
    /// How long the programs ran that failed.
    failing: Duration,
}

impl PrintedSecrets {
    /// Runs a program and returns its output without the line break at its end. The error completes a sentence about the key.
    pub(crate) fn read(&mut self, words: Vec<String>) -> Result<String, String> {
        let Self { known, failing } = self;
        let read = |words: &Vec<String>| read_secret(words, failing);
        known.entry(words).or_insert_with_key(read).clone()
    }
}

fn read_secret(words: &[String], failing: &mut Duration) -> Result<String, String> {
    if *failing >= FAILING_LIMIT {
        let seconds = FAILING_LIMIT.as_secs();
        return Err(format!(
            "the program was not started, because other programs had already failed for {seconds} seconds; correct them first"
        ));
    }
    let started = Instant::now();
    let secret = run_within(words, TIME_LIMIT);
    if secret.is_err() {
        *failing += started.elapsed();
    }
    secret
}

fn run_within(words: &[String], limit: Duration) -> Result<String, String> {
    let [program, arguments @ ..] = words else {
        return Err("is empty; name a program and its arguments".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
        command.env_remove(name);
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("the program cannot be started: {error}; correct its path or its permissions"))?;
    let (status, [output, message]) = match collect(&mut child, Instant::now() + limit) {
        Ok(Some(ended)) => ended,
        not_ended => {
            kill(&mut child);
            return Err(match not_ended {
                Err(error) => format!("the output of the program cannot be read: {error}"),
                Ok(_) => format!("the program did not end within {} seconds and was stopped", limit.as_secs()),
            });
        }
    };
    if output.len() > SECRET_LIMIT {
        return Err(format!("the program printed more than {} KiB", SECRET_LIMIT / 1024));
    }
    let output = String::from_utf8(output).map_err(|_| "the program printed text that is not UTF-8".to_owned())?;
    let secret = output.trim_end_matches(['\r', '\n']);
    if !status.success() {
        return Err(format!("the program failed ({status}){}", said(&message, secret)));
    }
    if secret.is_empty() {
        let said = said(&message, secret);
        return Err(format!("the program printed no secret; it must write the secret to its standard output{said}"));
    }
    Ok(secret.to_owned())
}

fn is_ours(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) || OF_SYSTEMD.iter().any(|of_systemd| name == *of_systemd)
}

/// The beginning of the standard error of the program, on one line and without the secret.
fn said(message: &[u8], secret: &str) -> String {
    let on_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let without = |text: String, secret: &str| if secret.is_empty() { text } else { text.replace(secret, "…") };
    let mut text = without(String::from_utf8_lossy(message).into_owned(), secret);
    if message.len() > MESSAGE_SEARCHED {
        // The end can be the beginning of the secret.
        let kept = text.chars().count().saturating_sub(secret.chars().count());
        text = text.chars().take(kept).collect();
    }
    // The program can also have written the secret with other line breaks.
    let said = without(on_one_line(&text), &on_one_line(secret));
    let said: String = said.chars().take(MESSAGE_LIMIT).collect();
    if said.is_empty() { said } else { format!(": {}", printable(&said)) }
}

/// Reads the output and the standard error until the program has ended. Returns `None` if it does not end in time. A program in the
/// background that still has the pipes open does not count.
fn collect(child: &mut Child, deadline: Instant) -> io::Result<Option<(ExitStatus, [Vec<u8>; 2])>> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut output = Pipe::of(child.stdout.take().map(OwnedFd::from), SECRET_LIMIT);
    let mut message = Pipe::of(child.stderr.take().map(OwnedFd::from), MESSAGE_SEARCHED);
    loop {
        let has_ended = wait(&[&output, &message], &ended, deadline)?;
        // If the program has ended, the pipes contain everything that it wrote.
        let was_read = [output.read()?, message.read()?].contains(&true);
        if has_ended && !was_read {
            return Ok(Some((child.wait()?, [output.bytes, message.bytes])));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
    }
}

/// Waits for output, for the end of the program, or for the deadline. Returns whether the program has ended.
fn wait(pipes: &[&Pipe], ended: &OwnedFd, deadline: Instant) -> io::Result<bool> {
    let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
    let open = pipes.iter().filter_map(|pipe| pipe.file.as_ref()).map(|file| PollFd::new(file, PollFlags::IN));
    let mut all: Vec<_> = [PollFd::new(ended, PollFlags::IN)].into_iter().chain(open).collect();
    match poll(&mut all, left.as_ref()) {
        Ok(_) => Ok(!all[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The reading end of a pipe, and the bytes that were read from it.
struct Pipe {
    /// `None` if the pipe was read to its end.
    file: Option<File>,
    bytes: Vec<u8>,
    limit: usize,
}

impl Pipe {
    fn of(end: Option<OwnedFd>, limit: usize) -> Self {
        Self { file: end.map(File::from), bytes: Vec::new(), limit }
    }

    /// Reads once, if this does not block. Keeps at most one byte more than the limit, and drops the rest. Returns whether something
    /// was read.
    fn read(&mut self) -> io::Result<bool> {
        let Some(file) = &mut self.file else { return Ok(false) };
        let mut ready = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
        if retry_on_intr(|| poll(&mut ready, Some(&Timespec::default())))? == 0 {
            return Ok(false);
        }
        let mut buffer = [0; 4096];
        let read = file.read(&mut buffer)?;
        if read == 0 {
            self.file = None;
        }
        let kept = read.min(self.limit + 1 - self.bytes.len());
        self.bytes.extend_from_slice(&buffer[..kept]);
        Ok(read > 0)
    }
}

/// Kills the program with its process group. Waits only briefly for its end, because the kernel cannot stop a program that waits
/// for a dead file server.
fn kill(child: &mut Child) {
    let group = Pid::from_child(child);
    // The group can be gone already.
    let _ = kill_process_group(group, Signal::KILL);
    if let (Ok(ended), Ok(limit)) = (pidfd_open(group, PidfdFlags::empty()), Timespec::try_from(KILL_TIME)) {
        let _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit));
    }
    let _ = child.try_wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script, which gets these arguments.
    fn shell(script: &str, arguments: &[&str]) -> Result<String, String> {
        let words = ["/bin/sh", "-c", script, "helper"].into_iter().chain(arguments.iter().copied());
        run_within(&words.map(str::to_owned).collect::<Vec<_>>(), TIME_LIMIT)
    }

    #[test]
    fn the_output_is_the_secret_and_the_arguments_reach_the_program_unchanged() {
        assert_eq!(shell("printf '%s\\n' \"$1\"", &["a b $HOME; * 'c'"]), Ok("a b $HOME; * 'c'".to_owned()));
        let long = shell("head -c 65536 /dev/zero | tr '\\0' k", &[]).expect("it is within the limit");
        assert_eq!(long.len(), SECRET_LIMIT);
    }

    #[test]
    fn a_background_program_that_keeps_the_pipes_does_not_delay_the_secret() {
        let started = Instant::now();
        assert_eq!(shell("sleep 20 & echo k", &[]), Ok("k".to_owned()));
        assert!(started.elapsed() < TIME_LIMIT);
    }

    #[test]
    fn each_failure_says_why_and_does_not_show_the_output() {
        for (script, why) in [
            ("echo 'vault is sealed' >&2; echo hunter2; exit 3", "(exit status: 3): vault is sealed"),
            ("echo hunter2; echo 'got hunter2\n\u{1b}[31m' >&2; exit 1", "got … \u{fffd}[31m"),
            ("echo 'no login' >&2", "printed no secret; it must write the secret to its standard output: no login"),
            ("head -c 65537 /dev/zero", "printed more than 64 KiB"),
            ("yes hunter2 | head -c 1000000 >&2; exit 1", "exit status: 1"),
            ("printf '\\377'", "not UTF-8"),
            ("kill -9 $$", "signal: 9"),
        ] {
            let error = shell(script, &[]).expect_err(script);
            assert!(error.contains(why), "{script}: {error}");
            assert!(error.len() < 1000, "{error}");
        }
        let error = shell("echo hunter2; echo hunter2 >&2; exit 1", &[]).expect_err("a failure");
        assert!(!error.contains("hunter2"), "{error}");
        let error = run_within(&["/nowhere/helper-do-not-show".to_owned()], TIME_LIMIT).expect_err("no program");
        assert!(error.contains("cannot be started") && !error.contains("do-not-show"), "{error}");
        assert!(run_within(&[], TIME_LIMIT).is_err());
    }

    #[test]
    fn no_part_of_the_secret_is_shown_if_the_standard_error_is_cut() {
        let secret = "hunter2-hunter3\nhunter4";
        let xs = "x".repeat(MESSAGE_LIMIT - 10);
        let shown = shell("printf '%s%s and more' \"$1\" \"$2\" >&2; echo \"$2\"; exit 1", &[&xs, secret])
            .expect_err("it fails");
        assert!(shown.ends_with(&format!(": {xs}… and more")), "{shown}");
        // The part that is searched ends with the beginning of a long secret.
        let long = "hunter-".repeat(300);
        let message = &long.repeat(MESSAGE_SEARCHED / long.len() + 1)[..=MESSAGE_SEARCHED];
        let shown = said(message.as_bytes(), &long);
        assert!(!shown.contains("hun"), "{shown}");
        assert_eq!(said(b"key\thunter2-hunter3 hunter4\n", secret), ": key …");
        assert_eq!(said("\u{e9}".repeat(600).as_bytes(), "k"), format!(": {}", "\u{e9}".repeat(MESSAGE_LIMIT)));
    }

    #[test]
    fn no_further_program_is_started_after_programs_have_failed_for_long() {
        let mut secrets = PrintedSecrets::default();
        let words = |script: &str| ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        assert!(secrets.read(words("exit 1")).is_err());
        assert!(secrets.failing > Duration::ZERO && secrets.failing < FAILING_LIMIT);
        let failing = secrets.failing;
        assert_eq!(secrets.read(words("echo k")), Ok("k".to_owned()));
        assert_eq!(secrets.failing, failing, "a program that prints a secret does not count");
        secrets.failing = FAILING_LIMIT;
        assert!(secrets.read(words("echo l")).unwrap_err().contains("was not started"));
        assert_eq!(secrets.read(words("echo k")), Ok("k".to_owned()), "it is known");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_the_programs_that_it_started() {
        let directory = tempfile::TempDir::new().expect("a temporary directory");
        let file = directory.path().join("group");
        let script = format!("echo $$ >{}; sleep 600 & sleep 600", file.display());
        let words = ["/bin/sh", "-c", &script].map(str::to_owned);
        let error = run_within(&words, Duration::from_secs(3)).expect_err("it does not end");
        assert!(error.contains("did not end within 3 seconds"), "{error}");
        let group = std::fs::read_to_string(&file).expect("it has run").trim().to_owned();
        // The killed programs can be zombies until the process that inherits them collects them.
        let is_alive = || {
            let all = std::fs::read_dir("/proc").expect("processes").flatten();
            all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok()).any(|stat| {
                let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
                fields.get(2) == Some(&group.as_str()) && !["Z", "X"].contains(&fields[0])
            })
        };
        while is_alive() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn variables_of_channeld_and_systemd_are_ours() {
        for (name, ours) in [
            ("CHANNELD_API__API_KEY", true),
            ("NOTIFY_SOCKET", true),
            ("VAULT_TOKEN", false),
            ("PATH", false),
            ("CREDENTIALS_DIRECTORY", false),
        ] {
            assert_eq!(is_ours(OsStr::new(name)), ours, "{name}");
        }
    }
}
