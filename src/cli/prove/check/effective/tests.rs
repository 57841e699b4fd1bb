use serde_json::json;

use super::*;

fn setting(key: &str, value: Option<Value>, origin: Origin) -> Setting {
    Setting { key: key.to_owned(), hidden: value.is_none(), value, origin, inherits: None }
}

fn settings() -> Vec<Setting> {
    let line = |line| Origin::File { file: "/etc/channeld/channeld.toml".into(), line: Some(line) };
    let signers = json!(["0xff9b062fccb2f042311343048b9518068370f837", "0xe55fcaf921e76c6bbcf9415bba12b1236f07b0c3"]);
    let by_variable = Origin::Environment { variable: "CHANNELD_CHANNELS__A__VERIFICATION__ORDERING".to_owned() };
    let shared = setting("verification.valid_signers", Some(signers.clone()), Origin::Default);
    let mut own = setting("channels.a.verification.valid_signers", Some(signers), Origin::Default);
    own.inherits = Some(shared.key.clone());
    vec![
        setting("api.api_key", None, line(3)),
        setting("api.page_limit", Some(json!(200)), Origin::Default),
        setting("channels.a.verification.ordering", Some(json!("strict")), by_variable),
        own,
        setting("channels.b.sinks", Some(json!(["a", "b"])), line(12)),
        setting("shutdown_grace", Some(json!("3\"0s")), Origin::Default),
        shared,
    ]
}

fn written(width: Option<usize>) -> String {
    let (mut out, settings) = (Vec::new(), settings());
    let file = Path::new("/etc/channeld/channeld.toml");
    Effective { settings: &settings, file: Some(file), width }.write(&mut out).expect("memory takes it");
    anstream::adapter::strip_bytes(&out).into_vec().try_into().expect("text")
}

#[test]
fn settings_fit_the_terminal_and_long_lists_wrap() {
    let expected = r#"# Each effective setting and its origin: a line of the file, an environment
# variable, or the default; the file is /etc/channeld/channeld.toml.

api.api_key = hidden  # channeld.toml, line 3
api.page_limit = 200  # default

channels.a.verification.ordering = "strict"
    # CHANNELD_CHANNELS__A__VERIFICATION__ORDERING
channels.a.verification.valid_signers = […]  # [verification]: default

channels.b.sinks = ["a", "b"]  # channeld.toml, line 12

shutdown_grace = '3"0s'  # default

verification.valid_signers = [  # default
    "0xff9b062fccb2f042311343048b9518068370f837",
    "0xe55fcaf921e76c6bbcf9415bba12b1236f07b0c3",
]
"#;
    assert_eq!(written(Some(80)), expected);
}

#[test]
fn without_a_terminal_each_setting_is_a_line() {
    let text = written(None);
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(lines.len(), settings().len(), "{text}");
    let of = |key: &str| lines.iter().find(|line| line.starts_with(key)).copied();
    assert_eq!(
        of("channels.a.verification.ordering"),
        Some(r#"channels.a.verification.ordering = "strict"  # CHANNELD_CHANNELS__A__VERIFICATION__ORDERING"#)
    );
    assert!(of("verification.valid_signers").is_some_and(|line| line.ends_with("]  # default")), "{text}");
}
