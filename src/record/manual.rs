//! channeld-record(5): the hand-written part of the record's manual page, and the JSON Schema that is generated from it.
//!
//! # Invariants
//!
//! * **Complete.** Every field that can be written has a paragraph, and no other paragraph exists. A test renders records with
//!   every field and compares them with the page.
//! * **One description.** The manual page is the only source of names, types, and whether a field may be absent.

use serde_json::{Map, Value, json};

/// The description of the record, its fields and the other formats, as roff source.
pub const MANUAL: &str = include_str!("manual/manual.roff");

/// A sample record, broken into lines.
pub const EXAMPLE: &str = include_str!("manual/example.json");

/// The paragraph of `verification.digest` uses these words to say that the fields after it may be absent too.
const SO_DO_THE_NEXT: &str = "like the fields that follow";

struct Field {
    /// The parent object, and the field's name in it.
    within: Option<&'static str>,
    name: &'static str,
    schema: Value,
    is_required: bool,
}

/// Returns the schema of a record in the format `json`. Sinks receive this schema, and commands show it.
pub fn schema() -> Value {
    let fields = fields();
    let mut schema = object(&fields, None);
    for parent in fields.iter().filter(|field| field.within.is_none()) {
        if fields.iter().any(|field| field.within == Some(parent.name)) {
            let mut nested = object(&fields, Some(parent.name));
            nested["description"] = parent.schema["description"].clone();
            schema["properties"][parent.name] = nested;
        }
    }
    schema["properties"]["verification"]["properties"]["status"]["enum"] =
        json!(["verified", "unsigned", "pending", "rejected"]);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "channeld-record: the record that channeld delivers for an event".into();
    schema["description"] = "Later versions may add fields: ignore unknown ones.".into();
    schema
}

fn object(fields: &[Field], within: Option<&str>) -> Value {
    let own = || fields.iter().filter(|field| field.within == within);
    let properties: Map<_, _> = own().map(|field| (field.name.to_owned(), field.schema.clone())).collect();
    let required: Vec<_> = own().filter(|field| field.is_required).map(|field| field.name).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn fields() -> Vec<Field> {
    let (_, section) = MANUAL.split_once(".SH FIELDS\n").expect("the page has it");
    let (section, _) = section.split_once("\n.SH ").expect("others follow");
    let mut goes_on = None;
    let field = |paragraph: &'static str| {
        let (term, text) = paragraph.split_once('\n').expect("a term and its description");
        let (within, name) = match term.split_once('.') {
            Some((within, name)) => (Some(within), name),
            None => (None, term),
        };
        let text = plain(text);
        if text.contains(SO_DO_THE_NEXT) {
            goes_on = Some(within);
        }
        let may_lack = goes_on == Some(within) || ["Absent", "Never delivered"].iter().any(|word| text.contains(word));
        Field { within, name, schema: described(&text), is_required: !may_lack }
    };
    section.split(".TP\n.B ").skip(1).map(field).collect()
}

/// Derives a field's schema from its paragraph, which begins with the type.
fn described(text: &str) -> Value {
    let first = text.split(['.', ';']).next().unwrap_or_default();
    let hex = |digits: &str| json!({"type": "string", "pattern": format!("^0x[0-9a-fA-F]{digits}$")});
    let of_text = || match first {
        _ if text.contains("0x and 64 hex digits") => hex("{64}"),
        _ if text.contains("0x and 40 hex digits") => hex("{40}"),
        _ if text.contains("0x and 130 hex digits") => hex("{130}"),
        _ if text.contains("0x and hex") => hex("*"),
        _ if text.contains("RFC 3339") => json!({"type": "string", "format": "date-time"}),
        _ if first.contains("UUID") => json!({"type": "string", "format": "uuid"}),
        _ => json!({"type": "string"}),
    };
    let mut schema = match first {
        _ if first.starts_with("A list of texts") => json!({"type": "array", "items": of_text()}),
        _ if first.starts_with("A text") => of_text(),
        _ if first.starts_with("A number") => json!({"type": "integer", "minimum": 0}),
        _ if first.starts_with("An object") => json!({"type": "object"}),
        _ => json!({}),
    };
    if text.contains("null where") {
        schema["type"] = json!([schema["type"].clone(), "null"]);
    }
    schema["description"] = text.into();
    schema
}

/// Removes the markup of manual pages.
fn plain(text: &str) -> String {
    let line = |line: &str| match line.split_once(' ') {
        Some((".B", rest)) => rest.to_owned(),
        // roff prints these parts without a space between them.
        Some((".BR", rest)) => rest.replace(' ', ""),
        _ => line.to_owned(),
    };
    let text = text.lines().map(line).collect::<Vec<_>>().join(" ");
    text.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-")
}

#[cfg(test)]
mod tests;
