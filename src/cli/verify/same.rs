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
mod tests;
