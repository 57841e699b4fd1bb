use std::borrow::Cow;

use super::*;
use proof::event::Offset;
use record::Readable;

fn event(offset: i64) -> (EventLine, String) {
    let parts = Readable {
        verdict: Cow::Borrowed("verified"),
        channel: "settlements".to_owned(),
        offset: Offset::new(offset).unwrap(),
        time: "2026-05-14T12:00:15Z".to_owned(),
        kind: "watcher.event".to_owned(),
        what: "dvp.Transfer".to_owned(),
        proof: "4 of 4 signatures".to_owned(),
    };
    (EventLine { parts, is_late: false }, format!(r#"{{"offset":{offset}}}"#))
}

fn printer(json: bool, with_colours: bool, left: Option<u64>) -> Printer {
    Printer { json, with_colours, layout: Layout::of(None, ["settlements"]), left }
}

#[test]
fn it_prints_as_many_events_as_were_asked_for_and_no_more() {
    let mut out = Vec::new();
    let mut printer = printer(true, false, Some(3));
    assert!(!printer.print(&mut out, [event(1), event(2)]).unwrap());
    assert!(printer.print(&mut out, [event(3), event(4)]).unwrap());
    assert_eq!(String::from_utf8(out).unwrap(), "{\"offset\":1}\n{\"offset\":2}\n{\"offset\":3}\n");
}

#[test]
fn colours_are_written_where_they_are_wanted_alone() {
    for with_colours in [true, false] {
        let mut out = Vec::new();
        printer(false, with_colours, None).print(&mut out, [event(1)]).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.contains('\u{1b}'), with_colours, "{text:?}");
        assert!(text.contains("settlements") && text.contains("dvp.Transfer"), "{text}");
    }
}
