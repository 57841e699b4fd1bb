use super::*;

#[test]
fn a_time_is_read_in_each_way_that_operators_write_it() {
    let now: Timestamp = "2026-05-14T12:00:00Z".parse().unwrap();
    for (text, time) in [
        ("2026-05-14T11:00:00Z", "2026-05-14T11:00:00Z"),
        ("2026-05-14T13:00:00+02:00", "2026-05-14T11:00:00Z"),
        ("2026-05-14T11:00", "2026-05-14T11:00:00Z"),
        ("2026-05-14", "2026-05-14T00:00:00Z"),
        ("1778756400", "2026-05-14T11:00:00Z"),
        ("1h", "2026-05-14T11:00:00Z"),
        ("90m", "2026-05-14T10:30:00Z"),
    ] {
        assert_eq!(at(text, now), Some(time.parse().unwrap()), "{text}");
    }
    for text in ["", "yesterday", "5 parsec", "2026-13-01", "-1h"] {
        assert_eq!(at(text, now), None, "{text}");
    }
    assert_eq!(seconds("1100"), Ok(1100));
    assert!(seconds("-1").is_err() && seconds("1960-01-01").is_err());
}
