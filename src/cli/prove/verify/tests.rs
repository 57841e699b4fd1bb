use std::sync::Arc;

use clap::{CommandFactory, Parser};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use proof::event::{EventId, RawEvent};
use proof::verify::{SignerSet, Verdict};
use record::{ChannelRef, Format, Lines, Message, Record, Shape};

const RECORDED: &str = include_str!("../../../../tests/vectors/recorded.json");
const VERDICTS: &str = include_str!("../../../../tests/vectors/verdicts.json");
const ID: &str = "be42ae95-8ad4-4b3b-b7b4-ed874b111111";

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// An event with its proof, and the settings that verify it.
#[derive(Deserialize)]
pub(in crate::cli) struct Recorded {
    signers: Vec<String>,
    min_required: usize,
    workflow_owner: String,
    pub(in crate::cli) event: Value,
}

pub(in crate::cli) fn recorded() -> Recorded {
    serde_json::from_str(RECORDED).unwrap()
}

fn flags(recorded: &Recorded) -> Vec<String> {
    let (signers, required) = (recorded.signers.join(","), recorded.min_required.to_string());
    let flags = ["verify", "--valid-signers", &signers, "--min-required-signatures", &required];
    flags.into_iter().chain(["--workflow-owner", &recorded.workflow_owner]).map(str::to_owned).collect()
}

fn args(flags: &[&str]) -> Args {
    Line::try_parse_from([&["verify"], flags].concat()).unwrap().args
}

pub(in crate::cli) fn verifier() -> Verifier {
    Line::try_parse_from(flags(&recorded())).unwrap().args.verifier(None).unwrap()
}

/// The event id and the reason or status of each input, and the exit.
fn verified_as(input: impl AsRef<[u8]>, verifier: &Verifier) -> (Vec<(Option<EventId>, String)>, Exit) {
    let mut out = Vec::new();
    let exit = verify(input.as_ref(), "test", verifier, &args(&["--json"]), &mut Context { file: None, out: &mut out })
        .unwrap();
    let outcome = |line: &str| {
        let outcome: Value = serde_json::from_str(line).unwrap();
        let word = |name: &str| outcome[name].as_str().map(str::to_owned);
        (word("event_id").map(|id| id.parse().unwrap()), word("reason").or_else(|| word("status")).unwrap())
    };
    (String::from_utf8(out).unwrap().lines().map(outcome).collect(), exit)
}

fn words(input: impl AsRef<[u8]>) -> Vec<String> {
    verified_as(input, &verifier()).0.into_iter().map(|(_, word)| word).collect()
}

/// An event that the service's own verifier accepts and whose signed text is base64 of JSON, and the verifier for it.
fn decodable() -> (Value, Verifier) {
    let verdicts: Value = serde_json::from_str(VERDICTS).unwrap();
    let signers =
        verdicts["signers"].as_array().unwrap().iter().map(|signer| signer.as_str().unwrap().parse().unwrap());
    let signers = SignerSet::new(signers.collect(), 4).unwrap();
    let cases = verdicts["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["config"].is_null() && case["must_accept"] == true).unwrap();
    (case["event"].clone(), Verifier::new(signers, verdicts["workflow_owner"].as_str().unwrap().parse().unwrap()))
}

fn delivered(event: &Value, verifier: &Verifier) -> Value {
    delivered_as(event, verifier, &Shape::default())
}

fn delivered_as(event: &Value, verifier: &Verifier, shape: &Shape) -> Value {
    let channel = ChannelRef { name: "test".into(), id: ID.parse().unwrap() };
    let Verdict::Verified(proved) = verifier.verify(RawEvent::locate(event.to_string().into()).unwrap()) else {
        panic!("the case is verified");
    };
    let record = Arc::new(Record::verified(&channel, &proved, &mut Lines::default()));
    serde_json::from_slice(Message::new(&record, shape).body()).unwrap()
}

#[test]
fn the_recorded_proof_verifies_and_the_line_has_exactly_the_documented_fields() {
    let recorded = recorded();
    let mut out = Vec::new();
    let exit = verify(
        recorded.event.to_string().as_bytes(),
        "test",
        &verifier(),
        &args(&["--json"]),
        &mut Context { file: None, out: &mut out },
    )
    .unwrap();
    let signers: Vec<String> = recorded.signers.iter().map(|signer| signer.to_lowercase()).collect();
    let mut outcome: Value = serde_json::from_slice(&out).unwrap();
    outcome["signers"].as_array_mut().unwrap().sort_by_key(|signer| signers.iter().position(|known| signer == known));
    assert_eq!(outcome, json!({"event_id": ID, "status": "verified", "reason": null, "signers": signers}));
    assert_eq!(exit, Exit::Done);
}

#[test]
fn lines_arrays_and_indented_objects_are_accepted() {
    let event = recorded().event;
    let (one, pretty) = (event.to_string(), serde_json::to_string_pretty(&event).unwrap());
    let array = serde_json::to_string_pretty(&json!([event, event])).unwrap();
    for (input, count) in [
        (String::new(), 0),
        ("\n \n[]\n".to_owned(), 0),
        (one.clone(), 1),
        (format!("\u{feff}{one}\r\n\r\n{one}\r\n"), 2),
        (format!("{one}{one}"), 2),
        (pretty.clone(), 1),
        (format!("{pretty}\n{one}\n{pretty}"), 3),
        (format!("[{one},{one},{one}]"), 3),
        (array, 2),
        (format!("[{one}]\n[{one}]\n"), 2),
    ] {
        assert_eq!(words(&input), vec!["verified"; count], "{input:.40}");
    }
}

#[test]
fn a_line_that_is_not_json_is_rejected_and_the_rest_is_verified() {
    let one = recorded().event.to_string();
    let half = &one[..one.len() / 2];
    let deep = r#"{"a":"#.repeat(300);
    for garbage in ["garbage", "7", "\"text\"", "null", half, "{", "{\"a\":", "{\"a\" 1}", "}", "{]}", "\u{0}", &deep] {
        let (outcomes, exit) = verified_as(format!("{one}\n{garbage}\n{one}\n{one}"), &verifier());
        let expected = [(true, "verified"), (false, "malformed"), (true, "verified"), (true, "verified")];
        let seen: Vec<_> = outcomes.iter().map(|(id, word)| (id.is_some(), word.as_str())).collect();
        assert_eq!(seen, expected, "{garbage:.40}");
        assert_eq!(exit, Exit::Failed);
    }
    assert_eq!(words(format!("[7,{one},null , {one}]")), ["malformed", "verified", "malformed", "verified"]);
    assert_eq!(words(b"{\"headers\":{\"offset\":1},\"a\":\"\xff\"}\n"), ["malformed"]);
    assert_eq!(words(format!("{one}\n{half}")), ["verified", "malformed"]);
    let pages = "{\"a\":\n".repeat(3);
    assert_eq!(words(format!("{pages}{one}")), ["malformed", "malformed", "malformed", "verified"]);
}

#[test]
fn unsigned_and_pending_events_are_not_verified() {
    let mut pending = recorded().event;
    pending["headers"]["proofs"] = json!([]);
    let unsigned = json!({"headers": {"type": "wallet.status", "offset": 2}, "payload": {}});
    for (event, status) in [(pending, "pending"), (unsigned, "unsigned")] {
        let (outcomes, exit) = verified_as(event.to_string(), &verifier());
        assert_eq!((outcomes[0].1.as_str(), exit), (status, Exit::Failed));
    }
    let mut place = recorded().event;
    place["headers"]["offset"] = json!(null);
    let (outcomes, _) = verified_as(place.to_string(), &verifier());
    assert_eq!(outcomes, [(Some(ID.parse().unwrap()), "malformed".to_owned())]);
}

#[test]
fn a_record_in_any_format_is_compared_with_its_event() {
    let (event, verifier) = decodable();
    let word = |record: &Value| verified_as(record.to_string(), &verifier).0[0].1.clone();
    let shaped =
        |format, include_proof| delivered_as(&event, &verifier, &Shape { format, include_proof, ..Shape::default() });
    let (cloud, proving) = (shaped(Format::CloudEvents, true), shaped(Format::Json, true));
    for record in [&cloud, &proving, &shaped(Format::Raw, false)] {
        assert_eq!(word(record), "verified");
    }
    for attribute in ["id", "type", "time"] {
        let mut forged = cloud.clone();
        forged[attribute] = json!("another");
        assert_eq!(word(&forged), "record-mismatch", "{attribute}");
    }
    let mut forged = cloud.clone();
    (forged["id"], forged["data"]["event"]["headers"]["proofs"]) = (json!("another"), json!([7]));
    assert_eq!(word(&forged), "record-mismatch", "the mismatch is reported even if the event is also rejected");
    for member in ["report", "context", "signatures"] {
        let mut forged = proving.clone();
        forged["proof"][member] = json!([]);
        assert_eq!(word(&forged), "record-mismatch", "{member}");
    }
}

#[test]
fn a_delivered_record_is_verified_by_the_event_inside_it() {
    let (event, verifier) = decodable();
    let record = delivered(&event, &verifier);
    assert!(record["decoded"].is_object());
    let word = |record: &Value| verified_as(record.to_string(), &verifier).0[0].1.clone();
    assert_eq!(word(&record), "verified");
    assert_eq!(words_of(&serde_json::to_string_pretty(&record).unwrap(), &verifier), ["verified"]);

    for (field, value) in [
        ("offset", json!(1)),
        ("offset", json!("text")),
        ("event_id", json!(ID)),
        ("type", json!("query.status")),
        ("time", json!("2020-01-01T00:00:00Z")),
        ("decoded", json!({"name": "Forged"})),
        ("decoded", json!([])),
    ] {
        let mut forged = record.clone();
        forged[field] = value;
        assert_eq!(word(&forged), "record-mismatch", "{field}");
    }
    for field in ["offset", "event_id", "type", "time", "decoded", "verification", "channel"] {
        let mut shorter = record.clone();
        shorter.as_object_mut().unwrap().remove(field);
        assert_eq!(word(&shorter), "verified", "without {field}");
    }

    let mut tampered = record.clone();
    tampered["event"]["payload"]["verifiable_event"] = json!("eyJ9");
    assert_eq!(word(&tampered), "event-hash-mismatch");
    let mut hidden = event.clone();
    hidden["event"] = tampered["event"].clone();
    assert_eq!(word(&hidden), "event-hash-mismatch", "the valid proof outside of the event is ignored");
    let twice = record.to_string().replacen('{', &format!(r#"{{"decoded":{},"#, record["decoded"]), 1);
    assert_eq!(words_of(&twice, &verifier), ["record-mismatch"], "two readers could use different values");
}

fn words_of(input: &str, verifier: &Verifier) -> Vec<String> {
    verified_as(input, verifier).0.into_iter().map(|(_, word)| word).collect()
}

#[test]
fn an_unsigned_record_with_decoded_content_is_a_forgery() {
    let event = json!({"headers": {"type": "wallet.status", "offset": 2}, "payload": {}});
    let record = json!({"offset": 2, "event_id": null, "decoded": {"name": "Forged"}, "event": event});
    assert_eq!(words(record.to_string()), ["record-mismatch"]);
}

#[test]
fn the_text_output_has_one_line_per_event_and_a_summary() {
    let mut out = Vec::new();
    let input = format!("{}\nnonsense\n", recorded().event);
    verify(input.as_bytes(), "test", &verifier(), &args(&[]), &mut Context { file: None, out: &mut out }).unwrap();
    let out = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = out.lines().map(str::trim).collect();
    assert_eq!(lines[0], format!("1  verified  {ID}  2 signers"));
    assert_eq!(lines[1], format!("2  rejected  {:36}  malformed", "-"));
    assert_eq!(lines[2], "2 events: 1 verified, 0 unsigned, 0 pending, 1 rejected");
}

#[test]
fn impossible_signers_are_a_usage_error() {
    let good = flags(&recorded());
    let parse = |flags: &[String]| Line::try_parse_from(flags);
    for wrong in [&good[..3], &good[..5], &[&good[..4], &["0".to_owned()], &good[5..]].concat()] {
        let failure = parse(wrong).unwrap().args.verifier(None).unwrap_err();
        assert_eq!(failure.0, Exit::Usage, "{wrong:?}");
    }
    for more in [["--channel", "x"], ["--tenant-id", "1"]] {
        assert!(parse(&[good.clone(), more.map(str::to_owned).to_vec()].concat()).is_err(), "{more:?}");
    }
}

#[test]
fn an_organization_is_enough_with_the_published_signers() {
    let by_org = Line::try_parse_from(["verify", "--org-id", "crec-test-org"]).unwrap().args.verifier(None).unwrap();
    assert_eq!(by_org.workflow_owner, "0x338B7FFF03D7389ae1bA601b13eB342ce0705D6E".parse().unwrap());
    assert_eq!(by_org.signers.addresses().len(), 10);
}

#[test]
fn only_unsigned_events_pass_if_allowed() {
    let notice = json!({"headers": {"type": "wallet.status", "offset": 2}, "payload": {}}).to_string();
    let pending = json!({"headers": {"type": "watcher.event", "offset": 3}, "payload": {}}).to_string();
    let exit = |input: &str, flags: &[&str]| {
        verify(input.as_bytes(), "test", &verifier(), &args(flags), &mut Context { file: None, out: &mut Vec::new() })
            .unwrap()
    };
    let both = format!("{}\n{notice}", recorded().event);
    assert_eq!((exit(&both, &[]), exit(&both, &["--allow-unsigned"])), (Exit::Failed, Exit::Done));
    for other in [pending.as_str(), "nonsense"] {
        assert_eq!(exit(&format!("{notice}\n{other}"), &["--allow-unsigned"]), Exit::Failed, "{other}");
    }
}

#[test]
fn only_the_verification_tables_are_needed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("channeld.toml");
    let by = |text: &str, flags: &[&str]| {
        std::fs::write(&file, text).unwrap();
        args(flags).verifier(Some(&file)).map(|verifier| verifier.workflow_owner)
    };
    let [one, other] = ["org_1", "org_2"].map(|id| args(&["--org-id", id]).verifier(None).unwrap().workflow_owner);
    let shared = "[verification]\norg_id = \"org_1\"\n";
    assert_eq!(by(shared, &[]).unwrap(), one);
    let broken = format!("{shared}[api]\nbase_url = 7\nunknown = 1\n[channels.a]\nid = 7\n[channels.b]\nid = 8\n");
    assert_eq!(by(&broken, &[]).unwrap(), one);
    let own = format!("{broken}[channels.a.verification]\norg_id = \"org_2\"\n");
    assert_eq!(by(&own, &["--channel", "a"]).unwrap(), other);
    assert_eq!(by(&own, &["--channel", "b"]).unwrap(), one);
    for (text, flags, exit) in [
        (&own, &[][..], Exit::Config),
        (&own, &["--channel", "c"], Exit::Usage),
        (&"[verification]\n".to_owned(), &[], Exit::Config),
        (&format!("{shared}valid_signers = []\n"), &[], Exit::Config),
    ] {
        assert_eq!(by(text, flags).unwrap_err().0, exit, "{text}");
    }
}

#[test]
fn the_help_says_what_the_exit_code_means() {
    let help = Line::command().render_long_help().to_string();
    assert!(help.contains("Exits with 1 if anything is not verified"), "{help}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_failure() {
    let by_org = ["verify", "--org-id", "crec-test-org", "/nowhere/at/all"];
    let args = Line::try_parse_from(by_org).unwrap().args;
    let failure = run(&args, &mut Context { file: None, out: &mut Vec::new() }).unwrap_err();
    assert_eq!(
        (failure.to_string().as_str(), failure.0),
        ("/nowhere/at/all could not be read: No such file or directory (os error 2)", Exit::Failed)
    );
}
