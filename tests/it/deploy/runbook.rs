//! Whoever is called at night finds a section for the alert, and commands that there are.

use std::ffi::OsString;

use super::{alerts, read};

/// The headings of its sections, and what its links call them.
fn sections(runbook: &str) -> Vec<(&str, String)> {
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    headings.map(|heading| (heading, heading.to_lowercase().replace(' ', "-"))).collect()
}

#[test]
fn every_alert_leads_to_its_section() {
    let (runbook, rules) = (read("RUNBOOK.md"), read("prometheus/alerts.yaml"));
    let sections = sections(&runbook);
    let led: Vec<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("runbook: deploy/RUNBOOK.md#")).collect();
    let alerts = alerts();
    assert_eq!(led, alerts.iter().map(|alert| alert.to_lowercase()).collect::<Vec<_>>());
    for alert in alerts {
        assert!(sections.iter().any(|(heading, _)| *heading == alert), "{alert} has no section");
    }
    for (heading, _) in sections.iter().filter(|(heading, _)| heading.starts_with("Channeld")) {
        assert!(rules.contains(&format!("- alert: {heading}\n")), "{heading} is no alert any more");
    }
}

#[test]
fn every_link_within_the_runbook_leads_somewhere() {
    let runbook = read("RUNBOOK.md");
    let links: Vec<_> = runbook.split("](#").skip(1).map(|rest| rest.split_once(')').unwrap().0).collect();
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        assert!(sections(&runbook).iter().any(|(_, name)| name == link), "#{link} leads nowhere");
    }
}

#[test]
fn every_command_of_the_runbook_is_one_that_the_program_takes() {
    let runbook = read("RUNBOOK.md");
    let commands: Vec<_> = blocks(&runbook).filter(|line| line.starts_with("channeld ")).collect();
    assert!(commands.len() > 30, "{commands:?}");
    for command in commands {
        let words = command.split_whitespace().take_while(|word| !["#", ">", "|"].contains(word));
        let parsed = channeld::cli::parse(words.map(OsString::from));
        // A version is printed, and that is all.
        assert!(parsed.is_ok() || command == "channeld --version", "{command}");
    }
}

/// The lines of its blocks of commands.
fn blocks(runbook: &str) -> impl Iterator<Item = &str> {
    let mut within = false;
    runbook.lines().map(str::trim).filter(move |line| {
        let fence = line.starts_with("```");
        within = if fence { *line == "```sh" } else { within };
        within && !fence
    })
}
