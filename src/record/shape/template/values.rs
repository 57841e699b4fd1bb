//! JSON values as templates see them.
//!
//! # Invariants
//!
//! * **Nothing is rounded.** A number that neither 128 bits nor a double can represent exactly becomes a string of its
//!   digits.
//! * **Nothing fails.** JSON that cannot be read, such as a string with half a surrogate pair, becomes a string of its
//!   source text.

use std::sync::Arc;

use indexmap::IndexMap;
use minijinja::Value;
use minijinja::value::{Enumerator, Object as Dynamic};
use serde_json::value::RawValue;

use proof::event::Object;

/// The members that contain the names that the operator's contracts define. A sample cannot contain these names.
const OPEN: [&str; 2] = ["params", "data"];

/// The value of a name that the sample does not contain.
const ANY: &str = "1500000";

/// An object, with its members in order.
pub(super) type Map = IndexMap<Value, Value>;

/// The origin of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Event,
    /// A sample. Inside the members of [`OPEN`], every name has a value.
    Sample,
}

pub(super) fn value(json: &str, origin: Origin) -> Value {
    let json = json.trim();
    read(json, origin).unwrap_or_else(|| json.into())
}

fn read(json: &str, origin: Origin) -> Option<Value> {
    match json.as_bytes().first()? {
        b'{' => {
            let object = Object::read(json.as_bytes()).ok()?;
            let member = |(name, json): (&str, &RawValue)| (Value::from(name), member(name, json.get(), origin));
            Some(object.members().map(member).collect::<Map>().into())
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            Some(items.into_iter().map(|item| value(item.get(), origin)).collect::<Vec<_>>().into())
        }
        b'"' => serde_json::from_str::<String>(json).ok().map(Value::from),
        b't' => Some(true.into()),
        b'f' => Some(false.into()),
        b'n' => Some(().into()),
        _ => number(json),
    }
}

fn member(name: &str, json: &str, origin: Origin) -> Value {
    let value = value(json, origin);
    if origin == Origin::Sample && OPEN.contains(&name) { Value::from_object(Open(value)) } else { value }
}

fn number(digits: &str) -> Option<Value> {
    let whole = digits.parse::<i128>().map(Value::from).or_else(|_| digits.parse::<u128>().map(Value::from));
    let exact = |number: &f64| number.to_string() == digits;
    whole.ok().or_else(|| digits.parse().ok().filter(exact).map(Value::from))
}

/// The value of a member of [`OPEN`] in a sample: every name in it has a value.
#[derive(Debug)]
struct Open(Value);

impl Dynamic for Open {
    fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
        let known = self.0.get_item(name).ok().filter(|value| !value.is_undefined());
        Some(known.unwrap_or_else(|| ANY.into()))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.try_iter().map(Iterator::collect).unwrap_or_default())
    }
}
