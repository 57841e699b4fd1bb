//! Groups the commands in `channeld --help`, because clap lists all commands under one heading.

use std::fmt::Write;

use clap::Command;

const GROUPS: [(&str, &[&str]); 6] = [
    ("Run", &["init", "check", "test-sink", "run", "reload"]),
    ("Look", &["status", "tail", "search", "get", "channels", "console", "explain", "health", "cluster"]),
    ("Act", &["pause", "resume", "replay", "quarantine", "dead-letters", "cursor", "consumers", "state"]),
    ("Prove", &["verify", "wait-watcher"]),
    ("Try", &["demo", "simulate"]),
    ("More", &["schema", "completions", HELP]),
];

/// The command that clap adds when it parses the command line.
const HELP: &str = "help";

/// The width of the column of names.
const NAMES: usize = 12;

/// Lists the commands in groups in the help of the program.
pub(super) fn grouped(command: Command) -> Command {
    let mut listed = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(listed, "\u{1b}[1;4m{heading}:\u{1b}[0m");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| "Print the help of a command".to_owned(), ToString::to_string);
            let _ = writeln!(listed, "  \u{1b}[1m{name:NAMES$}\u{1b}[0m  {about}");
        }
        listed.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}\u{1b}[1;4mOptions:\u{1b}[0m\n{{options}}{{after-help}}\n"
    );
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_command_is_in_one_group() {
        let command = Cli::command();
        let mut visible: Vec<_> =
            command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
        visible.push(HELP);
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(visible, grouped);
    }
}
