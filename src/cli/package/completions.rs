//! `channeld completions`: prints completion scripts for shells.
//!
//! The script contains the commands and options, but not the names of channels and sinks. For these, it runs the hidden command
//! `channeld names` at each completion, so the names come from the current configuration.

use clap::Command;
use clap_complete::{Shell, generate};
use toml_edit::{DocumentMut, Item};

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::verdict_line::printable;

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
    /// The table of the configuration.
    #[arg(value_parser = ["channels", "sinks"])]
    what: String,
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
pub(crate) fn run(args: &Args, mut command: Command, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
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
    cx.out.write_all(script.as_bytes()).map_err(CommandError::output)?;
    Ok(Exit::Done)
}

/// Prints the names in the file, even if the configuration is otherwise invalid.
pub(crate) fn names(args: &NamesArgs, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let Some(file) = cx.file else { return Ok(Exit::Done) };
    let doing = format!("{} could not be read", file.display());
    let text = std::fs::read_to_string(file).map_err(CommandError::io(doing))?;
    let document = text.parse::<DocumentMut>().map_err(|error| CommandError(Exit::Config, error.to_string()))?;
    let names = document.get(&args.what).and_then(Item::as_table_like);
    let names = names.into_iter().flat_map(|names| names.iter().map(|(name, _)| printable(name)));
    cx.say_lines(names)
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
    // The first line names the command that the script completes.
    let (first, rest) = script.split_once('\n').unwrap_or((script, ""));
    let mut changed = format!("{first}\n{ZSH}");
    for line in rest.lines() {
        let is_channel = line.contains(":channel -- ")
            || line.contains("--channel=[") && (line.contains(":CHANNEL:") || line.contains(":NAME:"));
        let is_sink = line.contains(":SINK:");
        let action = if is_channel {
            "_channeld_channels"
        } else if is_sink {
            "_channeld_sinks"
        } else {
            "_default"
        };
        changed += &line.replace(":_default'", &format!(":{action}'"));
        changed.push('\n');
    }
    changed
}

fn in_fish(script: &str, of_channels: &[String]) -> String {
    let names = |what: &str| format!(" -f -a \"(channeld names {what} 2>/dev/null)\"\n");
    let mut changed = String::with_capacity(script.len());
    for line in script.lines() {
        let is = |option: &str| line.contains(&format!(" -l {option} ")) && line.ends_with(" -r");
        let of = ["sink", "channel"].into_iter().find(|option| is(option));
        let of = of.filter(|_| !line.contains("_using_subcommand init\""));
        changed += line;
        changed += &of.map_or_else(|| "\n".to_owned(), |option| names(&format!("{option}s")));
    }
    changed.extend(of_channels.iter().map(|path| {
        let condition = path.replace(' ', "; and __fish_seen_subcommand_from ");
        format!("complete -c channeld -n \"__fish_channeld_using_subcommand {condition}\"{}", names("channels"))
    }));
    changed
}
