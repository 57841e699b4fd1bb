//! Promises of the environment.

use super::*;

#[test]
fn variables_override_the_file_and_stay_text() {
    let config = good(&[
        ("CHANNELD_API__API_KEY", "0123"),
        ("CHANNELD_API__PAGE_LIMIT", "50"),
        ("CHANNELD_VERIFICATION__TENANT_ID", "01"),
        ("CHANNELD_CHANNELS__A__SINKS", "out"),
        ("CHANNELD_SHUTDOWN_GRACE", "0s"),
        ("CHANNELD_ADMIN__LISTEN", ""),
        ("PATH", "/bin"),
    ]);
    assert_eq!(
        (config.accounts[&AccountName::default()].client.api_keys[0].expose(), config.api.page_limit),
        ("0123", 50)
    );
    assert_eq!((config.shutdown_grace, config.listen), (Duration::ZERO, None));
    assert_eq!(config.channels[0].sinks, ["out"]);
    assert_eq!(config.notes, ["sinks.hook: no channel uses this sink"]);
    let owner = config.channels[0].verification.verifier.workflow_owner;
    assert_eq!(owner, proof::verify::workflow_owner("org_1", "01"));
}

#[test]
fn a_name_in_a_variable_matches_regardless_of_case_and_dashes() {
    let text = GOOD.replace("channels.a", "channels.East-Coast");
    let config = load(&text, &[("CHANNELD_CHANNELS__EAST_COAST__START", "latest")]).expect("one channel");
    assert_eq!((config.channels.len(), config.channels[0].start), (1, Start::Latest));
    assert_eq!(&*config.channels[0].channel.name, "East-Coast");

    let twin = "[channels.east_coast]\nid = \"7c9e6679-7425-40de-944b-e07fc1f90ae8\"\nsinks = [\"out\"]\n";
    let error =
        load(&format!("{text}{twin}"), &[("CHANNELD_CHANNELS__EAST_COAST__START", "latest")]).expect_err("which?");
    assert!(error.to_string().contains("is ambiguous (East-Coast or east_coast)"), "{error}");
}

#[test]
fn variables_set_by_kubernetes_are_ignored() {
    good(&[
        ("CHANNELD_SERVICE_HOST", "10.0.0.1"),
        ("CHANNELD_SERVICE_PORT", "9464"),
        ("CHANNELD_SERVICE_PORT_HTTP_METRICS", "9464"),
        ("CHANNELD_PORT", "tcp://10.0.0.1:9464"),
        ("CHANNELD_PORT_9464_TCP", "tcp://10.0.0.1:9464"),
        ("CHANNELD_PORT_9464_TCP_PROTO", "tcp"),
        ("CHANNELD_PORT_9464_TCP_PORT", "9464"),
        ("CHANNELD_PORT_9464_TCP_ADDR", "10.0.0.1"),
        ("CHANNELD_METRICS_SERVICE_HOST", "10.0.0.2"),
    ]);
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    let cases = [
        ("CHANNELD_API__PAGE_LIMIT", "many", "api.page_limit", "from 1 to 200"),
        ("CHANNELD_API__PAGE_LIMT", "5", "api.page_limt", "did you mean CHANNELD_API__PAGE_LIMIT?"),
        ("CHANNELD_API_PAGE_LIMIT", "5", "api_page_limit", "did you mean CHANNELD_API__PAGE_LIMIT?"),
        ("CHANNELD_PORTS", "5", "ports", "not a known key"),
        ("CHANNELD_PORT_X_TCP", "5", "port_x_tcp", "not a known key"),
        ("CHANNELD_API", "5", "api", "is a table"),
        ("CHANNELD_CHANNELS", "a", "channels", "is a table"),
        ("CHANNELD_CHANNELS__B", "a", "channels.b", "must be a table"),
        ("CHANNELD_API__", "5", "api.\"\"", "empty level"),
        ("CHANNELD_", "5", "\"\"", "empty level"),
        (
            "CHANNELD_VERIFICATION__VALID_SIGNERS",
            "0x12,",
            "verification.valid_signers",
            "item 1 of the list is not an address",
        ),
        ("CHANNELD_API__API_KEY", "", "api.api_key", "is empty"),
    ];
    for (variable, value, key, message) in cases {
        let error = load(GOOD, &[(variable, value)]).expect_err(variable);
        let problem = &error.problems[0];
        assert_eq!(problem.key, key, "{error}");
        assert_eq!(problem.origin, Some(format!("environment variable {variable}")), "{error}");
        assert!(problem.message.contains(message), "{error}");
    }
}

#[test]
fn two_variables_for_one_key_are_refused() {
    let error = load(GOOD, &[("CHANNELD_LOG__LEVEL", "info"), ("CHANNELD_LOG__level", "debug")]).expect_err("two");
    assert_eq!(keys_of(&error), ["log.level"]);
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_named_and_not_shown() {
    use std::os::unix::ffi::OsStringExt;
    let value = OsString::from_vec(b"sk-\xff".to_vec());
    let error = Config::of(ConfigText::default(), [("CHANNELD_API__API_KEY".into(), value)]).err().expect("not UTF-8");
    assert_eq!(keys_of(&error)[0], "api.api_key");
    assert!(error.problems[0].message.contains("UTF-8") && !error.to_string().contains("sk-"), "{error}");
}

#[test]
fn the_environment_wins_between_exclusive_keys() {
    let owner = "0x00000000000000000000000000000000000000aa";
    let config = good(&[("CHANNELD_VERIFICATION__WORKFLOW_OWNER", owner)]);
    assert_eq!(config.channels[0].verification.verifier.workflow_owner.to_string(), owner);

    let both = [("CHANNELD_VERIFICATION__WORKFLOW_OWNER", owner), ("CHANNELD_VERIFICATION__ORG_ID", "org_2")];
    assert_eq!(keys_of(&load(GOOD, &both).expect_err("both")), ["verification.org_id"]);
}
