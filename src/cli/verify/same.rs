//! Whether two JSON texts mean the same to every reader.
//!
//! Space, the order of members and the way characters are escaped make no difference; a member that stands there twice
//! does, because readers differ in which they take. Numbers are compared as they are written: they may exceed what any
//! number here can hold.

use serde_json::value::RawValue;

use crate::event::Object;

/// Texts nested deeper than this are taken for different.
const MAX_DEPTH: usize = 128;

/// Compares two JSON texts without space around them.
pub(super) fn same(one: &str, other: &str) -> bool {
    one == other || same_at(one, other, MAX_DEPTH)
}

fn same_at(one: &str, other: &str, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match (one.as_bytes().first(), other.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => same_members(one, other, depth).unwrap_or(false),
        (Some(b'['), Some(b'[')) => same_items(one, other, depth).unwrap_or(false),
        (Some(b'"'), Some(b'"')) => text(one).is_some_and(|text_of_one| Some(text_of_one) == text(other)),
        _ => one == other,
    }
}

fn same_members(one: &str, other: &str, depth: usize) -> Option<bool> {
    let (one, other) = (Object::read(one.as_bytes()).ok()?, Object::read(other.as_bytes()).ok()?);
    let (one, other) = (one.sorted(), other.sorted());
    let mut pairs = one.iter().zip(&other);
    let same = pairs.all(|((name, value), (other_name, other_value))| {
        name == other_name && same_at(value.get(), other_value.get(), depth)
    });
    Some(one.len() == other.len() && same)
}

fn same_items(one: &str, other: &str, depth: usize) -> Option<bool> {
    let items = |text| serde_json::from_str::<Vec<&RawValue>>(text).ok();
    let (one, other) = (items(one)?, items(other)?);
    Some(one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| same_at(one.get(), other.get(), depth)))
}

fn text(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
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
}
