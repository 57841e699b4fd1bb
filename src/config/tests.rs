//! The promises of loading, from an operator's side: what is wrong is named, all of it, and secrets never.

use std::ffi::OsString;
use std::fs;

use tempfile::TempDir;

use super::*;

const API_KEY: &str = "sk-0123-do-not-show";
const WEBHOOK_SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

const GOOD: &str = r#"
[api]
api_key = "sk-0123-do-not-show"
[verification]
org_id = "org_1"
[channels.a]
id = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
sinks = ["out", "hook"]
[sinks.out]
type = "stdout"
[sinks.hook]
type = "webhook"
url = "https://ledger.internal/hooks?token=t0ken-do-not-show"
secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
"#;

/// Loads a file of this text under these variables.
fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("channeld.toml");
    fs::write(&file, text).expect("a file in it");
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Config::load_with(Some(&file), variables)
}

fn good(variables: &[(&str, &str)]) -> Config {
    load(GOOD, variables).unwrap_or_else(|error| panic!("{error}"))
}

fn keys_of(error: &ConfigError) -> Vec<&str> {
    error.problems().iter().map(|problem| problem.key.as_str()).collect()
}

/// `GOOD` with the line of `key` in `[table]` replaced, or added where there is none.
fn with(table: &str, key: &str, value: &str) -> String {
    let mut lines: Vec<String> = GOOD.lines().map(str::to_owned).collect();
    let line = format!("{key} = {value}");
    let header = format!("[{table}]");
    let Some(start) = lines.iter().position(|line| *line == header) else {
        return if table.is_empty() { format!("{line}\n{GOOD}") } else { format!("{GOOD}\n{header}\n{line}\n") };
    };
    let end = (start + 1..lines.len()).find(|at| lines[*at].starts_with('[')).unwrap_or(lines.len());
    match (start + 1..end).find(|at| lines[*at].starts_with(&format!("{key} ="))) {
        Some(at) => lines[at] = line,
        None => lines.insert(end, line),
    }
    lines.join("\n")
}

#[test]
fn each_mistake_is_reported_under_its_key() {
    let cases = [
        ("", "shutdown_grace", "\"soon\"", "shutdown_grace"),
        ("", "shutdown_grace", "\"-3s\"", "shutdown_grace"),
        ("", "colour", "\"red\"", "colour"),
        ("api", "base_url", "\"ftp://host/v1\"", "api.base_url"),
        ("api", "base_url", "\"host/v1\"", "api.base_url"),
        ("api", "base_url", "\"https://user:pass@host/v1\"", "api.base_url"),
        ("api", "base_url", "\"https://host/v1?key=1\"", "api.base_url"),
        ("api", "base_url", "\"https://host/v1#top\"", "api.base_url"),
        ("api", "api_key", "\"\"", "api.api_key"),
        ("api", "api_key", "\"Apikey abc\"", "api.api_key"),
        ("api", "api_key", "\"schlüssel\"", "api.api_key"),
        ("api", "api_key", "12345", "api.api_key"),
        ("api", "api_key_file", "\"/etc/key\"", "api.api_key"),
        ("api", "page_limit", "0", "api.page_limit"),
        ("api", "page_limit", "201", "api.page_limit"),
        ("api", "page_limit", "1.5", "api.page_limit"),
        ("api", "connect_timeout", "\"0s\"", "api.connect_timeout"),
        ("api", "request_timeout", "30", "api.request_timeout"),
        ("api", "request_timeout", "\"9000h\"", "api.request_timeout"),
        ("api", "retry_wait", "\"2m\"", "api.retry_wait"),
        ("api", "retry_wait", "\"0s\"", "api.retry_wait"),
        ("api", "idle_wait", "\"0s\"", "api.idle_wait"),
        ("api", "idle_wiat", "\"1s\"", "api.idle_wiat"),
        ("verification", "workflow_owner", "\"0x00\"", "verification.org_id"),
        ("verification", "org_id", "\" org_1\"", "verification.org_id"),
        ("verification", "min_required_signatures", "0", "verification.min_required_signatures"),
        ("verification", "min_required_signatures", "11", "verification.min_required_signatures"),
        ("verification", "min_required_signatures", "-1", "verification.min_required_signatures"),
        ("verification", "valid_signers", "[]", "verification.valid_signers"),
        ("verification", "valid_signers", "[\"0x12\"]", "verification.valid_signers"),
        ("verification", "valid_signers", "[true]", "verification.valid_signers"),
        ("verification", "unsigned", "\"keep\"", "verification.unsigned"),
        ("verification", "ordering", "true", "verification.ordering"),
        ("verification", "proof_timeout", "\"0h\"", "verification.proof_timeout"),
        ("state", "path", "\"\"", "state.path"),
        ("admin", "listen", "\"localhost:9464\"", "admin.listen"),
        ("log", "level", "\"inof\"", "log.level"),
        ("log", "level", "\"info,channeld::api=loud\"", "log.level"),
        ("log", "format", "\"xml\"", "log.format"),
        ("channels.a", "id", "\"7c9e\"", "channels.a.id"),
        ("channels.a", "sinks", "[]", "channels.a.sinks"),
        ("channels.a", "sinks", "[\"nowhere\"]", "channels.a.sinks"),
        ("channels.a", "sinks", "[\"out\", \"hook\", \"out\"]", "channels.a.sinks"),
        ("channels.a", "start", "-1", "channels.a.start"),
        ("channels.a", "start", "\"now\"", "channels.a.start"),
        ("channels.a", "start", "2024-05-14", "channels.a.start"),
        ("channels.a.verification", "min_required_signatures", "11", "channels.a.verification.min_required_signatures"),
        ("channels.a.verification", "signers", "[]", "channels.a.verification.signers"),
        ("channels", "b", "5", "channels.b"),
        ("sinks.out", "type", "\"kafka\"", "sinks.out.type"),
        ("sinks.out", "path", "\"/tmp/x\"", "sinks.out.path"),
        ("sinks.hook", "url", "\"ledger\"", "sinks.hook.url"),
        ("sinks.hook", "url", "\"https://u:p@ledger/\"", "sinks.hook.url"),
        ("sinks.hook", "secret", "\"hunter2\"", "sinks.hook.secret"),
        ("sinks.hook", "secret", "\"whsec_MDEyMw==\"", "sinks.hook.secret"),
        ("sinks.hook", "secret_file", "\"/etc/secret\"", "sinks.hook.secret"),
        ("sinks.hook", "timeout", "\"0s\"", "sinks.hook.timeout"),
        ("sinks.hook", "retry_wait", "\"1h\"", "sinks.hook.retry_wait"),
        ("sinks.\"a b\"", "type", "\"stdout\"", "sinks.\"a b\""),
        ("sinks.a__b", "type", "\"stdout\"", "sinks.a__b"),
        ("sinks.file", "type", "\"file\"", "sinks.file.path"),
        ("chanels.b", "id", "\"x\"", "chanels"),
    ];
    for (table, key, value, expected) in cases {
        let error = load(&with(table, key, value), &[]).expect_err(&format!("[{table}] {key} = {value}"));
        assert_eq!(keys_of(&error), [expected], "[{table}] {key} = {value}\n{error}");
        assert!(!error.problems()[0].message.is_empty());
    }
}
