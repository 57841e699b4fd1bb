//! `channeld check`: says what would run, or everything that is wrong.
//!
//! # Invariants
//!
//! * **No effects.** Nothing is opened but the configuration, and the secrets and certificates that it names. With
//!   `--connect`, the service and the sinks are asked, and nothing is delivered or recorded.
//! * **No secrets.** Neither the summary nor the JSON has a place for one.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::Exit;
use crate::config::{Channel, Config, ConfigError, Ordering, Sink, Start, UnsignedPolicy};
use crate::record::Format;

mod connect;

use connect::Asked;

/// Check the configuration without starting anything.
///
/// Prints what would run, or every problem there is, and exits with 78 if there is one. With --connect, the service is
/// asked with the key, the newest events of each channel are read and verified, and each sink is looked at without giving
/// it anything: exits with 69 where one of them fails.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object: what would run, or {"valid": false, "problems": […]}
    #[arg(long)]
    json: bool,
    /// Ask the service, each channel and each sink too, and say yes or what to do.
    #[arg(long)]
    connect: bool,
}

/// Loads the configuration and prints what came of it: problems to standard error, the rest to standard output.
pub async fn run(file: Option<&Path>, args: &Args) -> Exit {
    let loaded = Config::load(file);
    let asked = match &loaded {
        Ok(config) if args.connect => Some(connect::ask(config).await),
        _ => None,
    };
    let (mut out, mut errors) = (anstream::stdout().lock(), anstream::stderr().lock());
    match print(&loaded, asked.as_deref(), args.json, &mut out, &mut errors) {
        Ok(()) if loaded.is_err() => Exit::Config,
        Ok(()) if asked.is_some_and(|asked| asked.iter().any(|asked| !asked.ok)) => Exit::Unavailable,
        Ok(()) => Exit::Done,
        // Nobody reads.
        Err(_) => Exit::Failed,
    }
}

fn print(
    loaded: &Result<Config, ConfigError>,
    asked: Option<&[Asked]>,
    json: bool,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<()> {
    match loaded {
        Ok(config) if json => {
            let mut shown = json_of(config);
            if let Some(asked) = asked {
                shown["asked"] = json!(asked);
            }
            writeln!(out, "{shown}")
        }
        Ok(config) => {
            write!(out, "{}", Summary(config))?;
            let Some(asked) = asked else { return Ok(()) };
            writeln!(out)?;
            asked.iter().try_for_each(|asked| writeln!(out, "{asked}"))
        }
        Err(error) => {
            writeln!(errors, "{error}")?;
            if json { writeln!(out, "{}", json!({"valid": false, "problems": error.problems()})) } else { Ok(()) }
        }
    }
}

/// A configuration for people.
struct Summary<'a>(&'a Config);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.0;
        writeln!(f, "The configuration is valid.\n")?;
        writeln!(f, "service  {}", config.api.base_url)?;
        writeln!(f, "state    {}", config.state.path.display())?;
        writeln!(f, "admin    {}", config.admin.listen.map_or("off".to_owned(), |listen| listen.to_string()))?;
        for channel in &config.channels {
            write_channel(f, channel)?;
        }
        f.write_char('\n')?;
        for (name, sink) in &config.sinks {
            writeln!(f, "sink {name}: {}", shown_sink(sink))?;
        }
        config.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn write_channel(f: &mut fmt::Formatter<'_>, channel: &Channel) -> fmt::Result {
    let verification = &channel.verification;
    let signers = verification.verifier.signers();
    writeln!(f, "\nchannel {} ({})", channel.channel.name, channel.channel.id)?;
    writeln!(f, "  start     {}", shown_start(channel.start))?;
    writeln!(f, "  sinks     {}", channel.sinks.join(", "))?;
    writeln!(f, "  owner     {}", verification.verifier.workflow_owner())?;
    writeln!(f, "  proof     {} of {} signers", signers.required(), signers.addresses().len())?;
    writeln!(f, "  unsigned  {}", shown_policy(verification.unsigned))?;
    writeln!(f, "  ordering  {}", shown_ordering(verification.ordering))
}

fn shown_start(start: Start) -> String {
    match start {
        Start::Earliest => "earliest".to_owned(),
        Start::Latest => "latest".to_owned(),
        Start::Offset(offset) => format!("offset {offset}"),
    }
}

fn shown_policy(policy: UnsignedPolicy) -> &'static str {
    match policy {
        UnsignedPolicy::Deliver => "deliver",
        UnsignedPolicy::Drop => "drop",
    }
}

fn shown_ordering(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Available => "available",
        Ordering::Strict => "strict",
    }
}

fn shown_sink(sink: &Sink) -> String {
    let decided = sink.target.shown();
    let space = if decided.is_empty() { "" } else { " " };
    let filtered = if sink.filter.is_some() { ", filtered" } else { "" };
    format!("{}{space}{decided}, as {}{filtered}", sink.kind, shown_format(sink.shape.format))
}

fn shown_format(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::CloudEvents => "cloudevents",
        Format::Raw => "raw",
    }
}

fn json_of(config: &Config) -> Value {
    let sinks: serde_json::Map<_, _> =
        config.sinks.iter().map(|(name, sink)| (name.clone(), json_sink(sink))).collect();
    json!({
        "valid": true,
        "base_url": config.api.base_url.as_str(),
        "state_path": config.state.path.display().to_string(),
        "admin_listen": config.admin.listen,
        "channels": config.channels.iter().map(json_channel).collect::<Vec<_>>(),
        "sinks": sinks,
        "notes": config.notes,
    })
}

fn json_channel(channel: &Channel) -> Value {
    let verification = &channel.verification;
    let signers = verification.verifier.signers();
    let start = match channel.start {
        Start::Offset(offset) => json!(offset),
        word => json!(shown_start(word)),
    };
    json!({
        "name": &*channel.channel.name,
        "id": channel.channel.id,
        "start": start,
        "sinks": channel.sinks,
        "workflow_owner": verification.verifier.workflow_owner(),
        "min_required_signatures": signers.required(),
        "valid_signers": signers.addresses(),
        "unsigned": shown_policy(verification.unsigned),
        "ordering": shown_ordering(verification.ordering),
    })
}

fn json_sink(sink: &Sink) -> Value {
    let mut shown = Value::Object(sink.target.json());
    shown["type"] = sink.kind.into();
    shown["format"] = shown_format(sink.shape.format).into();
    shown["include_proof"] = sink.shape.include_proof.into();
    shown["filtered"] = sink.filter.is_some().into();
    shown
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    const GOOD: [(&str, &str); 8] = [
        ("CHANNELD_API__API_KEY", "key-do-not-show"),
        ("CHANNELD_VERIFICATION__ORG_ID", "org_1"),
        ("CHANNELD_CHANNELS__A__ID", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
        ("CHANNELD_CHANNELS__A__SINKS", "hook"),
        ("CHANNELD_CHANNELS__A__START", "15520"),
        ("CHANNELD_SINKS__HOOK__TYPE", "webhook"),
        ("CHANNELD_SINKS__HOOK__URL", "https://ledger.internal/hooks?token=do-not-show"),
        ("CHANNELD_SINKS__HOOK__SECRET", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
    ];

    fn printed(json: bool, variables: &[(&str, &str)]) -> (bool, String, String) {
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let loaded = Config::load_with(None, variables);
        print(&loaded, None, json, &mut out, &mut errors).expect("memory takes it");
        (loaded.is_ok(), String::from_utf8(out).expect("text"), String::from_utf8(errors).expect("text"))
    }

    #[test]
    fn a_valid_configuration_is_summed_up_without_its_secrets() {
        for json in [false, true] {
            let (code, out, errors) = printed(json, &GOOD);
            assert_eq!((code, errors.as_str()), (true, ""), "{out}");
            for shown in ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "hook", "15520", "/var/lib/channeld", "0x"] {
                assert!(out.contains(shown), "{shown} in {out}");
            }
            assert!(!out.contains("do-not-show") && !out.contains("whsec_"), "{out}");
        }
        assert!(printed(false, &GOOD).1.contains("4 of 10 signers"));
    }

    #[test]
    fn what_becomes_of_a_file_is_said() {
        let file = [
            ("CHANNELD_CHANNELS__A__SINKS", "hook, file"),
            ("CHANNELD_SINKS__FILE__TYPE", "file"),
            ("CHANNELD_SINKS__FILE__PATH", "/var/lib/channeld/events.jsonl"),
            ("CHANNELD_SINKS__FILE__ROTATE_SIZE", "100MiB"),
            ("CHANNELD_SINKS__FILE__ROTATE_EVERY", "1h"),
            ("CHANNELD_SINKS__FILE__COMPRESS", "zstd"),
            ("CHANNELD_SINKS__FILE__KEEP_FILES", "30"),
            ("CHANNELD_SINKS__FILE__MODE", "0640"),
        ];
        let variables = [&GOOD[..3], &GOOD[4..], &file].concat();
        let shown = "file /var/lib/channeld/events.jsonl, closed at 100.0 MiB and every 1h as events-{time}.jsonl, \
                     compressed with zstd, kept: 30 files, as json";
        let (_, out, errors) = printed(false, &variables);
        assert!(out.contains(shown), "{out}{errors}");
        let object: Value = serde_json::from_str(&printed(true, &variables).1).expect("one JSON object");
        let file = &object["sinks"]["file"];
        assert_eq!((&file["mode"], &file["rotation"]["size"]), (&json!("0640"), &json!(104_857_600)));
    }

    #[test]
    fn of_a_webhook_is_said_what_is_set_and_no_value() {
        let secrets =
            "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY= whsk_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        let more = [
            ("CHANNELD_SINKS__HOOK__SECRET", secrets),
            ("CHANNELD_SINKS__HOOK__HEADERS__TENANT", "value-do-not-show"),
            ("CHANNELD_SINKS__HOOK__BEARER_TOKEN", "token-do-not-show"),
            ("CHANNELD_SINKS__HOOK__PROXY", "http://proxy:3128"),
            ("CHANNELD_SINKS__HOOK__BATCH_EVENTS", "100"),
        ];
        let variables = [&GOOD[..7], &more].concat();
        let (_, out, errors) = printed(false, &variables);
        let said = "webhook https://ledger.internal/hooks (signed by 1 secret v1 and 1 v1a, headers authorization tenant, \
                    through http://proxy:3128/, batches of 100 at most), as json";
        assert!(out.contains(said), "{out}{errors}");
        let (_, json, _) = printed(true, &variables);
        let object: Value = serde_json::from_str(&json).expect("one JSON object");
        let hook = &object["sinks"]["hook"];
        assert_eq!((&hook["secrets"], &hook["batch_events"]), (&json!({"v1": 1, "v1a": 1}), &json!(100)));
        assert!(
            !format!("{out}{json}").contains("do-not-show") && !format!("{out}{json}").contains("whs"),
            "{out}{json}"
        );
    }

    #[test]
    fn an_invalid_one_exits_with_78_and_every_problem() {
        let (code, out, errors) = printed(false, &GOOD[2..]);
        assert_eq!((code, out.as_str()), (false, ""));
        assert_eq!(errors.lines().count(), 2, "{errors}");

        let (_, out, _) = printed(true, &GOOD[2..]);
        let object: Value = serde_json::from_str(&out).expect("one JSON object");
        assert_eq!(object["problems"][0]["key"], "api.api_key");
    }
}
