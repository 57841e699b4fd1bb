//! The promises of loading to an operator: every mistake is named, and no secret is shown.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use ::channel::{Ordering, Start, UnsignedPolicy};
use ::sink::{Access, FileSettings};

mod accounts;
mod built_in;
mod documents;
mod effective;
mod environment;
mod files;
mod kafka;
mod nats;
mod routing;
mod secrets;
mod state;
mod tables;
mod webhooks;

/// Whether this build can produce to Kafka.
const HAS_KAFKA: bool = cfg!(feature = "kafka");

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

/// A file sink's settings with only a path.
fn file_at(path: &str) -> FileSettings {
    FileSettings { path: path.into(), access: Access::default(), rotation: None }
}

/// Loads a file with this text and these variables.
fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("channeld.toml");
    fs::write(&file, text).expect("a file in it");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its own");
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Config::of(ConfigText::read(Some(&file))?, variables).map(|loaded| loaded.config)
}

fn good(variables: &[(&str, &str)]) -> Config {
    load(GOOD, variables).unwrap_or_else(|error| panic!("{error}"))
}

fn keys_of(error: &ConfigError) -> Vec<&str> {
    error.problems.iter().map(|problem| problem.key.as_str()).collect()
}

/// `GOOD` with the line of `key` in `[table]` replaced, or added if it is missing.
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
    lines.join("\n") + "\n"
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
        ("api", "requests_per_second", "-1", "api.requests_per_second"),
        ("api", "requests_per_second", "1001", "api.requests_per_second"),
        ("api", "requests_per_second", "\"10/s\"", "api.requests_per_second"),
        ("api", "connect_timeout", "\"0s\"", "api.connect_timeout"),
        ("api", "request_timeout", "30", "api.request_timeout"),
        ("api", "request_timeout", "\"9000h\"", "api.request_timeout"),
        ("api", "retry_wait", "\"2m\"", "api.retry_wait"),
        ("api", "retry_wait", "\"0s\"", "api.retry_wait"),
        ("api", "idle_wait", "\"0s\"", "api.idle_wait"),
        ("api", "idle_wiat", "\"1s\"", "api.idle_wiat"),
        ("verification", "workflow_owner", "\"0x00\"", "verification.org_id"),
        ("verification", "org_id", "\" org_1\"", "verification.org_id"),
        ("verification", "org_id", "\"org_…\"", "verification.org_id"),
        ("verification", "org_id", "\"org_2abcDEFghiJKLmno\"", "verification.org_id"),
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
        ("channels.a", "start", "\"yesterday\"", "channels.a.start"),
        ("channels.a.verification", "min_required_signatures", "11", "channels.a.verification.min_required_signatures"),
        ("channels.a.verification", "signers", "[]", "channels.a.verification.signers"),
        ("channels", "b", "5", "channels.b"),
        ("channels.a", "verification", "\"strict\"", "channels.a.verification"),
        ("", "log", "\"info\"", "log"),
        ("sinks.out", "type", "\"pigeon\"", "sinks.out.type"),
        ("sinks.out", "path", "\"/tmp/x\"", "sinks.out.path"),
        ("sinks.hook", "url", "\"ledger\"", "sinks.hook.url"),
        ("sinks.hook", "url", "\"https://u:p@ledger/\"", "sinks.hook.url"),
        ("sinks.hook", "secret", "\"hunter2\"", "sinks.hook.secret"),
        ("sinks.hook", "secret", "\"whsec_MDEyMw==\"", "sinks.hook.secret"),
        ("sinks.hook", "secret_file", "\"/etc/secret\"", "sinks.hook.secret"),
        ("sinks.hook", "timeout", "\"0s\"", "sinks.hook.timeout"),
        ("sinks.hook", "retry_wait", "\"61m\"", "sinks.hook.retry_wait"),
        ("sinks.\"a b\"", "type", "\"stdout\"", "sinks.\"a b\""),
        ("sinks.a__b", "type", "\"stdout\"", "sinks.a__b"),
        ("sinks.file", "type", "\"file\"", "sinks.file.path"),
        ("chanels.b", "id", "\"x\"", "chanels"),
    ];
    for (table, key, value, expected) in cases {
        let error = load(&with(table, key, value), &[]).expect_err(&format!("[{table}] {key} = {value}"));
        assert_eq!(keys_of(&error), [expected], "[{table}] {key} = {value}\n{error}");
        assert!(!error.problems[0].message.is_empty());
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = r#"
        shutdown_grace = "soon"
        [api]
        base_url = "gopher://host"
        page_limit = 500
        idle_wait = "0s"
        api_key = "k"
        [verification]
        org_id = "org_1"
        min_required_signatures = 0
        ordering = "none"
        [log]
        format = "xml"
        [admin]
        lisen = "127.0.0.1:1"
        [channels.a]
        id = "?"
        sinks = ["out"]
    "#;
    let error = load(text, &[]).expect_err("ten mistakes");
    assert_eq!(
        keys_of(&error),
        [
            "api.base_url",
            "api.page_limit",
            "api.idle_wait",
            "log.format",
            "shutdown_grace",
            "channels.a.id",
            "verification.min_required_signatures",
            "verification.ordering",
            "channels.a.sinks",
            "admin.lisen",
        ],
        "{error}"
    );
    assert_eq!(error.to_string().lines().count(), 10);
}

#[test]
fn missing_keys_are_named() {
    let error = load("", &[]).expect_err("nothing is set");
    assert_eq!(keys_of(&error), ["api.api_key", "channels"], "{error}");

    let error = load("[api]\napi_key = \"k\"\n[channels.a]\n[sinks.s]\n", &[]).expect_err("tables are empty");
    let expected = ["channels.a.id", "channels.a.sinks", "verification.org_id", "sinks.s.type"];
    assert_eq!(keys_of(&error), expected, "{error}");
}

#[test]
fn a_similar_key_is_suggested() {
    let cases = [
        (with("api", "idle_wiat", "\"1s\""), "api.idle_wait"),
        (with("", "page_limit", "5"), "api.page_limit"),
        (with("chanels.b", "id", "\"x\""), "channels"),
        (with("channels.a", "strat", "\"latest\""), "channels.a.start"),
        (with("channels.a", "ordering", "\"strict\""), "channels.a.verification.ordering"),
    ];
    for (text, meant) in cases {
        let error = load(&text, &[]).expect_err(meant);
        assert!(error.to_string().contains(&format!("did you mean {meant}?")), "{error}");
    }
}

#[test]
fn a_repeated_signer_is_a_problem_in_any_letter_case() {
    let signers = "[\"0xff9b062fccb2f042311343048b9518068370f837\", \"0xFF9B062FCCB2F042311343048B9518068370F837\"]";
    let error = load(&with("verification", "valid_signers", signers), &[]).expect_err("one signer twice");
    assert_eq!(keys_of(&error), ["verification.valid_signers"]);
    assert!(error.to_string().contains("0xff9b062fccb2f042311343048b9518068370f837 twice"), "{error}");
}

#[test]
fn extra_signers_can_be_named_and_names_are_checked() {
    let (own, published) = ("0x00000000000000000000000000000000000000aB", "0xFF9B062fccb2f042311343048b9518068370f837");
    let names = |text: &str| load(&format!("{GOOD}[verification.signer_names]\n{text}"), &[]);
    let config = names(&format!("{own:?} = \"ours\"\n{published:?} = \"our name for it\"\n")).expect("two names");
    let name = |signer: &str| config.signer_names.get(&signer.parse().unwrap()).cloned();
    assert_eq!(name(&own.to_lowercase()).as_deref(), Some("ours"));
    assert_eq!(name(published).as_deref(), Some("our name for it"));
    assert_eq!(name("0xe55fcaf921e76c6bbcf9415bba12b1236f07b0c3").as_deref(), Some("CLP"));
    assert_eq!(name("0x00000000000000000000000000000000000000ac"), None);
    for wrong in
        ["\"0x12\" = \"short\"", &format!("{own:?} = \"\""), &format!("{own:?} = 7"), &format!("{own:?} = \"a\\nb\"")]
    {
        let error = names(wrong).expect_err(wrong);
        assert!(keys_of(&error)[0].starts_with("verification.signer_names."), "{error}");
    }
    let of_a_channel = format!("{GOOD}[channels.a.verification.signer_names]\n{own:?} = \"ours\"\n");
    assert!(load(&of_a_channel, &[]).is_err(), "they are for all channels alike");
}

#[test]
fn explorers_are_addresses_of_networks() {
    let explorers = |line: &str| load(&format!("{GOOD}[console.explorers]\n{line}\n"), &[]);
    let config = explorers("\"16015286601757825753\" = \"https://sepolia.etherscan.io/\"").expect("an explorer");
    assert_eq!(config.explorers[&16_015_286_601_757_825_753], "https://sepolia.etherscan.io");
    for wrong in [
        "\"Sepolia\" = \"https://a.example\"",
        "\"1\" = \"javascript:x\"",
        "\"1\" = \"https://a.example/?q=\"",
        "\"1\" = 7",
    ] {
        let error = explorers(wrong).expect_err(wrong);
        assert!(keys_of(&error)[0].starts_with("console.explorers."), "{error}");
    }
}

#[test]
fn duplicate_channels_and_files_are_refused() {
    let again = "[channels.b]\nid = \"7C9E6679-7425-40DE-944B-E07FC1F90AE7\"\nsinks = [\"f\", \"g\"]\n";
    let files = "[sinks.f]\ntype = \"file\"\npath = \"/f\"\n[sinks.g]\ntype = \"file\"\npath = \"/f\"\n";
    let error = load(&format!("{GOOD}{again}{files}"), &[]).expect_err("two pairs");
    assert_eq!(keys_of(&error), ["channels.b.id", "sinks.g.path"], "{error}");
}

#[test]
fn a_problem_above_the_channels_is_reported_once() {
    let more = "[channels.b]\nid = \"7c9e6679-7425-40de-944b-e07fc1f90ae8\"\nsinks = [\"out\"]\n";
    let text = format!("{}{more}", with("verification", "min_required_signatures", "11"));
    let error = load(&text, &[]).expect_err("eleven of ten");
    assert_eq!(keys_of(&error), ["verification.min_required_signatures"]);
    let expected = "11 signatures are required, but only 10 signers are listed; lower this number, or list more signers in valid_signers";
    assert_eq!(error.problems[0].message, expected);
}

#[test]
fn unset_keys_have_their_defaults() {
    let config = load(GOOD, &[]).expect("valid");
    let channel = &config.channels[0];
    assert_eq!(
        config.accounts[&AccountName::default()].client.base_url.as_str(),
        "https://cre-connect.api.chain.link/v1"
    );
    assert_eq!((config.api.page_limit, config.api.idle_wait), (200, Duration::from_secs(5)));
    assert_eq!(config.listen.map(|listen| listen.to_string()).as_deref(), Some("127.0.0.1:9464"));
    assert_eq!((channel.start, &*channel.channel.name), (Start::Earliest, "a"));
    let signers = &channel.verification.verifier.signers;
    assert_eq!((signers.required(), signers.addresses().len()), (4, 10));
    assert_eq!(channel.verification.verifier.workflow_owner, proof::verify::workflow_owner("org_1", "1"));
    assert!(config.notes.is_empty());
}

#[test]
fn values_are_read_in_every_accepted_notation() {
    let cases = [
        ("api", "base_url", "\"http://localhost:8080/v1//\""),
        ("admin", "listen", "\"\""),
        ("channels.a", "start", "15520"),
        ("channels.a", "sinks", "\"hook, out\""),
        ("verification", "tenant_id", "7"),
    ];
    let [base, admin, start, sinks, tenant] =
        cases.map(|(table, key, value)| load(&with(table, key, value), &[]).unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(base.accounts[&AccountName::default()].client.base_url.as_str(), "http://localhost:8080/v1");
    assert_eq!(admin.listen, None);
    assert_eq!(Some(start.channels[0].start), proof::event::Offset::new(15520).map(Start::Offset));
    assert_eq!(sinks.channels[0].sinks, ["hook", "out"]);
    let owner = tenant.channels[0].verification.verifier.workflow_owner;
    assert_eq!(owner, proof::verify::workflow_owner("org_1", "7"));
}

#[test]
fn a_start_is_a_time_if_it_is_not_a_plain_number() {
    for (value, shown) in [
        ("\"2026-11-01\"", "2026-11-01T00:00:00Z"),
        ("\"2026-11-01T00:00:00Z\"", "2026-11-01T00:00:00Z"),
        ("\"@1793491200\"", "2026-11-01T00:00:00Z"),
        ("\"7d\"", "168h"),
    ] {
        let config = load(&with("channels.a", "start", value), &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.channels[0].start, Start::Time(shown.parse().unwrap()), "{value}");
        let start = config.channels[0].shown().into_iter().find(|(name, _)| *name == "start");
        assert_eq!(start.unwrap().1, shown, "{value}");
    }
    for (value, expected) in [("1793491200", "1793491200"), ("\"1793491200\"", "1793491200")] {
        let config = load(&with("channels.a", "start", value), &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.channels[0].start, Start::Offset(expected.parse().unwrap()), "{value}");
    }
    // The clock of the machine can be wrong, so this is no mistake.
    let config = load(&with("channels.a", "start", "\"2999-01-01\""), &[]).unwrap_or_else(|error| panic!("{error}"));
    assert!(config.notes[0].contains("channels.a.start: is in the future"), "{:?}", config.notes);
}

#[test]
fn a_channel_overrides_verification_key_by_key() {
    let owner = "0x00000000000000000000000000000000000000aa";
    let text = with("channels.a.verification", "workflow_owner", &format!("{owner:?}"));
    let config = load(&format!("{text}unsigned = \"drop\"\n"), &[]).expect("one owner a level");
    let verification = &config.channels[0].verification;
    assert_eq!(verification.verifier.workflow_owner.to_string(), owner);
    assert_eq!((verification.unsigned, verification.ordering), (UnsignedPolicy::Drop, Ordering::Available));

    let text = GOOD.replace("org_id = \"org_1\"", &format!("workflow_owner = {owner:?}"));
    let config = load(&format!("{text}[channels.a.verification]\norg_id = \"org_2\"\n"), &[]).expect("the other way");
    let found = config.channels[0].verification.verifier.workflow_owner;
    assert_eq!(found, proof::verify::workflow_owner("org_2", "1"));
}

#[test]
fn an_unused_sink_and_a_missing_directory_are_accepted() {
    let text = format!("{GOOD}[sinks.spare]\ntype = \"file\"\npath = \"/nowhere/yet/events.jsonl\"\n");
    let config = load(&text, &[]).expect("valid");
    assert_eq!(config.notes, ["sinks.spare: no channel uses this sink"]);
    assert_eq!(config.sinks["spare"].settings, SinkSettings::File(file_at("/nowhere/yet/events.jsonl")));
}

#[test]
fn flags_obey_the_same_rules() {
    let verifier = verification_from_flags([("--org-id", Some("org_1"))]);
    let expected = good(&[]).channels[0].verification.verifier.clone();
    assert_eq!(verifier.expect("defaults for the rest"), *expected);

    let flags = [
        ("--valid-signers", Some("0xff9b062fccb2f042311343048b9518068370f837,nobody")),
        ("--min-required-signatures", Some("0")),
        ("--org-id", Some("org_1")),
        ("--workflow-owner", Some("0x00000000000000000000000000000000000000aa")),
        ("--tenant-id", None),
    ];
    let error = verification_from_flags(flags).expect_err("three mistakes");
    let expected = ["verification.org_id", "verification.valid_signers", "verification.min_required_signatures"];
    assert_eq!(keys_of(&error), expected);
    assert_eq!(error.problems[1].origin.as_deref(), Some("flag --valid-signers"));
}

#[test]
fn a_thousand_channels_are_accepted() {
    let channel = |number: u32| {
        let id = uuid::Uuid::from_u128(number.into());
        format!("[channels.channel-of-a-customer-{number}]\nid = \"{id}\"\nsinks = [\"out\", \"hook\"]\n")
    };
    let text: String = (1..=1000).map(channel).collect();
    let config = load(&format!("{GOOD}{text}"), &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.channels.len(), 1001);
}

#[test]
fn the_published_production_values_are_the_defaults() {
    let verifier = good(&[]).channels[0].verification.verifier.clone();
    let addresses = verifier.signers.addresses();
    let signers = addresses.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let published = [
        "0xff9b062fccb2f042311343048b9518068370f837",
        "0xe55fcaf921e76c6bbcf9415bba12b1236f07b0c3",
        "0x4d6cfd44f94408a39fb1af94a53c107a730ba161",
        "0xde5cd1dd4300a0b4854f8223add60d20e1dfe21b",
        "0xf3baa9a99b5ad64f50779f449bac83baac8bfdb6",
        "0xd7f22fb5382ff477d2ff5c702cab0ef8abf18233",
        "0xcdf20f8ffd41b02c680988b20e68735cc8c1ca17",
        "0x4d7d71c7e584cfa1f5c06275e5d283b9d3176924",
        "0xedf4bc027a750d1a88b8ca3ec5e8a5506f6019be",
        "0x4f99b550623e77b807df7cbed9c79d55e1163b48",
    ];
    assert_eq!((verifier.signers.required(), signers), (4, published.map(str::to_owned).into()));
    let known = good(&[]).signer_names;
    let name = |address: &str| known.get(&address.parse().unwrap()).cloned().unwrap_or_default();
    let names = "Chainlayer CLP Dextrac Fiews Inotel LinkForest LinkPool LinkRiver PierTwo SimplyVC";
    assert_eq!(published.map(name).join(" "), names);
    assert_eq!(name("0x1a89c98e75983ec384ad8e83eaf7d0176eeaf155"), "PierTwo, before");
    let with_tenant = load(&with("verification", "tenant_id", "\"1\""), &[]).expect("the default tenant");
    assert_eq!(with_tenant.channels[0].verification.verifier.workflow_owner, verifier.workflow_owner);
    let other = load(&with("verification", "tenant_id", "\"3\""), &[]).expect("another tenant");
    assert_ne!(other.channels[0].verification.verifier.workflow_owner, verifier.workflow_owner);
}
