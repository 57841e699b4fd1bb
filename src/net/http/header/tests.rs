use super::*;

#[test]
fn a_value_is_sent_and_not_shown() {
    let value = basic("Aladdin", "open sesame");
    // The example of RFC 7617.
    assert_eq!(value.as_bytes(), b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    assert_eq!(format!("{value:?}"), "Sensitive");
    assert_eq!(sensitive("two\nlines"), None);
}
