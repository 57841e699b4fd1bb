use super::*;
use proof::event::Offset;

fn event(verdict: &'static str, channel: &str, what: &str) -> EventLine {
    let parts = Readable {
        verdict: verdict.into(),
        channel: channel.to_owned(),
        offset: Offset::new(15520).unwrap(),
        time: "2026-05-14T12:00:15Z".to_owned(),
        kind: "watcher.event".to_owned(),
        what: what.to_owned(),
        proof: "4 of 4 signatures".to_owned(),
        confidence: String::new(),
    };
    EventLine { parts, position: None, is_late: false }
}

/// Removes colors.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn lines_fit_the_terminal_and_keep_verdict_and_offset() {
    let long = "w".repeat(300);
    let wide = "結".repeat(300);
    for width in [20, 40, 79, 80, 100, 111, 112, 140, 400] {
        for channel in ["", "settlements", &long, &wide] {
            for what in ["", "dvp.SettlementAccepted", &long, &wide] {
                for is_late in [false, true] {
                    let event = EventLine { is_late, ..event("verified", channel, what) };
                    let channels = Some(channel).filter(|channel| !channel.is_empty());
                    let lines = plain(&Layout::of(Some(width), channels).lines(&event));
                    for line in lines.lines() {
                        assert!(line.width() <= width, "{width}: {line}");
                    }
                    assert!(lines.contains("verified"), "{lines}");
                    assert!(width < 40 || lines.contains("15520"), "{lines}");
                }
            }
        }
    }
}

#[test]
fn eighty_columns_show_event_and_proof() {
    let mut layout = Layout::of(Some(80), None);
    let first = plain(&layout.lines(&event("verified", "c", "dvp.SettlementAccepted")));
    let line = "verified 15520 12:00:15  dvp.SettlementAccepted                     4 of 4";
    assert_eq!(first, format!("2026-05-14 UTC\n{line}"), "the day precedes its first event");
    assert_eq!(plain(&layout.lines(&event("verified", "c", "dvp.SettlementAccepted"))), line, "no other event");

    let mut layout = Layout::of(Some(80), ["settlements"]);
    let lines = plain(&layout.lines(&event("verified", "settlements", "dvp.SettlementAccepted")));
    assert!(lines.ends_with("verified settlements 15520 12:00:15  dvp.SettlementAccepted         4 of 4"), "{lines}");
}

#[test]
fn without_a_terminal_a_line_has_the_text_format() {
    let event = event("verified", "settlements", "dvp.SettlementAccepted");
    assert_eq!(plain(&Layout::of(None, ["settlements"]).lines(&event)), event.parts.to_string());
    let parts = Readable { confidence: "safe".to_owned(), ..event.parts.clone() };
    let event = EventLine { parts, is_late: true, ..event };
    let line = plain(&Layout::of(None, ["settlements"]).lines(&event));
    assert_eq!(line, format!("{}, late", event.parts));
    for width in [100, 140] {
        let line = plain(&Layout::of(Some(width), ["settlements"]).lines(&event));
        assert!(line.contains("safe"), "{line}");
    }
}

#[test]
fn an_event_of_a_feed_is_shown_with_its_position_instead_of_its_offset() {
    let event = EventLine { position: Some(31), ..event("verified", "settlements", "dvp.SettlementAccepted") };
    for width in [None, Some(80), Some(140)] {
        let lines = plain(&Layout::of(width, None).lines(&event));
        assert!(lines.contains("verified    31 ") && !lines.contains("15520"), "{lines}");
    }
}

#[test]
fn the_proofs_of_events_with_and_without_a_confidence_align() {
    for width in [80, 140] {
        let mut layout = Layout::of(Some(width), None);
        let mut column = |confidence: &str| {
            let event = event("verified", "c", "dvp.SettlementAccepted");
            let parts = Readable { confidence: confidence.to_owned(), ..event.parts };
            let lines = plain(&layout.lines(&EventLine { parts, position: None, is_late: false }));
            lines.lines().last().unwrap().find("4 of 4").unwrap()
        };
        let first = column("finalized");
        assert_eq!([column(""), column("safe")], [first, first], "{width}");
    }
}
