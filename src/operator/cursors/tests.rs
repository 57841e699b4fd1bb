use super::*;

#[test]
fn a_move_says_how_far_it_goes_and_which_way() {
    let cases = [
        (Some(10), Some(3), (7, 0)),
        (Some(3), Some(10), (0, 7)),
        (Some(3), None, (4, 0)),
        (None, Some(0), (0, 1)),
        (None, None, (0, 0)),
    ];
    for (from, to, expected) in cases {
        let cursor = |through: Option<i64>| Cursor { through: through.and_then(Offset::new) };
        let moved = CursorMove::between("s", cursor(from), cursor(to));
        assert_eq!((moved.repeated, moved.passed_over), expected, "{from:?} to {to:?}");
    }
}
