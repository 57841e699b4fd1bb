//! The values in effect and their origins.

use serde_json::{Value, json};

use super::*;

/// The settings from a file with this text and from these variables, by their keys, and the file's path.
fn settings(text: &str, variables: &[(&str, &str)]) -> (BTreeMap<String, Setting>, std::path::PathBuf) {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("channeld.toml");
    fs::write(directory.path().join("secret"), "s3cret-do-not-show\n").expect("a file in it");
    fs::write(&file, text.replace('~', &directory.path().display().to_string())).expect("a file in it");
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let text = ConfigText::read(Some(&file)).expect("a text");
    let (_, reader) = Config::checked(&text, variables).unwrap_or_else(|error| panic!("{error}"));
    let found = crate::config::effective::settings(&reader);
    for setting in &found {
        let shown = format!("{setting:?} {}", serde_json::to_string(setting).expect("JSON"));
        assert!(!shown.contains("do-not-show") && !shown.contains("whsec_"), "{shown}");
    }
    (found.into_iter().map(|setting| (setting.key.clone(), setting)).collect(), file)
}

fn line(file: &Path, line: usize) -> Origin {
    Origin::File { file: file.to_owned(), line: Some(line) }
}

fn by(variable: &str) -> Origin {
    Origin::Environment { variable: variable.to_owned() }
}

/// A file whose line numbers matter.
const FILE: &str = r#"shutdown_grace = "5s"
[api]
api_key = "sk-0123-do-not-show"
[verification]
org_id = "org_1"
[channels.East-Coast]
id = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
sinks = ["hook", "plain"]
verification.ordering = "strict"
[sinks.hook]
type = "webhook"
url = "https://ledger.internal/hooks/T0KENdo-not-show?token=do-not-show"
secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
headers.X-Tenant = "do-not-show"
oauth2 = { token_url = "https://login.internal/oauth2?key=do-not-show", client_id = "c", client_secret_file = "~/secret" }
[sinks.plain]
type = "stdout"
filter.type = ["watcher.event"]
"#;

#[test]
fn each_value_is_listed_with_its_source_and_without_secrets() {
    let variables = [("CHANNELD_API__PAGE_LIMIT", "100"), ("CHANNELD_CHANNELS__EAST_COAST__START", "7")];
    let (settings, file) = settings(FILE, &variables);
    let secret = file.with_file_name("secret").display().to_string();
    let expected: &[(&str, Option<Value>, Origin)] = &[
        ("shutdown_grace", Some(json!("5s")), line(&file, 1)),
        ("api.api_key", None, line(&file, 3)),
        ("api.page_limit", Some(json!("100")), by("CHANNELD_API__PAGE_LIMIT")),
        ("api.idle_wait", Some(json!("5s")), Origin::Default),
        ("admin.hosts", Some(json!([])), Origin::Default),
        ("verification.min_required_signatures", Some(json!(4)), Origin::Default),
        ("channels.East-Coast.sinks", Some(json!(["hook", "plain"])), line(&file, 8)),
        ("channels.East-Coast.verification.ordering", Some(json!("strict")), line(&file, 9)),
        ("channels.East-Coast.start", Some(json!("7")), by("CHANNELD_CHANNELS__EAST_COAST__START")),
        ("sinks.hook.url", Some(json!("https://ledger.internal/hooks/…")), line(&file, 12)),
        ("sinks.hook.secret", None, line(&file, 13)),
        ("sinks.hook.headers.X-Tenant", None, line(&file, 14)),
        ("sinks.hook.oauth2.token_url", Some(json!("https://login.internal/oauth2?…")), line(&file, 15)),
        ("sinks.hook.oauth2.client_secret_file", Some(json!(secret)), line(&file, 15)),
        ("sinks.hook.oauth2.credentials", Some(json!("header")), Origin::Default),
        ("sinks.hook.timeout", Some(json!("30s")), Origin::Default),
        ("sinks.hook.retry_wait_max", Some(json!("1h")), Origin::Default),
        ("sinks.hook.allow_private", Some(json!(true)), Origin::Default),
        ("sinks.plain.filter.type", Some(json!(["watcher.event"])), line(&file, 18)),
        ("sinks.plain.format", Some(json!("json")), Origin::Default),
    ];
    for (key, value, origin) in expected {
        let setting = settings.get(*key).unwrap_or_else(|| panic!("{key} is not in {settings:#?}"));
        assert_eq!((&setting.value, &setting.origin, setting.hidden), (value, origin, value.is_none()), "{key}");
    }
    for absent in
        ["sinks.hook.give_up_after", "sinks.hook.proxy", "sinks.plain.oauth2.credentials", "channels", "sinks"]
    {
        assert!(!settings.contains_key(absent), "{absent}");
    }
}

#[test]
fn an_inherited_value_names_the_key_that_sets_it() {
    let variables = [("CHANNELD_VERIFICATION__UNSIGNED", "drop")];
    let (settings, file) = settings(FILE, &variables);
    let inherited = |key: &str| {
        let setting = &settings[&format!("channels.East-Coast.verification.{key}")];
        assert_eq!(setting.inherits, Some(format!("verification.{key}")));
        (setting.value.clone(), setting.origin.clone())
    };
    assert_eq!(inherited("org_id"), (Some(json!("org_1")), line(&file, 5)));
    assert_eq!(inherited("unsigned"), (Some(json!("drop")), by("CHANNELD_VERIFICATION__UNSIGNED")));
    assert_eq!(inherited("proof_timeout"), (Some(json!("24h")), Origin::Default));
    assert_eq!(inherited("valid_signers").0.and_then(|list| Some(list.as_array()?.len())), Some(10));
    assert_eq!(settings["channels.East-Coast.verification.ordering"].inherits, None);
    assert!(!settings.contains_key("channels.East-Coast.verification.workflow_owner"));
    assert_eq!(settings["verification.org_id"].inherits, None);
}

#[test]
fn an_overridden_value_is_not_listed() {
    let owner = "0x00000000000000000000000000000000000000aa";
    let directory = TempDir::new().expect("a temporary directory");
    let url = directory.path().join("url");
    fs::write(&url, "https://ledger.internal/do-not-show\n").expect("a file in it");
    let url = url.display().to_string();
    let variables = [("CHANNELD_SINKS__HOOK__URL_FILE", &*url), ("CHANNELD_VERIFICATION__WORKFLOW_OWNER", owner)];
    let (settings, _) = settings(FILE, &variables);
    for absent in ["sinks.hook.url", "verification.org_id", "channels.East-Coast.verification.org_id"] {
        assert!(!settings.contains_key(absent), "{absent}");
    }
    assert_eq!(settings["sinks.hook.url_file"].value, Some(json!(url)));
    let own = &settings["channels.East-Coast.verification.workflow_owner"];
    assert_eq!((&own.value, &own.origin), (&Some(json!(owner)), &by("CHANNELD_VERIFICATION__WORKFLOW_OWNER")));
}
