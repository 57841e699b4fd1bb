use super::*;

#[test]
fn it_names_the_commit_and_its_day_where_they_are_known() {
    assert_eq!(written("0.1.0", None, None), "0.1.0");
    assert_eq!(written("0.1.0", Some("abc1234"), None), "0.1.0 (abc1234)");
    assert_eq!(written("0.1.0", Some("abc1234-dirty"), Some("2026-11-20")), "0.1.0 (abc1234-dirty 2026-11-20)");
}

#[test]
fn a_day_is_that_of_utc() {
    assert_eq!(day("1795132799").as_deref(), Some("2026-11-19"));
    assert_eq!(day("1795132800").as_deref(), Some("2026-11-20"));
    assert_eq!(day("soon"), None);
}
