//! The files that are generated from the command definitions: manual pages for `man`, and completions for shells.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{programs, run};

fn channeld(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.args(arguments).env_clear();
    command
}

/// Generates the manual pages in a temporary directory.
pub(super) fn pages() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    run(&mut channeld(&["man", directory.path().join("man").to_str().unwrap()]));
    directory
}

#[test]
fn every_manual_page_renders_without_a_warning() {
    if !programs(&["man"]) {
        return;
    }
    let directory = pages();
    let mut count = 0;
    for page in std::fs::read_dir(directory.path().join("man")).unwrap() {
        let page = page.unwrap().path();
        let output = Command::new("man").args(["--warnings", "-E", "UTF-8", "-l"]).arg(&page).output().unwrap();
        let warnings = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("NAME") && text.contains("SEE ALSO"), "{}:\n{text}", page.display());
        count += 1;
    }
    assert!(count > 20, "{count} pages");
}

#[test]
fn every_listed_command_has_a_manual_page_and_no_other() {
    let directory = pages();
    let page = |name: &str| std::fs::read_to_string(directory.path().join("man").join(name)).ok();
    let about = page("channeld.1").unwrap().replace('\\', "");
    let help = String::from_utf8(run(&mut channeld(&["--help"]))).unwrap();
    let listed = help.lines().skip_while(|line| *line != "Run:").take_while(|line| *line != "Options:");
    let names = listed.filter_map(|line| line.strip_prefix("  "));
    let names: Vec<_> = names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").collect();
    assert!(names.contains(&"run") && names.contains(&"status"), "{help}");
    for name in names {
        assert!(page(&format!("channeld-{name}.1")).is_some_and(|page| page.contains(name)), "{name}");
        assert!(about.contains(&format!("channeld-{name}(1)")), "{name}");
    }
    assert!(page("channeld-man.1").is_none(), "the command is only for building packages");
}

#[test]
fn bash_completes_commands_and_options() {
    if !programs(&["bash"]) {
        return;
    }
    let script = r#"
        source <("$1" completions bash)
        complete_it() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _channeld_with_names "$1" "${!#}" "${*: -2:1}"
            echo "${COMPREPLY[*]}"
        }
        complete_it channeld quar
        complete_it channeld quarantine re
        complete_it channeld verify --min
        complete_it "$1" --config "$2" tail ""
        complete_it "$1" --config "$2" quarantine retry s
        complete_it "$1" tail --config "$2" --sink ""
        complete_it "$1" --config "$2" replay --channel f
        complete_it "$1" --config "$2" tail --fr
        complete_it "$1" --config /nowhere tail ""
        complete -p channeld | grep -o _channeld_with_names
    "#;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("channeld.toml");
    let channel =
        |name| format!("[channels.{name}]\nid = \"7c9e6679-7425-40de-944b-e07fc1f90ae7\"\nsinks = [\"audit\"]\n");
    let sinks = "[sinks.audit]\n";
    std::fs::write(&file, format!("{}{}{sinks}", channel("funds"), channel("settlements"))).unwrap();
    let mut bash = Command::new("bash");
    let out = run(bash.args(["-euc", script, "bash", env!("CARGO_BIN_EXE_channeld")]).arg(&file));
    let expected = "quarantine\nretry\n--min-required-signatures\nfunds settlements\nsettlements\naudit\nfunds\n--from-service\n\n\
                    _channeld_with_names\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn every_shell_has_completions_and_an_unknown_shell_is_an_error() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = String::from_utf8(run(&mut channeld(&["completions", shell]))).unwrap();
        assert!(script.contains("dead-letters"), "{shell}");
    }
    let refused = channeld(&["completions", "tcsh"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
}

#[test]
fn a_closed_output_pipe_is_not_a_failure() {
    let mut child = channeld(&["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
