//! The JSON Schema of the configuration file, derived from `config/default.toml`.
//!
//! # Invariants
//!
//! * **One list of keys.** A test checks that the documented keys are exactly the keys that are read. The schema contains
//!   the documented keys and has no list of its own.
//! * **Never stricter than the reader** about the content of a file. Rules that involve several keys are left to
//!   `channeld check`.

use std::collections::BTreeMap;

use figment::providers::{Format as _, Toml};
use serde_json::{Map, Value, json};
use strum::VariantNames;

use super::sources::layer::DEFAULTS;
use super::tables::sink::SinkType;
use super::tables::state::Backend;
use ::channel::{Ordering, UnsignedPolicy};
use ::record::{Format, Shipped};
use ::sink::{Credentials, Mechanism, Search};
use telemetry::LogFormat;

/// The compression of closed files and of bodies.
const COMPRESSIONS: [&str; 3] = ["none", "gzip", "zstd"];

/// The types of sinks that store whole events, and the formats that contain whole events.
const READ_BACK: [&str; 3] = ["file", "postgres", "sqlite"];
const WHOLE: [&str; 3] = ["json", "cloudevents", "raw"];

/// Tables whose keys the operator chooses.
const NAMED_BY_THE_OPERATOR: [&str; 5] =
    ["template_values", "template_value_files", "headers", "header_files", "signer_names"];

/// The pattern for names of channels and sinks.
const NAME: &str = "^[A-Za-z0-9]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?$";

/// The placeholder for a name that the operator chooses.
const ANY: &str = "NAME";

/// Returns the schema of the file.
pub fn schema() -> Value {
    let documented = Documented::read();
    let mut schema = documented.table(&[], &documented.values);
    let filter = documented.filter();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "channeld.toml: the configuration of channeld".into();
    schema["$defs"] = json!({"filter": filter});
    schema
}

/// The content of `default.toml`.
struct Documented {
    /// Every key with its default or an example.
    values: Map<String, Value>,
    /// The explanation of each key and table, by its path.
    texts: BTreeMap<String, String>,
    /// The keys that have a default.
    defaults: Vec<String>,
}

impl Documented {
    fn read() -> Self {
        let opened: Vec<_> = DEFAULTS.lines().map(|line| key_of(line).unwrap_or(line)).collect();
        let values = Toml::from_str(&opened.join("\n")).expect("a test reads the file with its comments opened");
        let (mut texts, mut defaults) = (BTreeMap::new(), Vec::new());
        let (mut table, mut text, mut is_used) = (String::new(), Vec::new(), false);
        for line in DEFAULTS.lines() {
            if let Some(said) = line.strip_prefix("# ") {
                if is_used {
                    text.clear();
                    is_used = false;
                }
                text.push(said);
                continue;
            }
            let opened = key_of(line).unwrap_or(line);
            if let Some(name) = opened.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.clone_into(&mut table);
                texts.insert(table.clone(), text.join(" "));
                text.clear();
            } else if let Some((name, _)) = opened.split_once(" = ") {
                let key = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
                texts.insert(key.clone(), text.join(" "));
                if key_of(line).is_none() {
                    defaults.push(key);
                }
                is_used = true;
            } else if line.is_empty() || line == "#" {
                text.clear();
            }
        }
        Self { values, texts, defaults }
    }

    /// The explanation of a key: its own text or, if a table repeats a key of another table, the text there.
    fn text(&self, path: &[&str]) -> Option<String> {
        let own = self.texts.get(&path.join("."));
        let is_said = |text: &&String| !text.is_empty() && *text != "As for standard output.";
        let first = || {
            let name = format!(".{}", path.last()?);
            let mut others = self.texts.iter().filter(|(key, _)| key.ends_with(&name)).map(|(_, text)| text);
            others.find(is_said)
        };
        own.filter(is_said).or_else(first).cloned()
    }

    fn table(&self, path: &[&str], values: &Map<String, Value>) -> Value {
        let mut properties = Map::new();
        for (name, value) in values {
            let path: Vec<_> = path.iter().copied().chain([name.as_str()]).collect();
            properties.insert(name.clone(), self.property(&path, value));
        }
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if let Some(text) = self.text(path) {
            schema["description"] = text.into();
        }
        schema
    }

    fn property(&self, path: &[&str], value: &Value) -> Value {
        let members = value.as_object();
        let described = |mut schema: Value| {
            if let Some(text) = self.text(path) {
                schema["description"] = text.into();
            }
            schema
        };
        match (path, members) {
            (["channels"], Some(channels)) => {
                let channel = self.table(&["channels", ANY], channels[ANY].as_object().expect("it is a table"));
                described(named(&channel))
            }
            (["sinks"], Some(sinks)) => described(named(&json!({"oneOf": self.sinks(sinks)}))),
            ([.., "filters"], Some(_)) => {
                described(json!({"type": "object", "additionalProperties": {"$ref": "#/$defs/filter"}}))
            }
            ([.., "filter"], _) => json!({"$ref": "#/$defs/filter"}),
            ([.., name], Some(_)) if NAMED_BY_THE_OPERATOR.contains(name) => {
                let text = Some(values_text(self, path)).filter(|text| !text.is_empty());
                let text = text.or_else(|| self.text(path)).unwrap_or_default();
                json!({"type": "object", "additionalProperties": {"type": "string"}, "description": text})
            }
            (_, Some(members)) => self.table(path, members),
            (_, None) => described(self.scalar(path, value)),
        }
    }

    /// One schema for each type.
    fn sinks(&self, documented: &Map<String, Value>) -> Vec<Value> {
        let of_type = |word: &&str| {
            let name = format!("{ANY}-{word}");
            let mut values = documented[&name].as_object().expect("a test finds each type there").clone();
            let is_whole = READ_BACK.contains(word);
            for (key, value) in documented["NAME-stdout"].as_object().expect("it is a table") {
                // These keys are documented only once, at the first type that has them.
                let has_it =
                    if key.starts_with("template") { !is_whole } else { key == "per_instance" && *word == "file" };
                if has_it {
                    values.entry(key).or_insert_with(|| value.clone());
                }
            }
            let mut sink = self.table(&["sinks", &name], &values);
            sink["properties"]["type"] = json!({"const": word, "description": "Where events go."});
            sink["required"] = json!(["type"]);
            sink["title"] = format!("type = {word:?}").into();
            sink
        };
        SinkType::VARIANTS.iter().map(of_type).collect()
    }

    /// The schema of a filter. Only the file sink documents the filter in full.
    fn filter(&self) -> Value {
        let path = ["sinks", "NAME-file", "filter"];
        let fields = self.values["sinks"]["NAME-file"]["filter"].as_object().expect("it is written out there");
        let text = self.texts.get("sinks.NAME-file.filter.type").cloned().unwrap_or_default();
        let mut table = self.table(&path, fields);
        for field in table["properties"].as_object_mut().expect("it has some").values_mut() {
            field.as_object_mut().expect("a schema is an object").remove("description");
        }
        json!({"description": text, "oneOf": [{"const": "failures"}, table]})
    }

    fn scalar(&self, path: &[&str], value: &Value) -> Value {
        let mut schema = match (words(path), value) {
            (Some(words), _) => json!({"enum": words}),
            (None, Value::Bool(_)) => json!({"type": "boolean"}),
            (None, Value::Number(_)) => json!({"type": ["integer", "string"]}),
            (None, Value::Array(_)) => json!({
                "type": ["array", "string"],
                "items": {"type": ["string", "integer"]},
            }),
            // The reader also accepts a number for a text of digits.
            (None, Value::String(text)) if text.parse::<u64>().is_ok() || path.ends_with(&["start"]) => {
                json!({"type": ["string", "integer"]})
            }
            (None, _) => json!({"type": "string"}),
        };
        if self.defaults.contains(&path.join(".")) {
            schema["default"] = value.clone();
        } else if !value.to_string().contains('…') {
            schema["examples"] = json!([value]);
        }
        schema
    }
}

fn values_text(documented: &Documented, path: &[&str]) -> String {
    let prefix = format!("{}.", path.join("."));
    let own = documented.texts.iter().find(|(key, text)| key.starts_with(&prefix) && !text.is_empty());
    let name = format!(".{}.", path.last().copied().unwrap_or_default());
    let other = || documented.texts.iter().find(|(key, text)| key.contains(&name) && !text.is_empty());
    own.or_else(other).map(|(_, text)| text.clone()).unwrap_or_default()
}

/// A table of tables whose names the operator chooses.
fn named(each: &Value) -> Value {
    json!({
        "type": "object",
        "propertyNames": {"pattern": NAME, "not": {"pattern": "__"}},
        "additionalProperties": each,
    })
}

/// The text of a key without a default, which `default.toml` contains as a comment.
fn key_of(line: &str) -> Option<&str> {
    line.strip_prefix('#').filter(|key| !key.starts_with(' ') && !key.is_empty())
}

/// The words that a key can be set to, if the list is complete.
fn words(path: &[&str]) -> Option<&'static [&'static str]> {
    Some(match path {
        ["state", "backend"] => Backend::VARIANTS,
        ["log", "format"] => LogFormat::VARIANTS,
        [.., "unsigned"] => UnsignedPolicy::VARIANTS,
        [.., "ordering"] => Ordering::VARIANTS,
        ["sinks", "NAME-file" | "NAME-postgres" | "NAME-sqlite", "format"] => &WHOLE,
        ["sinks", _, "format"] => Format::VARIANTS,
        [.., "template"] => Shipped::VARIANTS,
        [.., "compress"] => &COMPRESSIONS,
        [.., "search"] => Search::VARIANTS,
        [.., "security", "mechanism"] => Mechanism::VARIANTS,
        [.., "oauth2", "credentials"] => Credentials::VARIANTS,
        _ => return None,
    })
}
