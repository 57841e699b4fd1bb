use super::*;
use channel::Rejection;

const ALERTS: &str = include_str!("../../../../deploy/prometheus/alerts.yaml");

fn explained(reason: &str) -> Result<String, Failure> {
    let mut out = Vec::new();
    let args = Args { reason: reason.split(' ').map(str::to_owned).collect(), json: false };
    run(&args, &mut out).map(|_| String::from_utf8(out).unwrap())
}

fn alerts() -> Vec<&'static str> {
    ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

#[test]
fn every_reason_of_a_rejection_and_every_alert_is_explained_and_listed() {
    let topics = runbook::topics();
    let list = list(&topics);
    assert!(Rejection::reasons().count() > 10 && alerts().len() > 20);
    for (kind, reason) in
        Rejection::reasons().map(|it| (Kind::Rejection, it)).chain(alerts().into_iter().map(|it| (Kind::Alert, it)))
    {
        let (topic, name) = runbook::find(&topics, reason).unwrap_or_else(|| panic!("{reason} is not explained"));
        assert_eq!((topic.kind, name), (kind, reason));
        assert!(topic.summary.len() > 10 && explained(reason).unwrap().len() > 100, "{topic:?}");
        assert!(list.contains(&format!("\n  {reason} ")), "{reason} is not in\n{list}");
    }
}

#[test]
fn a_reason_that_is_printed_is_explained_by_the_row_that_quotes_it() {
    let topics = runbook::topics();
    for (printed, row) in [
        ("channel settlements: its late events are full: reading waits for their proofs", "its late events are full"),
        ("its late events are full: reading waits", "its late events are full"),
        ("channel settlements, sink ledger: 401 Unauthorized", "sink …"),
        ("channel a: 15 of the last 15 rejected (wrong-owner): check org_id", "of the last 15"),
        ("the state cannot be written: no such file", "the state cannot be written"),
        ("no daemon runs", "no daemon runs"),
        ("/var/lib/channeld is in use by another channeld", "is in use by another channeld"),
    ] {
        let (topic, name) = runbook::find(&topics, printed).unwrap_or_else(|| panic!("{printed}"));
        assert!(name.contains(row) && topic.kind.is_quoted(), "{printed}: {name}");
    }
}

#[test]
fn each_topic_can_be_asked_for_by_its_name_and_leads_only_to_others() {
    for topic in runbook::topics() {
        for name in &topic.names {
            let text = explained(name).unwrap_or_else(|failure| panic!("{name}: {failure}"));
            for next in text.lines().filter_map(|line| line.strip_prefix("  channeld explain ")) {
                assert!(explained(next).is_ok() && next != name, "{name} leads to {next}");
            }
        }
    }
}

#[test]
fn what_is_printed_fits_a_terminal_and_has_no_marks_left() {
    for topic in runbook::topics() {
        let text = topic.text(WIDTH);
        for line in text.lines().filter(|line| !line.starts_with("    ")) {
            assert!(line.chars().count() <= WIDTH, "{line}");
            assert!(!["**", "](", "`", "```"].iter().any(|mark| line.contains(mark)), "{line}");
        }
    }
    for line in list(&runbook::topics()).lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
}

#[test]
fn an_unknown_reason_names_the_nearest_and_is_a_mistake_of_usage() {
    for (asked, meant) in
        [("too-few-signature", "too-few-signatures"), ("stalled", "ChanneldStalled"), ("proof-timeot", "proof-timeout")]
    {
        let Err(Failure(exit, message)) = explained(asked) else { panic!("{asked} is known") };
        assert_eq!(exit, Exit::Usage);
        assert!(message.contains(&format!("the nearest are: {meant}")), "{message}");
    }
}

#[test]
fn markdown_becomes_plain_text() {
    let markdown = "One **bold** `code`,\nand [a link](#sizing).\n\n* An item\n  goes on\n\n  ```sh\n  channeld status\n  ```\n\n\
                    | a | b | c |\n|---|---|---|\n| `x` | y | z |\n";
    let expected =
        "One bold code, and a\nlink (Sizing).\n\n* An item goes on\n\n      channeld status\n\nx\n    b: y\n    c: z";
    assert_eq!(text::plain(markdown, 20), expected);
}
