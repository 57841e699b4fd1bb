//! Each alert has its section in the runbook, and its commands exist.

use std::ffi::OsString;

use channeld::ledger::{DEAD_LETTERS, LATE, QUARANTINE};
use channeld::verify::Reason;

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

#[test]
fn the_bounds_of_a_channel_are_those_of_the_runbook_the_alerts_and_the_configuration() {
    let (runbook, rules) = (read("RUNBOOK.md"), read("prometheus/alerts.yaml"));
    for (kept, limit) in [("late events: ", LATE), ("quarantine ", QUARANTINE), ("dead letters ", DEAD_LETTERS)] {
        let row = runbook.lines().find(|line| line.starts_with(&format!("| {kept}"))).unwrap();
        let bound = format!("| {} | {} MiB |", grouped(limit.events), limit.bytes >> 20);
        assert!(row.contains(&bound), "{bound} is not in: {row}");
    }
    let (half, tenth) = ((QUARANTINE.events / 2, QUARANTINE.bytes / 2), LATE.events / 10);
    let filling = format!("channeld_quarantined_events > {} or channeld_quarantined_bytes > {}", half.0, half.1);
    assert!(rules.contains(&filling) && rules.contains(&format!("channeld_late_proofs > {tenth}\n")), "{filling}");
    let keys = include_str!("../../../config/default.toml");
    let said = keys.lines().skip_while(|line| !line.starts_with("# What is remembered")).take(2).collect::<String>();
    for limit in [LATE, QUARANTINE, DEAD_LETTERS] {
        let bytes = format!("{} MiB", limit.bytes >> 20);
        assert!(said.contains(&grouped(limit.events)) && said.contains(&bytes), "{limit:?}: {said}");
    }
}

/// `10000` as `10,000`.
fn grouped(number: u64) -> String {
    assert!(number < 1_000_000);
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

#[test]
fn every_reason_of_a_rejection_is_in_the_runbook() {
    let runbook = read("RUNBOOK.md");
    let section = runbook.split("\n## ").find(|section| section.starts_with("ChanneldEventsRejected\n")).unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let named = rows.iter().flat_map(|row| row.split('|').nth(1).unwrap().split(", "));
    let named: Vec<_> = named.map(|name| name.trim().trim_matches('`')).collect();
    let others = ["duplicate-proof", "contradiction", "proof-timeout", "pending-without-id"];
    for reason in Reason::NAMES.into_iter().chain(others) {
        let is_it = |name: &&str| name.strip_suffix('…').map_or(*name == reason, |start| reason.starts_with(start));
        assert!(named.iter().any(is_it), "{reason} is not in {named:?}");
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
