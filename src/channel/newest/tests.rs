use super::*;

fn at(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn an_unconfirmed_offset_is_forgotten_once_it_is_verified_and_never_counts_again() {
    let mut newest = Newest::default();
    newest.shown([at(9_000_000), at(12)], second(1));
    newest.placed(at(12), second(2));
    newest.unconfirmed(at(9_000_000));
    assert_eq!(newest.offset(), Some(at(12)));
    newest.shown([at(9_000_000), at(13), at(12)], second(3));
    assert_eq!(newest.offset(), Some(at(13)));
    assert_eq!(newest.since(Some(at(12))), Some(second(3)));
    assert_eq!(newest.since(Some(at(13))), None);
}

#[test]
fn an_offset_that_is_no_longer_shown_is_forgotten_when_all_has_been_read() {
    let mut newest = Newest::default();
    newest.placed(at(5), second(1));
    newest.shown([at(40)], second(2));
    newest.nothing_above();
    assert_eq!((newest.offset(), newest.since(Some(at(5)))), (Some(at(5)), None));
}

#[test]
fn since_when_the_oldest_waits_is_exact_however_much_comes_after_it() {
    let mut newest = Newest::default();
    for offset in 1..=100_000 {
        newest.shown([at(offset)], second(offset));
        if offset == 70_000 {
            newest.dealt_with(Some(at(69_999)));
        }
    }
    assert_eq!(newest.since(Some(at(69_999))), Some(second(70_000)));
    assert!(newest.marks.len() <= MAX_MARKS);
    newest.dealt_with(Some(at(100_000)));
    assert_eq!(newest.since(Some(at(99_999))), None);
}
