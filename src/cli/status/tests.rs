use super::*;

#[test]
fn a_time_is_said_in_the_largest_unit_that_tells() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let cases = [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 d"), (-5, "0 s")];
    for (seconds, said) in cases {
        assert_eq!(ago(Timestamp::from_second(1_000_000 - seconds).unwrap(), now), said);
    }
}
