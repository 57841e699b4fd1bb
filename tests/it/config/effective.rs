//! `channeld check --effective` lists each effective setting and its origin, and shows no secret.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::Setup;

const KEY: &str = "key-of-a-test-do-not-show";

const HOOK: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

const TEXT: &str = r#"[api]
base_url = "http://127.0.0.1:9/v1"
api_key = "key-of-a-test-do-not-show"

[verification]
org_id = "org_1"

[channels.settlements]
id = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
sinks = ["hook"]

[sinks.hook]
type = "webhook"
url = "https://ledger.internal/hooks"
secret_file = "SECRET"
"#;

/// Runs `channeld check` on the configuration file of the setup, and asserts that it prints no secret.
fn check(setup: &Setup, flags: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.args(["check", "-c"]).arg(setup.path("channeld.toml")).args(flags);
    let output = command.env_clear().envs(variables.iter().copied()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(KEY) && !said.contains(HOOK), "a secret was printed: {said}");
    output
}

fn setup() -> Setup {
    let setup = Setup::of("http://127.0.0.1:9/v1", KEY, &[]);
    let secret = setup.path("secret");
    std::fs::write(&secret, HOOK).unwrap();
    std::fs::write(setup.path("channeld.toml"), TEXT.replace("SECRET", &secret.display().to_string())).unwrap();
    setup
}

#[test]
fn each_setting_is_a_line_with_its_source_and_secrets_are_hidden() {
    let setup = setup();
    let variables =
        [("CHANNELD_API__IDLE_WAIT", "1s"), ("CHANNELD_CHANNELS__SETTLEMENTS__VERIFICATION__UNSIGNED", "drop")];
    let output = check(&setup, &["--effective"], &variables);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(&format!("the file is {}", setup.path("channeld.toml").display())), "{text}");
    let secret = format!("sinks.hook.secret_file = \"{}\"", setup.path("secret").display());
    for (setting, origin) in [
        ("api.api_key = hidden", "channeld.toml, line 3"),
        ("api.page_limit = 200", "default"),
        ("api.idle_wait = \"1s\"", "CHANNELD_API__IDLE_WAIT"),
        ("channels.settlements.sinks = [\"hook\"]", "channeld.toml, line 10"),
        ("channels.settlements.start = \"earliest\"", "default"),
        ("channels.settlements.verification.ordering = \"available\"", "[verification]: default"),
        (
            "channels.settlements.verification.unsigned = \"drop\"",
            "CHANNELD_CHANNELS__SETTLEMENTS__VERIFICATION__UNSIGNED",
        ),
        (&secret, "channeld.toml, line 15"),
        ("sinks.hook.timeout = \"30s\"", "default"),
    ] {
        let line = text.lines().find(|line| line.starts_with(setting)).unwrap_or_else(|| panic!("{setting}: {text}"));
        assert_eq!(line[setting.len()..].trim_start(), format!("# {origin}"));
    }
}

#[test]
fn as_json_settings_are_objects_and_the_summary_is_unchanged() {
    let setup = setup();
    let output = check(&setup, &["--effective", "--json"], &[("CHANNELD_SINKS__HOOK__TIMEOUT", "5s")]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &object["valid"]), (Some(0), &json!(true)));
    let of = |key: &str| {
        let settings = object["effective"].as_array().unwrap();
        settings.iter().find(|setting| setting["key"] == key).unwrap_or_else(|| panic!("{key}: {object}")).clone()
    };
    let file = setup.path("channeld.toml").display().to_string();
    let key = json!({"key": "api.api_key", "value": null, "hidden": true, "origin": "file", "file": file, "line": 3});
    assert_eq!(of("api.api_key"), key);
    assert_eq!(
        of("api.page_limit"),
        json!({"key": "api.page_limit", "value": 200, "hidden": false, "origin": "default"})
    );
    let timeout = of("sinks.hook.timeout");
    assert_eq!((&timeout["value"], &timeout["variable"]), (&json!("5s"), &json!("CHANNELD_SINKS__HOOK__TIMEOUT")));
    assert_eq!(of("channels.settlements.verification.org_id")["inherits"], "verification.org_id");
    let plain: Value = serde_json::from_slice(&check(&setup, &["--json"], &[]).stdout).unwrap();
    assert!(plain.get("effective").is_none(), "{plain}");
}

#[test]
fn a_mistake_is_reported_as_without_the_flag_and_nothing_is_listed() {
    let setup = setup();
    for flags in [&[][..], &["--effective"]] {
        let output = check(&setup, flags, &[("CHANNELD_API__IDLE_WAIT", "soon")]);
        assert_eq!((output.status.code(), output.stdout), (Some(78), Vec::new()), "{flags:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("api.idle_wait (environment variable "));
    }
}
