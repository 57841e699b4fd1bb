//! Shows a list in the user's pager, as git does: `$PAGER`, or `less` if this variable is not set.
//!
//! The pager is used only if standard output is a terminal. It starts with the first text, so an error message appears without
//! a pager.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::daemon::signals::IgnoredInterrupts;

/// The options of `less` if the user has not set any: end at once if the text fits on the screen, keep the colors, and leave
/// the text on the screen.
const LESS: &str = "FRX";

/// Standard output through a pager. When it is dropped, it waits until the user has left the pager.
pub(crate) enum Pager {
    /// No text was written yet.
    Waiting,
    Running {
        child: Child,
        input: Option<ChildStdin>,
        _interrupts: Option<IgnoredInterrupts>,
    },
    None,
}

impl Pager {
    pub(crate) fn of_stdout() -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if is_dumb || !io::stdout().is_terminal() { Self::None } else { Self::Waiting }
    }

    fn start() -> Self {
        let command = chosen(std::env::var_os("PAGER"));
        let child = command.and_then(|mut command| command.stdin(Stdio::piped()).spawn().ok());
        // Without a pager, the text is still shown.
        let Some(mut child) = child else { return Self::None };
        let input = child.stdin.take();
        Self::Running { child, input, _interrupts: IgnoredInterrupts::begin().ok() }
    }

    fn writer(&mut self) -> Box<dyn Write + '_> {
        if matches!(self, Self::Waiting) {
            *self = Self::start();
        }
        match self {
            Self::Running { input: Some(input), .. } => Box::new(input),
            _ => Box::new(io::stdout()),
        }
    }
}

/// The command that starts the pager. `None` if the user wants no pager.
fn chosen(variable: Option<OsString>) -> Option<Command> {
    let mut command = match variable {
        Some(pager) if pager.is_empty() || pager == "cat" => return None,
        Some(pager) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(pager);
            shell
        }
        None => Command::new("less"),
    };
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    Some(command)
}

impl Write for Pager {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if text.is_empty() { Ok(0) } else { self.writer().write(text) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if matches!(self, Self::Waiting) { Ok(()) } else { self.writer().flush() }
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        if let Self::Running { child, input, .. } = self {
            // The pager learns that the text is complete.
            drop(input.take());
            // The error is ignored: the pager has ended.
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_chooses_the_pager_or_none() {
        let words = |variable: Option<&str>| {
            let command = chosen(variable.map(OsString::from))?;
            let words = [command.get_program()].into_iter().chain(command.get_args());
            Some(words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(words(None).unwrap(), ["less"]);
        assert_eq!(words(Some("more -d")).unwrap(), ["sh", "-c", "more -d"]);
        assert_eq!((words(Some("")), words(Some("cat"))), (None, None));
    }
}
