use super::*;

#[test]
fn only_what_every_reader_takes_for_the_same_is_the_same() {
    for (one, other, expected) in [
        (r#"{"a":1,"b":[true,null]}"#, r#"{ "b" : [ true , null ] , "a" : 1 }"#, true),
        (r#"{"é":"ü"}"#, r#"{"\u00e9":"\u00fc"}"#, true),
        (r#"{"a":1}"#, r#"{"a":1.0}"#, false),
        ("123456789012345678901234567890", "123456789012345678901234567891", false),
        (r#"{"a":1}"#, r#"{"a":1,"a":1}"#, false),
        (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#, false),
        (r#"{"a":1}"#, r#"{"A":1}"#, false),
        ("[1,2]", "[2,1]", false),
        ("[1]", "[1,1]", false),
        (r#""1""#, "1", false),
    ] {
        assert_eq!(same(one, other), expected, "{one} {other}");
    }
    let deep = "[".repeat(1000) + &"]".repeat(1000);
    assert!(same(&deep, &deep), "to the letter");
    assert!(!same(&deep, &format!("{deep} ")), "too deep to be compared");
}
