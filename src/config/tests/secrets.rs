//! Promises about secrets and about files.

use super::*;

const NEVER_SHOWN: [&str; 4] = ["do-not-show", "MDEyMzQ1", "hunter2", "whsec_MD"];

fn assert_silent(shown: &str) {
    for secret in NEVER_SHOWN {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[test]
fn a_configuration_can_be_shown() {
    let config = good(&[]);
    assert_silent(&format!("{config:?}"));
    assert_silent(&format!("{config:#?}"));
}

#[test]
fn no_output_of_settings_shows_a_secret() {
    let headers = "bearer_token = \"hunter2-bearer\"\nheaders = { x-tenant = \"hunter2-header\" }\n";
    let proxy = "proxy = \"http://proxy.internal:3128\"\nproxy_username = \"u\"\nproxy_password = \"hunter2-proxy\"\n";
    let otlp = "[log]\notlp_endpoint = \"http://127.0.0.1:4318\"\notlp_headers = \"authorization=hunter2-otlp\"\n";
    let config = load(&format!("{GOOD}{headers}{proxy}{otlp}"), &[]).unwrap_or_else(|error| panic!("{error}"));
    let SinkSettings::Webhook(webhook) = &config.sinks["hook"].settings else { panic!("{config:?}") };
    assert_eq!(
        (config.accounts[&AccountName::default()].client.api_keys[0].expose(), webhook.headers.len()),
        ("sk-0123-do-not-show", 2)
    );

    let shown = [
        format!("{config:?} {config:#?} {:?} {:?}", config.accounts, config.otlp),
        format!("{webhook:?} {:?} {:?} {:?}", webhook.keys, webhook.headers, webhook.connection),
        settings_list::object(config.sinks["hook"].shown()).to_string(),
        serde_json::to_string(&config.changes_to(&good(&[]))).expect("JSON"),
    ];
    // A user's name and password are sent as Base64.
    let encoded = ["dTpodW50ZXIyLXByb3h5", "hunter2"];
    for shown in shown {
        assert_silent(&shown);
        assert!(!encoded.iter().any(|secret| shown.contains(secret)), "{shown}");
    }
}

#[test]
fn problems_do_not_quote_secrets_however_wrong_they_are() {
    let cases = [
        with("api", "api_key", "\"hunter2 do-not-show\""),
        with("api", "api_key", "[\"hunter2\"]"),
        with("api", "base_url", "\"https://user:hunter2@host/v1\""),
        with("api", "base_url", "\"https://:hunter2@:x/v1\""),
        with("api", "api_kye", "\"hunter2\""),
        with("sinks.hook", "secret", "\"hunter2\""),
        with("log", "otlp_headers", "\"hunter2\""),
        with("log", "otlp_headers", "\"authorization=hunter2\\u0007\""),
        with("sinks.hook", "secret", "\"whsec_MDEyMw==\""),
        with("sinks.hook", "secret_file", "\"hunter2\"").replace("\nsecret = ", "\n#"),
        with("sinks.hook", "url", "\"ledger?token=hunter2\""),
        with("sinks.hook", "secret", "hunter2"),
        with("sinks.hook", "secret", "\"hunter2"),
        with("sinks.hook", "secret", "'hunter2' hunter2"),
        format!("{GOOD}\nsecret = \"hunter2\""),
    ];
    for text in cases {
        let error = load(&text, &[]).expect_err(&text);
        assert_silent(&error.to_string());
        assert_silent(&format!("{error:?}"));
    }
}

#[test]
fn a_file_that_is_not_toml_is_reported_with_its_line() {
    let cases = [("a = 1\nb = \n", "line 2"), ("[api]\n\n[api]\n", "line 3"), ("x", "line 1")];
    for (text, line) in cases {
        let error = load(text, &[]).expect_err(text);
        assert_eq!(keys_of(&error), ["--config"]);
        assert!(error.problems[0].message.starts_with(line), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_the_only_problem() {
    let directory = TempDir::new().expect("a temporary directory");
    let (large, binary) = (directory.path().join("large"), directory.path().join("binary"));
    fs::write(&large, vec![b'#'; 1024 * 1024 + 1]).expect("a file");
    fs::write(&binary, [0xff, 0xfe]).expect("a file");
    let missing = directory.path().join("missing");
    let cases = [
        (&*missing, "cannot be opened"),
        (directory.path(), "is not a regular file"),
        (&large, "1024 KiB"),
        (&binary, "UTF-8"),
    ];
    for (path, message) in cases {
        let error = Config::load(Some(path)).expect_err(message);
        assert_eq!(keys_of(&error), ["--config"]);
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn a_secret_file_gives_its_content_without_the_line_break() {
    let directory = TempDir::new().expect("a temporary directory");
    let key = directory.path().join("key");
    let text = GOOD.replace("api_key = \"sk-0123-do-not-show\"", &format!("api_key_file = {key:?}"));
    for (content, expected) in [("k1", "k1"), ("k2\n", "k2"), ("k3\r\n", "k3")] {
        fs::write(&key, content).expect("a file");
        let config = load(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.accounts[&AccountName::default()].client.api_keys[0].expose(), expected);
    }
    for (content, message) in [("", "is empty"), ("\n", "is empty"), ("hunter2 \n", "visible ASCII")] {
        fs::write(&key, content).expect("a file");
        let error = load(&text, &[]).expect_err(message);
        assert_eq!(keys_of(&error), ["api.api_key_file"]);
        assert!(error.to_string().contains(message), "{error}");
        assert_silent(&error.to_string());
    }
    fs::remove_file(&key).expect("it was there");
    let error = load(&text, &[]).expect_err("no file");
    assert_eq!(keys_of(&error), ["api.api_key_file"]);
    assert!(error.to_string().contains("cannot be opened"), "{error}");
    assert_eq!(
        load(&text, &[("CHANNELD_API__API_KEY", "k4")]).expect("the variable").accounts[&AccountName::default()]
            .client
            .api_keys[0]
            .expose(),
        "k4"
    );
}

/// A configuration with the files of these keys.
fn with_keys(directory: &TempDir, keys: &[&str]) -> String {
    let file = |(number, key): (usize, &&str)| {
        let path = directory.path().join(format!("key-{number}"));
        fs::write(&path, key).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its own");
        path
    };
    let files: Vec<_> = keys.iter().enumerate().map(file).collect();
    GOOD.replace("api_key = \"sk-0123-do-not-show\"", &format!("api_key_files = {files:?}"))
}

#[test]
fn several_keys_keep_their_order_and_exclude_a_single_key() {
    let directory = TempDir::new().expect("a temporary directory");
    let text = with_keys(&directory, &["k2\n", "k1\n"]);
    let keys = |text: &str, variables: &[(&str, &str)]| {
        let config = load(text, variables).unwrap_or_else(|error| panic!("{error}"));
        config.accounts[&AccountName::default()]
            .client
            .api_keys
            .iter()
            .map(|key| key.expose().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&text, &[]), ["k2", "k1"]);
    assert_eq!(keys(&text, &[("CHANNELD_API__API_KEY", "k3")]), ["k3"], "a variable takes precedence");
    let path = directory.path().join("key-1").display().to_string();
    assert_eq!(keys(&text, &[("CHANNELD_API__API_KEY_FILE", &path)]), ["k1"]);
    assert_eq!(keys(GOOD, &[("CHANNELD_API__API_KEY_FILES", &format!("{path},{path}"))]), ["k1", "k1"]);

    let mistake = |text: &str| load(text, &[]).expect_err(text).to_string();
    let both = mistake(&text.replace("[api]", "[api]\napi_key_file = \"/nowhere\""));
    assert!(both.contains("api.api_key_file") && both.contains("is set together with api.api_key_files"), "{both}");
    let empty = mistake(&with_keys(&directory, &[]));
    assert!(empty.contains("api.api_key_files") && empty.contains("is empty; name the file of a key"), "{empty}");
    let spaces = mistake(&with_keys(&directory, &["k1", "hunter2 x"]));
    assert!(spaces.contains("item 2 of the list: must be visible ASCII"), "{spaces}");
    assert_silent(&spaces);
    let many = mistake(&with_keys(&directory, &["k"; 9]));
    assert!(many.contains("names more than 8 files"), "{many}");
}

#[test]
fn the_expiry_of_a_key_is_a_day_or_a_time_and_a_note_if_it_is_soon() {
    let read =
        |value: &str| load(&with("api", "api_key_expires", value), &[]).unwrap_or_else(|error| panic!("{error}"));
    for value in ["2100-03-01", "\"2100-03-01\"", "2100-03-01T00:00:00Z", "\"2100-03-01T01:00:00+01:00\""] {
        let expires = read(value).accounts[&AccountName::default()].key_expires.expect(value);
        assert_eq!(expires.to_string(), "2100-03-01T00:00:00Z", "{value}");
    }
    let notes = |value: &str| read(value).notes.into_iter().filter(|note| note.contains("api_key_expires")).count();
    assert_eq!((notes("2100-03-01"), notes("2026-01-01")), (0, 1));
    assert_eq!(good(&[]).accounts[&AccountName::default()].key_expires, None);
    assert_eq!(
        good(&[("CHANNELD_API__API_KEY_EXPIRES", "2100-03-01")]).accounts[&AccountName::default()].key_expires,
        read("2100-03-01").accounts[&AccountName::default()].key_expires
    );
}

#[test]
fn headers_for_the_collector_of_traces_are_read_as_opentelemetry_writes_them() {
    let text = with("log", "otlp_headers", "\"x-tenant = treasury, authorization=Basic aHVudGVyMg==,\"");
    let config = load(&text, &[("CHANNELD_LOG__OTLP_ENDPOINT", "http://127.0.0.1:4318")]).expect("a collector");
    let otlp = config.otlp.expect("it is named");
    let headers = ["x-tenant", "authorization"].map(|name| otlp.headers[name].to_str().expect("visible ASCII"));
    assert_eq!(headers, ["treasury", "Basic aHVudGVyMg=="]);
    let shown = format!("{otlp:?} {otlp:#?}");
    assert!(!shown.contains("treasury") && !shown.contains("aHVudGVyMg"), "{shown}");
    assert_eq!(good(&[]).otlp, None);
    let error = load(GOOD, &[("CHANNELD_LOG__OTLP_ENDPOINT", "127.0.0.1:4318")]).expect_err("no URL");
    assert_eq!(keys_of(&error), ["log.otlp_endpoint"]);
}

#[test]
fn a_program_prints_a_secret_instead_of_a_file() {
    let directory = TempDir::new().expect("a temporary directory");
    let (helper, runs) = (directory.path().join("helper"), directory.path().join("runs"));
    let script = format!("#!/bin/sh\necho run >>{}\nprintf '%s\\n' \"$1\"\n", runs.display());
    fs::write(&helper, script).expect("a file");
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o700)).expect("its own");
    let helper = helper.display().to_string();
    let key = |words: &str| GOOD.replace("api_key = \"sk-0123-do-not-show\"", &format!("api_key_command = {words}"));
    let twice = format!("{}bearer_token_command = [{helper:?}, \"k1\"]\n", key(&format!("[{helper:?}, \"k1\"]")));
    let config = load(&twice, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.accounts[&AccountName::default()].client.api_keys[0].expose(), "k1");
    assert_eq!(fs::read_to_string(&runs).expect("it ran"), "run\n", "the same command runs once");

    for (words, message) in [
        (format!("[{helper:?}, \"hunter2 do-not-show\"]"), "must be visible ASCII"),
        (format!("[{helper:?}, \"\"]"), "printed no secret"),
        ("[]".to_owned(), "is empty"),
        ("\"hunter2\"".to_owned(), "cannot be started"),
        ("{ program = \"hunter2\" }".to_owned(), "api.api_key_command"),
    ] {
        let error = load(&key(&words), &[]).expect_err(&words);
        assert!(error.problems.iter().all(|problem| problem.key.starts_with("api.api_key")), "{error}");
        assert!(error.to_string().contains(message), "{error}");
        assert_silent(&error.to_string());
    }
    let error = load(&key(&format!("[{helper:?}, \"k1\"]\napi_key_file = \"/k\"")), &[]).expect_err("two sources");
    assert_eq!(keys_of(&error), ["api.api_key_file"]);
    assert!(error.to_string().contains("api.api_key_command"), "{error}");
    let variables = [("CHANNELD_API__API_KEY_COMMAND", &*format!("{helper},k2"))];
    assert_eq!(
        load(GOOD, &variables).expect("the variable").accounts[&AccountName::default()].client.api_keys[0].expose(),
        "k2"
    );
}

#[test]
fn every_secret_can_come_from_a_program() {
    let text = format!(
        "{}username = \"u\"\npassword_command = [\"echo\", \"p\"]\nurl_command = [\"echo\", \"https://h.internal/\"]\n\
         header_commands.X-A = [\"echo\", \"v\"]\n[sinks.t]\ntype = \"stdout\"\nformat = \"template\"\n\
         template = \"pagerduty\"\nfilter = \"failures\"\ntemplate_value_commands.routing_key = [\"echo\", \"r\"]\n",
        GOOD.replace("url = ", "#")
    );
    let config = load(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let SinkSettings::Webhook(webhook) = &config.sinks["hook"].settings else { panic!("{config:?}") };
    assert_eq!((webhook.url.as_str(), webhook.secret_url, webhook.headers.len()), ("https://h.internal/", true, 2));
    assert!(config.sinks["t"].shape.template.is_some());
}
