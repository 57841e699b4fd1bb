use super::*;

#[test]
fn seconds_and_dates_are_read_bounded_and_nonsense_is_none() {
    let now = httpdate::parse_http_date("Tue, 14 May 2024 12:00:00 GMT").expect("a date");
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (text, expected) in [
        ("0", seconds(0)),
        (" 7 ", seconds(7)),
        ("3601", seconds(3600)),
        ("99999999999999999999999", seconds(3600)),
        ("Tue, 14 May 2024 12:00:30 GMT", seconds(30)),
        ("Tue, 14 May 2024 11:59:59 GMT", seconds(0)),
        ("Wed, 15 May 2024 12:00:00 GMT", seconds(3600)),
        ("Tuesday, 14-May-24 12:00:05 GMT", seconds(5)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
    ] {
        assert_eq!(read(text, now), expected, "{text:?}");
    }
}
