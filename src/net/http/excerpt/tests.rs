use super::*;

#[test]
fn what_is_shown_is_one_bounded_line_without_control_characters_and_secrets() {
    assert_eq!(one_line("<p>\n  no\u{1b}[31m key-1\r\n</p>", &["key-1", ""]), "<p> no\\u{1b}[31m [secret] </p>");
    let long = one_line(&"ü".repeat(1000), &[]);
    assert_eq!((long.chars().count(), long.ends_with('…')), (SHOWN + 1, true));
}
