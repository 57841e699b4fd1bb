use super::*;
use maud::Render;
use proptest::prelude::*;

#[test]
fn text_is_escaped_and_invisible_characters_are_shown() {
    assert_eq!(text("<script>'\"&").into_string(), "<bdi>&lt;script&gt;&#39;&quot;&amp;</bdi>");
    for (hidden, shown) in [
        ('\u{1b}', "␛"),
        ('\0', "␀"),
        ('\u{7f}', "␡"),
        ('\u{202e}', "U+202E"),
        ('\u{2066}', "U+2066"),
        ('\u{200b}', "U+200B"),
        ('\u{9b}', "U+009B"),
        ('\u{e0041}', "U+E0041"),
    ] {
        let html = text(&format!("a{hidden}b")).into_string();
        assert!(html.contains(shown) && !html.contains(hidden), "{html}");
    }
    assert_eq!(text("שלום").into_string(), "<bdi>שלום</bdi>");
    assert!(text(&"x".repeat(SHORT + 1)).into_string().ends_with("x…</bdi>"));
}

#[test]
fn a_highlighted_excerpt_is_escaped() {
    let html = marked("<script>\u{202e}", "<b>\u{1b}", "'</mark>").into_string();
    assert_eq!(html.matches("<mark>").count(), 1);
    assert_eq!(html.matches("</mark>").count(), 1);
    for part in ["&lt;script&gt;", "U+202E", "<mark>&lt;b&gt;", "␛", "&#39;&lt;/mark&gt;</bdi>"] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains('\u{202e}') && !html.contains('\u{1b}'), "{html}");
}

#[test]
fn json_has_one_member_per_line_and_exact_numbers() {
    let html = Json(r#"{"a":[1e400,{}],"b\"":"</pre>\u202e"}"#).render().into_string();
    for part in ["<bdi>1e400</bdi>", "{}", "&lt;/pre&gt;\\u202e", "class=\"k\"", "class=\"l d2\""] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert_eq!(html.matches("</pre>").count(), 1);
}

#[test]
fn a_long_id_is_shortened_in_the_middle() {
    let html = id("0x00112233445566778899aabbccddeeff00112233").into_string();
    assert!(html.contains(">0x0011…2233<") && html.contains("title=\"0x00112233445566778899"), "{html}");
    assert_eq!(id("short").into_string(), "<bdi>short</bdi>");
}

#[test]
fn a_sentence_has_a_capital_letter_and_a_full_stop() {
    for (message, expected) in [
        ("the report is of another event", "The report is of another event."),
        ("answered: no", "Answered: no."),
        ("0xab is unknown.", "0xab is unknown."),
        ("workflow_owner differs", "workflow_owner differs."),
        ("cut…", "Cut…"),
        ("", ""),
    ] {
        assert_eq!(sentence(message), expected);
    }
}

#[test]
fn only_a_failure_is_marked() {
    assert!(["failed", "reverted", "error"].into_iter().all(is_failure));
    assert!(!["confirmed", "completed", "deployed", ""].into_iter().any(is_failure));
}

#[test]
fn the_lines_of_a_hash_break_evenly() {
    let hash = format!("0x{}", "0123456789abcdef".repeat(4));
    let even = format!("0x{}", ["0123456789abcdef"; 4].join("<wbr>"));
    assert_eq!(long(&hash).into_string(), format!("<bdi>{even}</bdi>"));
    assert!(Json(&format!("[\"{hash}\"]")).render().into_string().contains(&format!("&quot;{even}&quot;")));
    let address = "0x00112233445566778899aabbccddeeff00112233";
    let (start, end) = address.split_at(22);
    assert_eq!(long(address).into_string(), format!("<bdi>{start}<wbr>{end}</bdi>"));
    assert_eq!(long("12,345").into_string(), "<bdi>12,<wbr>345</bdi>");
}

proptest! {
    #[test]
    fn text_never_starts_a_tag(any in ".{0,300}") {
        let marked = marked(&any, &any, &any);
        for html in [text(&any).into_string(), whole(&any).into_string(), long(&any).into_string(), marked.into_string(), Json(&any).render().into_string()] {
            for (at, _) in html.match_indices('<') {
                let rest = &html[at..];
                let ours = ["<wbr>", "<bdi>", "</bdi>", "<mark>", "</mark>", "<span class=", "</span>", "<pre class=\"json\"", "</pre>", "<p class=\"note\"", "</p>"];
                prop_assert!(ours.iter().any(|tag| rest.starts_with(tag)), "{rest}");
            }
            let hides = |c: char| c == '\u{1b}' || c == '\u{202e}' || c == '\0';
            prop_assert!(!html.contains(hides));
        }
    }
}
