//! Each alert has a section in the runbook, and the commands and messages in the runbook exist.

use std::ffi::OsString;

use ledger::{DEAD_LETTERS, LATE, QUARANTINE};

use super::{alerts, read};

/// The headings of the sections, and their link anchors.
fn sections(runbook: &str) -> Vec<(&str, String)> {
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    headings.map(|heading| (heading, heading.to_lowercase().replace(' ', "-"))).collect()
}

#[test]
fn every_alert_links_to_its_runbook_section() {
    let (runbook, rules) = (read("RUNBOOK.md"), read("prometheus/alerts.yaml"));
    let sections = sections(&runbook);
    let led: Vec<_> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook_url: file:///usr/share/doc/channeld/RUNBOOK.md#"))
        .collect();
    let alerts = alerts();
    assert_eq!(led, alerts.iter().map(|alert| alert.to_lowercase()).collect::<Vec<_>>());
    for alert in alerts {
        assert!(sections.iter().any(|(heading, _)| *heading == alert), "{alert} has no section");
    }
    for (heading, _) in sections.iter().filter(|(heading, _)| heading.starts_with("Channeld")) {
        assert!(rules.contains(&format!("- alert: {heading}\n")), "{heading} is no longer an alert");
    }
}

#[test]
fn every_internal_link_of_the_runbook_works() {
    let runbook = read("RUNBOOK.md");
    let links: Vec<_> = runbook.split("](#").skip(1).map(|rest| rest.split_once(')').unwrap().0).collect();
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        assert!(sections(&runbook).iter().any(|(_, name)| name == link), "#{link} leads nowhere");
    }
}

#[test]
fn every_documented_command_is_accepted() {
    let documents = ["RUNBOOK.md", "OPERATIONS.md", "TABLES.md"].map(read);
    let commands: Vec<_> = documents.iter().flat_map(|text| blocks(text)).filter_map(command).collect();
    assert!(commands.len() > 100, "{commands:?}");
    for command in commands {
        let words = command.split_whitespace().take_while(|word| !["#", ">", "|"].contains(word));
        let parsed = channeld::cli::parse(words.map(OsString::from));
        // For `--version`, the parser returns no command.
        assert!(parsed.is_ok() || command == "channeld --version", "{command}");
    }
}

#[test]
fn the_channel_limits_agree_in_code_runbook_alerts_and_configuration() {
    let (runbook, rules) = (read("RUNBOOK.md"), read("prometheus/alerts.yaml"));
    for (kept, limit) in [("pending events ", LATE), ("quarantine ", QUARANTINE), ("dead letters ", DEAD_LETTERS)] {
        let row = runbook.lines().find(|line| line.starts_with(&format!("| {kept}"))).unwrap();
        let bound = format!("| {} | {} MiB |", grouped(limit.events), limit.bytes >> 20);
        assert!(row.contains(&bound), "{bound} is not in: {row}");
    }
    let (half, tenth) = ((QUARANTINE.events / 2, QUARANTINE.bytes / 2), LATE.events / 10);
    let filling = format!("channeld_quarantined_events > {} or channeld_quarantined_bytes > {}", half.0, half.1);
    assert!(rules.contains(&filling) && rules.contains(&format!("channeld_pending_events > {tenth}\n")), "{filling}");
    let keys = include_str!("../../../config/default.toml");
    let said =
        keys.lines().skip_while(|line| !line.starts_with("# The state of each channel")).take(2).collect::<String>();
    for limit in [LATE, QUARANTINE, DEAD_LETTERS] {
        let bytes = format!("{} MiB", limit.bytes >> 20);
        assert!(said.contains(&grouped(limit.events)) && said.contains(&bytes), "{limit:?}: {said}");
    }
}

/// Formats `10000` as `10,000`.
fn grouped(number: u64) -> String {
    assert!(number < 1_000_000);
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

#[test]
fn quotes_in_the_documents_match_the_program() {
    let said = said();
    let mut quoted = 0;
    for document in ["RUNBOOK.md", "OPERATIONS.md"] {
        let text = read(document);
        let prose: String = text.split("```").step_by(2).collect();
        // Other tests check commands, settings and single names.
        let is_message = |quote: &&str| quote.split_whitespace().count() > 2 && !quote.contains(['=', '/', '<', '-']);
        for quote in prose.split('`').skip(1).step_by(2).filter(is_message) {
            let is_command = ["channeld ", "systemctl ", "sqlite3 ", "select ", "nats "]
                .iter()
                .any(|start| quote.starts_with(start));
            if is_command {
                continue;
            }
            quoted += 1;
            for part in open(quote).split('…').map(|part| part.trim_matches([' ', ':', ';', ',', '(', ')'])) {
                let is_one =
                    part.split_whitespace().count() < 2 || said.contains(part) || said.contains(&variant(part));
                assert!(is_one, "{document} quotes `{quote}`, and the program does not say \"{part}\"");
            }
        }
    }
    assert!(quoted > 30, "{quoted}");
}

/// The source code of the program on one line, with … in place of each value.
fn said() -> String {
    let mut said = String::new();
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|kind| kind == "rs") && !entry.ends_with("tests.rs") {
                said.push_str(&std::fs::read_to_string(entry).unwrap());
            }
        }
    }
    // A backslash at the end of a line continues a string literal.
    let joined: String = said.split("\\\n").map(str::trim_start).collect();
    open(&joined.replace("\\\"", "\""))
}

/// Replaces each part in braces and each digit by …, and separates the words by single spaces.
fn open(text: &str) -> String {
    let (mut out, mut depth) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '{' => depth = 1,
            '}' | '\n' if depth == 1 => {
                depth = 0;
                out.push('…');
            }
            _ if depth == 1 => (),
            '0'..='9' => out.push('…'),
            c => out.push(c),
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Joins words as in the name of a variant: `too many pending` becomes `TooManyPending`.
fn variant(words: &str) -> String {
    words
        .split(' ')
        .flat_map(|word| word[..1].to_uppercase().chars().chain(word[1..].chars()).collect::<Vec<_>>())
        .collect()
}

/// The channeld command in a line, without a variable or `runuser` before it.
fn command(line: &str) -> Option<&str> {
    if line.starts_with("CHANNELD_") || line.starts_with("runuser ") {
        return line.rfind(" channeld ").map(|at| &line[at + 1..]);
    }
    line.starts_with("channeld ").then_some(line)
}

/// The lines of the `sh` code blocks.
fn blocks(runbook: &str) -> impl Iterator<Item = &str> {
    let mut within = false;
    runbook.lines().map(str::trim).filter(move |line| {
        let fence = line.starts_with("```");
        within = if fence { *line == "```sh" } else { within };
        within && !fence
    })
}
