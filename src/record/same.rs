//! Decides whether two JSON texts mean the same to every reader.
//!
//! Whitespace, the order of members and the escaping of characters make no difference. A duplicate member does, because
//! readers differ in which one they use. Numbers are compared as text, because they may exceed the range of every number
//! type.

use serde_json::value::RawValue;

use proof::event::Object;

/// Texts that are nested deeper than this are considered different, unless they are identical.
const MAX_DEPTH: usize = 128;

/// The meaning of a JSON text, as far as all readers agree on it.
#[derive(PartialEq)]
enum Meaning<'a> {
    /// The members by name.
    Object(Vec<(String, Meaning<'a>)>),
    Array(Vec<Meaning<'a>>),
    Text(String),
    /// A number or a literal, as it is written.
    Plain(&'a str),
}

/// Compares two JSON texts that have no whitespace around them.
pub(super) fn same(one: &str, other: &str) -> bool {
    one == other || meaning(one, MAX_DEPTH).is_some_and(|one| Some(one) == meaning(other, MAX_DEPTH))
}

/// `None` if the text is not JSON, or is nested deeper than `depth`.
fn meaning(json: &str, depth: usize) -> Option<Meaning<'_>> {
    let depth = depth.checked_sub(1)?;
    Some(match json.as_bytes().first()? {
        b'{' => {
            let object = Object::read(json.as_bytes()).ok()?;
            let members = object.sorted().into_iter();
            let members = members.map(|(name, value)| Some((name.to_owned(), meaning(value.get(), depth)?)));
            Meaning::Object(members.collect::<Option<_>>()?)
        }
        b'[' => {
            let items = serde_json::from_str::<Vec<&RawValue>>(json).ok()?;
            Meaning::Array(items.into_iter().map(|item| meaning(item.get(), depth)).collect::<Option<_>>()?)
        }
        b'"' => Meaning::Text(serde_json::from_str(json).ok()?),
        _ => Meaning::Plain(json),
    })
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
