use super::*;

#[test]
fn a_target_is_a_word_or_an_offset() {
    assert_eq!(target("earliest"), Ok(Target::Earliest));
    assert_eq!(target("latest"), Ok(Target::Latest));
    assert_eq!(target("7"), Ok(Target::Offset(Offset::new(7).unwrap())));
    for wrong in ["-1", "newest", "", "1.5"] {
        assert!(target(wrong).is_err(), "{wrong}");
    }
}
