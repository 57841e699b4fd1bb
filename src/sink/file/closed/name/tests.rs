use super::*;
use crate::tests::offset;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_name_is_read_back_as_it_was_written() {
    let (first, last) = (Some(offset(7)), Some(offset(15_520)));
    let at = time("2024-05-14T12:00:15.000123Z");
    for (template, name) in [
        ("events-{time}.jsonl", "events-20240514T120015.000123Z.jsonl"),
        ("{time}", "20240514T120015.000123Z"),
        ("{time}{first}-{last}", "20240514T120015.000123Z7-15520"),
        ("a-{time}-{last}-{first}.log", "a-20240514T120015.000123Z-15520-7.log"),
    ] {
        let template = ClosedName::parse(template).unwrap();
        assert_eq!(template.write(at, first, last), name);
        assert_eq!(template.read(name), Some(at));
        for other in ["", "events.jsonl", &name[1..], &name[..name.len() - 1], &format!("{name}.gz")] {
            assert!(template.read(other).is_none_or(|read| read != at || other.len() < name.len()), "{other}");
        }
        assert!(template.claims(&format!(".{name}.gz.tmp")) && template.claims(&format!("{name}.keep")));
    }
    let template = ClosedName::beside(Path::new("/var/lib/events.jsonl"));
    assert_eq!(template.to_string(), "events-{time}.jsonl");
    for other in ["events-20241414T120015.000123Z.jsonl", "events-20240514T120015.000123.jsonl", "events-x.jsonl"] {
        assert_eq!(template.read(other), None, "{other}");
    }
}

#[test]
fn names_sort_in_closing_order_even_if_the_clock_went_back() {
    let template = ClosedName::parse("{time}-{first}").unwrap();
    let mut last: Option<Timestamp> = None;
    let mut before = String::new();
    for (second, first) in [(1_700_000_000, 99), (1_700_000_000, 5), (1_600_000_000, 1000), (1_700_000_001, 0)] {
        let time = closing_time(last, Timestamp::from_second(second).unwrap());
        let name = template.write(time, Some(offset(first)), None);
        assert!(name > before && last.is_none_or(|last| last < time), "{name}");
        (last, before) = (Some(time), name);
    }
}

#[test]
fn ambiguous_name_templates_are_refused() {
    for template in [
        "events.jsonl",
        "",
        "{first}-{time}",
        "{time}{time}",
        "{time}-{first}{last}",
        "{time}-{first}0.jsonl",
        "{time}-{number}",
        "{time}}",
        "closed/{time}",
        ".{time}",
        "{time}.gz",
        "{time}.zst",
        "{time}.keep",
        "{time}.tmp",
        &format!("{{time}}{}", "x".repeat(200)),
    ] {
        assert!(ClosedName::parse(template).is_err(), "{template}");
    }
    let name = |template| ClosedName::parse(template).unwrap();
    assert!(name("a-{time}-{first}").overlaps(&name("a-{time}-{last}")));
    assert!(!name("a-{time}.jsonl").overlaps(&name("a-b-{time}.jsonl")));
}
