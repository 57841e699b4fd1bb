//! `channeld completions`: prints completion scripts for shells.
//!
//! The script contains the commands and options. It reads the names of channels and sinks when they are needed, with the
//! hidden command `names`, so that they match the current configuration.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use clap::{Command, ValueEnum};
use clap_complete::{Shell, generate};
use toml_edit::{DocumentMut, Item};

use crate::cli::exit::{Exit, Failure};
use crate::cli::output::write_lines;
use crate::cli::shown::printable;

/// Print the completion script for a shell.
///
/// The script completes the commands and options of channeld. In bash, zsh and fish, it also completes the names of
/// channels and sinks.
///
/// bash: channeld completions bash > /usr/share/bash-completion/completions/channeld
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the names in the configuration, for completions.
#[derive(Debug, clap::Args)]
pub(crate) struct NamesArgs {
    #[arg(value_enum)]
    what: Names,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Names {
    Channels,
    Sinks,
}

/// Wraps the generated function that completes commands and options, and adds names.
const BASH: &str = r#"
_channeld_with_names() {
    _channeld "$@" || :
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" what= file= at
    for ((at = 1; at < COMP_CWORD - 1; at++)); do
        case "${COMP_WORDS[at]}" in
            init) return 0 ;;
            -c|--config) file="${COMP_WORDS[at+1]}" ;;
        esac
    done
    case "${prev}" in
        --sink) what=sinks ;;
        --channel) what=channels ;;
        *) case "${cur} ${COMP_WORDS[*]:1:COMP_CWORD-1}" in
               -*) ;;
               COMMANDS) what=channels ;;
           esac ;;
    esac
    if [ -n "${what}" ]; then
        COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" names "${what}" ${file:+--config "${file}"} 2>/dev/null)" -- "${cur}")) || :
    fi
}
"#;

const ZSH: &str = r#"
_channeld_channels() {
    local -a names
    names=(${(f)"$(_call_program names channeld names channels 2>/dev/null)"})
    compadd -a names
}
_channeld_sinks() {
    local -a names
    names=(${(f)"$(_call_program names channeld names sinks 2>/dev/null)"})
    compadd -a names
}
"#;

/// Prints the script for `command`, which is the whole command line.
pub(crate) fn run(args: &Args, mut command: Command, out: &mut impl Write) -> Result<Exit, Failure> {
    // Generate into memory first: `generate` panics if it cannot write.
    let mut script = Vec::new();
    generate(args.shell, &mut command, "channeld", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match args.shell {
        Shell::Bash => in_bash(&script, &of_channels(&command, "")),
        Shell::Zsh => in_zsh(&script),
        Shell::Fish => in_fish(&script, &of_channels(&command, "")),
        _ => script.into_owned(),
    };
    out.write_all(script.as_bytes()).map_err(Failure::output)?;
    Ok(Exit::Done)
}

/// Prints the names in the file, even if the configuration is otherwise invalid.
pub(crate) fn names(args: &NamesArgs, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let Some(file) = file else { return Ok(Exit::Done) };
    let doing = format!("{} could not be read", file.display());
    let text = std::fs::read_to_string(file).map_err(Failure::io(doing))?;
    let document = text.parse::<DocumentMut>().map_err(|error| Failure(Exit::Config, error.to_string()))?;
    let table = match args.what {
        Names::Channels => "channels",
        Names::Sinks => "sinks",
    };
    let names = document.get(table).and_then(Item::as_table_like);
    let names = names.into_iter().flat_map(|names| names.iter().map(|(name, _)| printable(name)));
    write_lines(out, names)
}

/// The commands whose first argument is a channel, each with its parent commands.
fn of_channels(command: &Command, above: &str) -> Vec<String> {
    let mut found = Vec::new();
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let path = format!("{above}{}", command.get_name());
        if command.get_positionals().next().is_some_and(|first| first.get_id() == "channel") {
            found.push(path.clone());
        }
        found.extend(of_channels(command, &format!("{path} ")));
    }
    found
}

fn in_bash(script: &str, of_channels: &[String]) -> String {
    let patterns: Vec<_> = of_channels.iter().map(|path| format!("*\" {path}\"")).collect();
    let wrapper = BASH.replace("COMMANDS", &patterns.join("|"));
    let (functions, registration) = script.rsplit_once("\nif [[ \"${BASH_VERSINFO").unwrap_or((script, ""));
    let registration = registration.replace("-F _channeld ", "-F _channeld_with_names ");
    format!("{functions}{wrapper}\nif [[ \"${{BASH_VERSINFO{registration}")
}

fn in_zsh(script: &str) -> String {
    let mut changed = String::with_capacity(script.len() + ZSH.len());
    for (number, line) in script.lines().enumerate() {
        let is_channel = line.contains(":channel -- ")
            || line.contains("--channel=[") && (line.contains(":CHANNEL:") || line.contains(":NAME:"));
        let action = match () {
            () if is_channel => "_channeld_channels",
            () if line.contains(":SINK:") => "_channeld_sinks",
            () => "_default",
        };
        let _ = writeln!(changed, "{}", line.replace(":_default'", &format!(":{action}'")));
        // After the first line, which names the command that the script completes.
        changed.push_str(if number == 0 { ZSH } else { "" });
    }
    changed
}

fn in_fish(script: &str, of_channels: &[String]) -> String {
    let mut changed = String::with_capacity(script.len());
    for line in script.lines() {
        let is = |option: &str| line.contains(&format!(" -l {option} ")) && line.ends_with(" -r");
        let what = match () {
            () if line.contains("_using_subcommand init\"") => None,
            () if is("sink") => Some("sinks"),
            () if is("channel") => Some("channels"),
            () => None,
        };
        let names = what.map(|what| format!(" -f -a \"(channeld names {what} 2>/dev/null)\"")).unwrap_or_default();
        let _ = writeln!(changed, "{line}{names}");
    }
    for path in of_channels {
        let mut commands = path.split(' ');
        let first = commands.next().unwrap_or_default();
        let below: Vec<_> = commands.map(|below| format!("; and __fish_seen_subcommand_from {below}")).collect();
        let below = below.concat();
        let _ = writeln!(
            changed,
            "complete -c channeld -n \"__fish_channeld_using_subcommand {first}{below}\" -f -a \"(channeld names channels \
             2>/dev/null)\""
        );
    }
    changed
}
