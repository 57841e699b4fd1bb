use super::*;

fn line(lines: &mut Lines, length: usize) -> Bytes {
    let (line, said, _) = lines.write(|line| line.resize(length, 7));
    assert_eq!((line.to_vec(), said), (vec![7; length], ()));
    line
}

#[test]
fn lines_stand_one_behind_the_other_as_far_as_there_is_room() {
    let mut lines = Lines::of(3);
    let [first, second, too_long, fourth] = [100, 200, 300, 50].map(|length| line(&mut lines, length));
    assert_eq!(second.as_ptr(), first.as_ptr_range().end);
    assert_ne!(too_long.as_ptr(), second.as_ptr_range().end);
    drop((first, second, too_long));
    assert_eq!(fourth, [7; 50][..]);
}

#[test]
fn no_room_is_taken_for_what_is_not_expected_nor_much_ahead() {
    let mut lines = Lines::default();
    line(&mut lines, 100);
    assert_eq!(lines.block.capacity(), 0);
    let mut lines = Lines::of(usize::MAX);
    line(&mut lines, 100);
    assert_eq!(lines.block.capacity(), AHEAD - 100);
    line(&mut lines, 2 * AHEAD);
    assert_eq!(lines.block.capacity(), 0);
}
