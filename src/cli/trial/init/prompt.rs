//! Questions at a terminal.
//!
//! # Invariants
//!
//! * **Questions go to standard error, answers come from standard input.** Both must be terminals.
//! * **A secret is not echoed.** The echo is restored afterwards, even if the question is canceled.
//! * **Each question can be answered with `back`.**

use std::io::{self, BufRead, IsTerminal, Read};

use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use crate::cli::context::CommandError;

/// The answer that returns to the previous question.
const BACK: &str = "back";

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 127;

/// Why a question has no answer.
pub(super) enum Stop {
    /// The operator wants to answer the previous question again.
    Back,
    Failed(CommandError),
}

impl From<CommandError> for Stop {
    fn from(failure: CommandError) -> Self {
        Self::Failed(failure)
    }
}

/// Whether standard input and standard error are terminals.
pub(super) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks until the answer is not empty.
pub(super) fn ask(what: &str) -> Result<String, Stop> {
    loop {
        let answer = ask_or_nothing(what)?;
        if !answer.is_empty() {
            return Ok(answer);
        }
    }
}

/// Asks once. The answer may be empty.
pub(super) fn ask_or_nothing(what: &str) -> Result<String, Stop> {
    eprint!("{what}: ");
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line).map_err(CommandError::io("no answer could be read"))? {
        0 => Err(no_answer().into()),
        _ => unless_back(line.trim().to_owned()),
    }
}

fn unless_back(answer: String) -> Result<String, Stop> {
    if answer == BACK { Err(Stop::Back) } else { Ok(answer) }
}

/// Asks once. Returns the default if the answer is empty, or if the program has no terminal.
pub(super) fn ask_or(what: &str, default: &str) -> Result<String, Stop> {
    if !is_possible() {
        return Ok(default.to_owned());
    }
    let answer = ask_or_nothing(&format!("{what} [{default}]"))?;
    Ok(if answer.is_empty() { default.to_owned() } else { answer })
}

fn no_answer() -> CommandError {
    CommandError::usage("no answer; nothing was written")
}

pub(super) fn ask_secret(what: &str) -> Result<String, Stop> {
    let failed = || CommandError::io("the terminal cannot hide the answer");
    // In raw mode, the terminal does not echo the answer.
    enable_raw_mode().map_err(failed())?;
    eprint!("{what}: ");
    let answered = hidden_line();
    disable_raw_mode().map_err(failed())?;
    eprintln!();
    unless_back(answered?)
}

/// Reads a line byte by byte. Ctrl-C also arrives as a byte, so that the echo is restored before the program ends.
fn hidden_line() -> Result<String, CommandError> {
    let mut line = Vec::new();
    for byte in io::stdin().lock().bytes() {
        match byte.map_err(CommandError::io("no answer could be read"))? {
            b'\r' | b'\n' => break,
            CTRL_C | CTRL_D => return Err(no_answer()),
            BACKSPACE | DELETE => drop(line.pop()),
            byte => line.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}
