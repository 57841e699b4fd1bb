//! Accounts: the keys that they inherit, the keys that they replace, and the mistakes that are found. Also
//! `don`, which is used as a whole.

use std::time::Duration;

use super::*;
use net::turns::Rate;
use proof::verify::workflow_owner;

const SIGNERS: &str = r#"["0xff9b062fccb2f042311343048b9518068370f837", "0xe55fcaf921e76c6bbcf9415bba12b1236f07b0c3"]"#;

/// The channel `a` uses the account `fund`, and the channel `b` uses none.
fn two_accounts(fund: &str) -> String {
    let channel = "[channels.b]\nid = \"d290f1ee-6c54-4b01-90e6-d701748f0851\"\nsinks = [\"out\"]\n";
    with("channels.a", "account", "\"fund\"") + channel + "[accounts.fund]\n" + fund
}

fn loaded(text: &str) -> Config {
    load(text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn don(signatures: &str) -> String {
    format!("{{ tenant_id = \"3\", min_required_signatures = {signatures}, valid_signers = {SIGNERS} }}")
}

/// The owner, the required signatures and the number of signers of the channel with this number.
fn trust(config: &Config, channel: usize) -> (String, usize, usize) {
    let verifier = &config.channels[channel].verification.verifier;
    (verifier.workflow_owner.to_string(), verifier.signers.required(), verifier.signers.addresses().len())
}

#[test]
fn an_account_inherits_what_it_does_not_set() {
    let config = loaded(&two_accounts(""));
    let [api, fund] = [AccountName::default(), AccountName::new("fund")].map(|name| config.accounts[&name].clone());
    assert_eq!(fund.client, api::Settings { account: AccountName::new("fund"), ..api.client.clone() });
    assert_eq!((fund.rate, fund.key_expires), (api.rate, api.key_expires));
    assert_eq!(trust(&config, 0), trust(&config, 1));
    assert_eq!(config.channels.iter().map(|it| it.account.to_string()).collect::<Vec<_>>(), ["accounts.fund", "api"]);
    assert_eq!(config.notes, Vec::<String>::new());
}

#[test]
fn an_account_has_its_own_address_key_limit_organization_and_network() {
    let fund = format!(
        "base_url = \"http://localhost:1/v1/\"\napi_key = \"fund-do-not-show\"\nrequests_per_second = 5\norg_id = \"org_2\"\n\
         tenant_id = \"3\"\nmin_required_signatures = 2\nvalid_signers = {SIGNERS}\n"
    );
    let text = two_accounts(&fund).replace("[verification]", "api_key_expires = 2100-03-01\n[verification]");
    let config = loaded(&text);
    let [api, fund] = [AccountName::default(), AccountName::new("fund")].map(|name| &config.accounts[&name]);
    assert_eq!(fund.client.base_url.as_str(), "http://localhost:1/v1");
    assert_eq!(fund.client.api_keys[0].expose(), "fund-do-not-show");
    assert_eq!(fund.rate, Some(Rate { requests: 5, per: Duration::from_secs(1) }));
    assert_eq!(fund.key_expires, None, "the date belongs to the other key");
    assert_eq!(api.client.api_keys[0].expose(), "sk-0123-do-not-show");
    assert!(api.rate.is_none() && api.key_expires.is_some());
    assert_eq!(trust(&config, 0), (workflow_owner("org_2", "3").to_string(), 2, 2));
    assert_eq!(trust(&config, 1), (workflow_owner("org_1", "1").to_string(), 4, 10));
    assert!(!format!("{config:?}").contains("do-not-show"));
    let differences = loaded(&two_accounts("")).published().differences(&config.published());
    let keys: BTreeSet<_> = differences.into_iter().map(|(_, key)| key).collect();
    let expected = ["min_required_signatures", "valid_signers", "workflow_owner"];
    assert_eq!(keys, expected.map(|key| format!("verification.{key}")).into(), "instances compare them");
}

#[test]
fn a_channel_overrides_its_account() {
    let own = "[channels.a.verification]\norg_id = \"org_3\"\nmin_required_signatures = 1\n";
    let config = loaded(&(two_accounts("org_id = \"org_2\"\ntenant_id = \"3\"\n") + own));
    assert_eq!(trust(&config, 0), (workflow_owner("org_3", "3").to_string(), 1, 10));
}

#[test]
fn the_default_account_needs_a_key_only_if_a_channel_uses_it() {
    let all_in_fund = with("channels.a", "account", "\"fund\"").replace("api_key = \"sk-0123-do-not-show\"\n", "");
    let fund = "[accounts.fund]\napi_key = \"k\"\n";
    let config = loaded(&format!("{all_in_fund}{fund}"));
    assert_eq!(config.accounts.keys().map(ToString::to_string).collect::<Vec<_>>(), ["accounts.fund"]);
    let error = load(&format!("{all_in_fund}[accounts.fund]\norg_id = \"org_2\"\n"), &[]).expect_err("no key");
    assert_eq!(keys_of(&error), ["accounts.fund.api_key"]);
    let other = "[channels.b]\nid = \"d290f1ee-6c54-4b01-90e6-d701748f0851\"\nsinks = [\"out\"]\n";
    let error = load(&format!("{all_in_fund}{fund}{other}"), &[]).expect_err("no key");
    assert_eq!(keys_of(&error), ["api.api_key"]);
}

#[test]
fn mistakes_in_accounts_are_found_under_their_keys() {
    for (fund, key, says) in [
        ("api_key = \"k\"\napi_key_file = \"/k\"", "accounts.fund.api_key", "keep one of the two"),
        ("api_key_file = \"/nowhere\"", "accounts.fund.api_key_file", ""),
        ("base_url = \"ftp://x\"", "accounts.fund.base_url", "https://"),
        ("requests_per_second = 1001", "accounts.fund.requests_per_second", "from 0 to 1000"),
        ("idle_wait = \"5s\"", "accounts.fund.idle_wait", "not a known key"),
        ("unsigned = \"drop\"", "accounts.fund.unsigned", "not a known key"),
        ("org_id = \"org_…\"", "accounts.fund.org_id", "placeholder"),
        ("org_id = \"o\"\nworkflow_owner = \"0x00\"", "accounts.fund.org_id", "is set together with"),
        ("min_required_signatures = 11", "accounts.fund.min_required_signatures", "lower this number"),
    ] {
        let error = load(&two_accounts(fund), &[]).expect_err(fund);
        assert_eq!(keys_of(&error), [key], "{error}");
        assert!(error.to_string().contains(says), "{error}");
        // The account is checked even if no channel uses it.
        let unused = two_accounts(fund).replace("account = \"fund\"\n", "");
        assert_eq!(keys_of(&load(&unused, &[]).expect_err(fund)), [key]);
    }
    let error = load(&with("channels.a", "account", "\"fund\""), &[]).expect_err("no account");
    assert_eq!(keys_of(&error), ["channels.a.account"]);
    let unknown = two_accounts("").replace("account = \"fund\"", "account = \"found\"");
    assert!(load(&unknown, &[]).expect_err("another account").to_string().contains("defined accounts: fund"));
    let name = two_accounts("").replace("[accounts.fund]", "[accounts.fund]\n[accounts.\"a b\"]");
    assert_eq!(keys_of(&load(&name, &[]).expect_err("a name")), ["accounts.\"a b\""]);
    let unused = loaded(&two_accounts("").replace("account = \"fund\"\n", ""));
    assert_eq!(unused.notes, ["accounts.fund: no channel uses this account"]);
    let without_owner = two_accounts("").replace("org_id = \"org_1\"\n", "");
    let keys: BTreeSet<_> =
        load(&without_owner, &[]).expect_err("no owner").problems.into_iter().map(|it| it.key).collect();
    assert_eq!(keys, ["accounts.fund.org_id", "verification.org_id"].map(str::to_owned).into());
}

#[test]
fn a_don_replaces_the_three_keys_in_each_table() {
    let expected = |org| (workflow_owner(org, "3").to_string(), 2, 2);
    let config = loaded(&with("verification", "don", &don("2")));
    assert_eq!(trust(&config, 0), expected("org_1"));
    let config = loaded(&two_accounts(&format!("don = {}\norg_id = \"org_2\"\n", don("2"))));
    assert_eq!((trust(&config, 0), trust(&config, 1).2), (expected("org_2"), 10));
    // The own value of a channel replaces single keys and values of the tables below it.
    let own = format!("[channels.a.verification]\ndon = {}\n", don("2"));
    for fund in [format!("don = {}\n", don("1")), "min_required_signatures = 3\n".to_owned()] {
        assert_eq!(trust(&loaded(&(two_accounts(&fund) + &own)), 0), expected("org_1"));
    }
    let variables = [("CHANNELD_VERIFICATION__DON__MIN_REQUIRED_SIGNATURES", "1")];
    let config = load(&with("verification", "don", &don("2")), &variables).unwrap();
    assert_eq!(trust(&config, 0).1, 1);
}

#[test]
fn a_don_is_valid_or_refused_as_a_whole() {
    let cases = [
        ("tenant_id = \"3\"", "verification.tenant_id"),
        ("valid_signers = []", "verification.valid_signers"),
        ("min_required_signatures = 2", "verification.min_required_signatures"),
    ];
    for (other, key) in cases {
        let text = with("verification", "don", &format!("{}\n{other}", don("2")));
        let error = load(&text, &[]).expect_err(other);
        assert_eq!(keys_of(&error), [key], "{error}");
        assert!(error.to_string().contains("is set together with verification.don"), "{error}");
    }
    for (value, keys) in [
        (don("0"), vec!["verification.don.min_required_signatures"]),
        (don("3"), vec!["verification.don.min_required_signatures"]),
        (don("2").replace("tenant_id", "tenant"), vec!["verification.don.tenant_id", "verification.don.tenant"]),
        ("{ tenant_id = \"3\", min_required_signatures = 2 }".to_owned(), vec!["verification.don.valid_signers"]),
        ("5".to_owned(), vec!["verification.don"]),
    ] {
        let error = load(&with("verification", "don", &value), &[]).expect_err(&value);
        assert_eq!(keys_of(&error), keys, "{error}");
    }
    let single = "[channels.a.verification]\nmin_required_signatures = 1\n";
    let error = load(&(two_accounts(&format!("don = {}\n", don("2"))) + single), &[]).expect_err("a part of it");
    assert_eq!(keys_of(&error), ["channels.a.verification.min_required_signatures"], "{error}");
    assert!(error.to_string().contains("set channels.a.verification.don instead"), "{error}");
}

#[test]
fn a_reload_names_the_accounts_that_changed() {
    let changes = |before: &str, after: &str| loaded(before).changes_to(&loaded(after));
    let (before, after) = (two_accounts("api_key = \"k1\"\n"), two_accounts("api_key = \"k2\"\n"));
    let changed = changes(&before, &after);
    assert_eq!((changed.others, changed.channels.changed), (vec!["accounts.fund".to_owned()], Vec::new()));
    let moved = changes(&before, &before.replace("account = \"fund\"\n", ""));
    assert_eq!((moved.others, moved.channels.changed), (Vec::new(), vec!["a".to_owned()]));
    let limited = before.replace("[api]", "[api]\nrequests_per_second = 1");
    let others = changes(&before, &limited).others;
    assert_eq!(others, ["api", "accounts.fund"], "the account inherits the limit");
}

#[test]
fn the_values_in_effect_name_the_table_that_an_account_inherits_from() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("channeld.toml");
    fs::write(&file, two_accounts(&format!("don = {}\n", don("2")))).expect("a file");
    let text = ConfigText::read(Some(&file)).expect("a text");
    let (_, reader) = Config::checked(&text, []).unwrap_or_else(|error| panic!("{error}"));
    let settings = crate::config::effective::settings(&reader);
    let inherits = |key: &str| {
        let setting = settings.iter().find(|setting| setting.key == key);
        setting.unwrap_or_else(|| panic!("{key} is not listed")).inherits.clone().unwrap_or_default()
    };
    assert_eq!(inherits("accounts.fund.base_url"), "api.base_url");
    assert_eq!(inherits("accounts.fund.api_key"), "api.api_key");
    assert_eq!(inherits("accounts.fund.org_id"), "verification.org_id");
    assert_eq!(inherits("channels.a.verification.valid_signers"), "accounts.fund.don.valid_signers");
    assert_eq!(inherits("channels.b.verification.valid_signers"), "verification.valid_signers");
    assert!(
        settings.iter().all(|setting| !setting.value.as_ref().is_some_and(|it| it.to_string().contains("do-not-show")))
    );
    assert!(settings.iter().any(|setting| setting.key == "accounts.fund.api_key" && setting.hidden));
    let replaced = with("verification", "don", &don("2"));
    fs::write(&file, replaced).expect("a file");
    let (_, reader) = Config::checked(&ConfigText::read(Some(&file)).expect("a text"), []).expect("valid");
    let keys: Vec<_> = crate::config::effective::settings(&reader).into_iter().map(|setting| setting.key).collect();
    assert!(!keys.contains(&"verification.valid_signers".to_owned()), "the default has no effect: {keys:?}");
    assert!(keys.contains(&"verification.don.valid_signers".to_owned()), "{keys:?}");
}
