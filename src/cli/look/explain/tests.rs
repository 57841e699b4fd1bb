use strum::VariantArray;

use super::*;
use channel::RejectionReason;
use operator::NotReadyKind;

const ALERTS: &str = include_str!("../../../../deploy/prometheus/alerts.yaml");

fn explained(reason: &str) -> Result<String, CommandError> {
    let mut out = Vec::new();
    let args = Args { reason: reason.split(' ').map(str::to_owned).collect(), json: false };
    run(&args, &mut Context { file: None, out: &mut out }).map(|_| String::from_utf8(out).unwrap())
}

fn alerts() -> Vec<&'static str> {
    ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

#[test]
fn every_rejection_reason_and_alert_is_explained_and_listed() {
    let topics = runbook::topics();
    let list = list(&topics);
    let reasons: Vec<_> = RejectionReason::all().map(RejectionReason::name).collect();
    assert!(reasons.len() > 10 && alerts().len() > 20);
    let alerts = alerts().into_iter().map(|it| (Kind::Alert, it));
    for (kind, reason) in reasons.into_iter().map(|it| (Kind::Rejection, it)).chain(alerts) {
        let (topic, name) = runbook::find(&topics, reason).unwrap_or_else(|| panic!("{reason} is not explained"));
        assert_eq!((topic.kind, name), (kind, reason));
        assert!(topic.summary.len() > 10 && explained(reason).unwrap().len() > 100, "{topic:?}");
        assert!(list.contains(&format!("\n  {reason} ")), "{reason} is not in\n{list}");
    }
}

#[test]
fn a_printed_reason_is_explained_by_the_row_that_quotes_it() {
    let topics = runbook::topics();
    for (printed, row) in [
        (
            "channel settlements: its pending events are full: reading waits for their proofs",
            "its pending events are full",
        ),
        ("its pending events are full: reading waits", "its pending events are full"),
        ("channel settlements, sink ledger: 401 Unauthorized", "sink …"),
        ("channel a: 15 of the last 15 events were rejected (wrong-owner): check org_id", "of the last 15"),
        ("the state cannot be written: no such file", "the state cannot be written"),
        ("no daemon runs", "no daemon runs"),
        ("/var/lib/channeld is in use by another channeld", "is in use by another channeld"),
    ] {
        let (topic, name) = runbook::find(&topics, printed).unwrap_or_else(|| panic!("{printed}"));
        let is_quoted = matches!(topic.kind, Kind::NotReady | Kind::NotStarted);
        assert!(name.contains(row) && is_quoted, "{printed}: {name}");
    }
}

#[test]
fn the_remedy_for_a_pasted_message_is_first() {
    for message in ["answered 401", "channel settlements, sink alerts: answered 401"] {
        let text = explained(message).unwrap();
        let (begin, section) = text.split_once("\n\nA sink refuses events").unwrap_or_else(|| panic!("{text}"));
        assert!(begin.contains("for this message: `401`, `403`: the endpoint does not accept"), "{begin}");
        assert!(section.contains("`404`, `405`") && !begin.contains("]("), "{text}");
    }
    assert!(!explained("ChanneldSinkBlocked").unwrap().contains("for this message"));
    assert!(explained("nonsense 7").is_err());
}

#[test]
fn the_runbook_rows_match_the_rejection_reasons() {
    let topics = runbook::topics();
    let rows = topics.iter().filter(|topic| topic.kind == Kind::Rejection);
    let mut rows: Vec<_> = rows.flat_map(|row| row.names.iter().map(move |name| (name.as_str(), row))).collect();
    let mut reasons: Vec<_> = RejectionReason::all().collect();
    rows.sort_unstable_by_key(|(name, _)| *name);
    reasons.sort_unstable_by_key(|reason| reason.name());
    let names: Vec<_> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, reasons.iter().map(|reason| reason.name()).collect::<Vec<_>>());
    for ((name, row), reason) in rows.into_iter().zip(reasons) {
        let means = row.text(1_000).lines().next().map(str::to_owned);
        assert_eq!(means, Some(format!("what it means: {}", reason.explanation())), "{name}");
    }
}

#[test]
fn the_runbook_rows_match_the_not_ready_kinds() {
    let topics = runbook::topics();
    let rows = topics.iter().filter(|topic| topic.kind == Kind::NotReady);
    let mut named: Vec<_> = rows.flat_map(|topic| &topic.names).map(String::as_str).collect();
    let known = NotReadyKind::VARIANTS.iter().filter(|kind| **kind != NotReadyKind::Unknown);
    let mut kinds: Vec<&str> = known.map(<&str>::from).collect();
    named.sort_unstable();
    kinds.sort_unstable();
    assert_eq!(named, kinds);
}

#[test]
fn each_topic_has_a_name_and_valid_links() {
    for topic in runbook::topics() {
        for name in topic.names.iter().chain(&topic.quotes) {
            let text = explained(name).unwrap_or_else(|failure| panic!("{name}: {failure}"));
            for next in text.lines().filter_map(|line| line.strip_prefix("  channeld explain ")) {
                assert!(explained(next).is_ok() && next != name, "{name} leads to {next}");
            }
        }
    }
}

#[test]
fn explanations_fit_the_terminal_and_keep_the_runbooks_text() {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (heading, body) in runbook::sections() {
        let (filled, mut is_code) = (runbook::filled(body, WIDTH), false);
        assert_eq!(words(&filled), words(body), "{heading}");
        for line in filled.lines() {
            is_code ^= line.trim_start().starts_with("```");
            let is_verbatim = is_code || line.trim_start().starts_with('|');
            assert!(is_verbatim || line.chars().count() <= WIDTH, "{heading}: {line}");
        }
    }
    for line in list(&runbook::topics()).lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
}

#[test]
fn an_unknown_reason_suggests_the_nearest() {
    for (asked, meant) in
        [("too-few-signature", "too-few-signatures"), ("stalled", "ChanneldStalled"), ("proof-timeot", "proof-timeout")]
    {
        let Err(CommandError(exit, message)) = explained(asked) else { panic!("{asked} is known") };
        assert_eq!(exit, Exit::Usage);
        assert!(message.contains(&format!("the closest are: {meant}")), "{message}");
    }
}

#[test]
fn paragraphs_and_list_items_are_wrapped_but_code_and_tables_are_not() {
    let markdown = "One **bold** `code`,\nand [a link](#sizing).\n\n* An item that\n  goes on\n* and one more\n\n  ```sh\n  \
                    channeld status --watch\n  ```\n\n| a | b | and a wide cell |\n|---|---|---|\n";
    let expected = "One **bold** `code`,\nand [a\nlink](#sizing).\n\n* An item that goes\n  on\n* and one more\n\n  ```sh\n  \
                    channeld status --watch\n  ```\n\n| a | b | and a wide cell |\n|---|---|---|";
    assert_eq!(runbook::filled(markdown, 20), expected);
}
