//! Each concept has one name in all texts that users read: the documents, the help, the configuration, the alerts, the
//! dashboard, the metrics, the messages and the console.

use std::path::{Path, PathBuf};

use super::manual::pages;

/// The name of each concept, and its synonyms, which must not be used. A synonym that has other meanings too, such as
/// "behind" or "place", is only forbidden in phrases that mean the concept.
const GLOSSARY: [(&str, &[&str]); 10] = [
    ("offset", &["at its place", "place in the channel", "place of the event", "event's place"]),
    ("cursor", &["delivered up to", "processed up to", "processed offset"]),
    ("lag", &["events behind", "left behind", "left to deliver"]),
    ("pending", &["late event", "late proof", "owed", "set aside", "waits for its proof", "wait for their proof"]),
    ("quarantine", &["held back", "hold back", "holds back"]),
    ("dead letter", &["given up event", "gave up event", "give up an event", "gives up an event"]),
    ("replay", &["redeliver", "once more", "delivered again by an operator"]),
    ("retry", &["let through", "lets through"]),
    ("lease", &["claim", "claims", "claimed"]),
    ("lane", &["outlet"]),
];

/// The files that users read, in addition to the program's own texts.
const DOCUMENTS: [&str; 14] = [
    "README.md",
    "SECURITY.md",
    "config/default.toml",
    "deploy/CONCEPTS.md",
    "deploy/clients/README.md",
    "deploy/OPERATIONS.md",
    "deploy/RUNBOOK.md",
    "deploy/TABLES.md",
    "deploy/grafana/dashboard.json",
    "deploy/prometheus/alerts.yaml",
    "src/record/manual/manual.roff",
    "src/sink/webhook/receivers.md",
    "src/telemetry/metrics/table.md",
    "systemd/channeld.service",
];

#[test]
fn every_concept_has_one_name_in_documents_help_and_messages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts: Vec<(PathBuf, String)> =
        DOCUMENTS.iter().map(|name| (name.into(), std::fs::read_to_string(root.join(name)).unwrap())).collect();
    let manual = pages();
    for page in files(manual.path()) {
        texts.push((page.file_name().unwrap().into(), std::fs::read_to_string(page).unwrap()));
    }
    let program = files(&root.join("src")).into_iter().filter(|file| {
        let name = file.strip_prefix(root).unwrap().to_str().unwrap();
        file.extension().is_some_and(|extension| extension == "rs")
            && !["/tests", "/model", "/testing", "src/simulator/"].iter().any(|part| name.contains(part))
    });
    for file in program {
        let literals = literals(&std::fs::read_to_string(&file).unwrap());
        texts.push((file.strip_prefix(root).unwrap().into(), literals));
    }
    assert!(texts.len() > 300, "{} texts", texts.len());

    let mut found = Vec::new();
    for (name, text) in &texts {
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (concept, synonyms) in GLOSSARY {
                found.extend(synonyms.iter().filter(|synonym| has_phrase(&line, synonym)).map(|synonym| {
                    format!("{}:{}: {synonym:?}; the name is {concept:?}: {}", name.display(), number + 1, line.trim())
                }));
            }
        }
    }
    assert!(found.is_empty(), "{} synonyms:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_synonym_is_found_in_a_literal_and_not_in_a_name_or_a_comment() {
    let source = "// It was redeliver.\nlet redeliver = say(\"please \\\"redeliver\\\" it\", 'r');\n";
    let literals = literals(source);
    assert_eq!(literals.lines().nth(1), Some("please \\\"redeliver\\\" it"));
    assert!(has_phrase("please redeliver it", "redeliver"));
    assert!(!has_phrase("the claimant", "claim") && !has_phrase("on_claim", "claim"));
}

/// Whether a line contains a phrase as whole words.
fn has_phrase(line: &str, phrase: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte));
    line.match_indices(phrase).any(|(at, _)| {
        let bytes = line.as_bytes();
        !is_part(at.checked_sub(1).and_then(|before| bytes.get(before))) && !is_part(bytes.get(at + phrase.len()))
    })
}

/// The sentences among the string literals of a source file. Each stays on the line on which it begins. A literal of one word
/// is left out, because it is a name for programs.
fn literals(source: &str) -> String {
    source
        .lines()
        .map(|line| {
            let code = line.trim_start();
            if code.starts_with("//") { String::new() } else { sentences(code).join(" ") }
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// The literals of one line that contain a space.
fn sentences(code: &str) -> Vec<&str> {
    let (mut found, mut start) = (Vec::new(), None);
    let mut bytes = code.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (byte, start) {
            (b'\\', Some(_)) => _ = bytes.next(),
            (b'"', None) => start = Some(at + 1),
            (b'"', Some(from)) => {
                found.push(&code[from..at]);
                start = None;
            }
            _ => {}
        }
    }
    // The last literal continues on the next line.
    found.extend(start.map(|from| &code[from..]));
    found.retain(|literal| literal.contains(' '));
    found
}

/// Every file below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
