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

use super::sources::DEFAULTS;
use super::tables::sink::SinkType;
use super::tables::state::Backend;
use ::channel::{Ordering, UnsignedPolicy};
use ::record::{BuiltInTarget, Confidence, Format};
use ::sink::{Credentials, Mechanism, Search};
use telemetry::LogFormat;

/// Tables whose keys the operator chooses.
const NAMED_BY_THE_OPERATOR: [&str; 8] = [
    "template_values",
    "template_value_files",
    "template_value_commands",
    "headers",
    "header_files",
    "header_commands",
    "signer_names",
    "explorers",
];

/// The pattern for names of accounts, channels and sinks.
const NAME: &str = "^[A-Za-z0-9]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?$";

/// The placeholder for a name that the operator chooses.
const ANY: &str = "NAME";

/// Returns the schema of the file.
pub fn schema() -> Value {
    let documented = DocumentedSettings::read();
    let mut schema = documented.table(&[], &documented.values);
    let filter = documented.filter();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "channeld.toml: the configuration of channeld".into();
    schema["$defs"] = json!({"filter": filter});
    schema
}

/// The content of `default.toml`.
struct DocumentedSettings {
    /// Every key with its default or an example.
    values: Map<String, Value>,
    /// The explanation of each key and table, by its path.
    texts: BTreeMap<String, String>,
    /// The keys that have a default, with their defaults.
    defaults: Value,
}

impl DocumentedSettings {
    fn read() -> Self {
        let opened: Vec<_> = DEFAULTS.lines().map(|line| key_of(line).unwrap_or(line)).collect();
        let (mut texts, mut table, mut text, mut previous) = (BTreeMap::new(), String::new(), Vec::new(), "");
        for &line in &opened {
            if let Some(said) = line.strip_prefix("# ") {
                if !previous.starts_with("# ") {
                    text.clear();
                }
                text.push(said);
            } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.clone_into(&mut table);
                texts.insert(table.clone(), text.join(" "));
                text.clear();
            } else if let Some((name, _)) = line.split_once(" = ") {
                let key = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
                texts.insert(key, text.join(" "));
            }
            previous = line;
        }
        let values = Toml::from_str(&opened.join("\n")).expect("a test reads the file with its comments opened");
        Self { values, texts, defaults: Toml::from_str(DEFAULTS).expect("a test reads the file") }
    }

    /// The explanation of a key. If a key without a text of its own also occurs in another table, the text there applies.
    /// The keys in a table that the operator fills are examples, and have the text of the table.
    fn text(&self, path: &[&str]) -> Option<&str> {
        let (own, name) = (path.join("."), path.last()?);
        let has_examples = NAMED_BY_THE_OPERATOR.contains(name);
        let find = |is_meant: &dyn Fn(&str) -> bool| {
            let said = |text: &str| !text.is_empty() && text != "As for standard output.";
            self.texts.iter().find(|(key, text)| is_meant(key) && said(text)).map(|(_, text)| text.as_str())
        };
        find(&|key| key == own)
            .or_else(|| find(&|key| has_examples && key.starts_with(&format!("{own}."))))
            .or_else(|| find(&|key| key.ends_with(&format!(".{name}"))))
            .or_else(|| find(&|key| has_examples && key.contains(&format!(".{name}."))))
    }

    fn described(&self, path: &[&str], mut schema: Value) -> Value {
        if let Some(text) = self.text(path) {
            schema["description"] = text.into();
        }
        schema
    }

    fn table(&self, path: &[&str], values: &Map<String, Value>) -> Value {
        let property = |(name, value): (&String, &Value)| {
            let path: Vec<_> = path.iter().copied().chain([name.as_str()]).collect();
            (name.clone(), self.property(&path, value))
        };
        self.described(path, object(&values.iter().map(property).collect()))
    }

    fn property(&self, path: &[&str], value: &Value) -> Value {
        let schema = match (path, value.as_object()) {
            ([table @ ("accounts" | "channels")], Some(each)) => named(&self.property(&[table, ANY], &each[ANY])),
            (["feed", "consumers"], Some(consumers)) => {
                named(&self.property(&["feed", "consumers", ANY], &consumers[ANY]))
            }
            (["sinks"], Some(sinks)) => named(&json!({"oneOf": self.sinks(sinks)})),
            ([.., "filters"], Some(_)) => json!({"type": "object", "additionalProperties": {"$ref": "#/$defs/filter"}}),
            ([.., "filter"], _) => return json!({"$ref": "#/$defs/filter"}),
            ([.., name], Some(members)) if NAMED_BY_THE_OPERATOR.contains(name) => {
                let is_of_lists = members.values().any(Value::is_array);
                let each = if is_of_lists { list() } else { json!({"type": "string"}) };
                json!({"type": "object", "additionalProperties": each})
            }
            (_, Some(members)) => return self.table(path, members),
            (_, None) => self.scalar(path, value),
        };
        self.described(path, schema)
    }

    /// One schema for each type of sink.
    fn sinks(&self, documented: &Map<String, Value>) -> Vec<Value> {
        let of_type = |word: &&str| {
            let name = format!("{ANY}-{word}");
            let mut values = documented[&name].as_object().expect("a test finds each type there").clone();
            for (key, value) in documented["NAME-stdout"].as_object().expect("it is a table") {
                // These keys are documented only once, at the first type that has them.
                let has_templates = !["file", "postgres", "sqlite"].contains(word);
                if key.starts_with("template") && has_templates {
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
        let field = |(name, value): (&String, &Value)| {
            (name.clone(), self.scalar(&[path[0], path[1], path[2], name.as_str()], value))
        };
        let table = self.described(&path, object(&fields.iter().map(field).collect()));
        let text = self.texts.get("sinks.NAME-file.filter.type").cloned().unwrap_or_default();
        json!({"description": text, "oneOf": [{"const": "failures"}, table]})
    }

    fn scalar(&self, path: &[&str], value: &Value) -> Value {
        let mut schema = match (words(path), value) {
            (Some(words), _) => json!({"enum": words}),
            (None, Value::Bool(_)) => json!({"type": "boolean"}),
            (None, Value::Number(_)) => json!({"type": ["integer", "string"]}),
            (None, Value::Array(_)) => list(),
            // The reader also accepts a number for a text of digits.
            (None, Value::String(text)) if text.parse::<u64>().is_ok() || path.ends_with(&["start"]) => {
                json!({"type": ["string", "integer"]})
            }
            (None, _) => json!({"type": "string"}),
        };
        if self.defaults.pointer(&format!("/{}", path.join("/"))).is_some() {
            schema["default"] = value.clone();
        } else if !value.to_string().contains('…') {
            schema["examples"] = json!([value]);
        }
        schema
    }
}

fn object(properties: &Map<String, Value>) -> Value {
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

fn list() -> Value {
    json!({"type": ["array", "string"], "items": {"type": ["string", "integer"]}})
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

/// The possible values of a key, if they are a fixed list.
fn words(path: &[&str]) -> Option<&'static [&'static str]> {
    Some(match path {
        ["state", "backend"] => Backend::VARIANTS,
        ["log", "format"] => LogFormat::VARIANTS,
        [.., "unsigned"] => UnsignedPolicy::VARIANTS,
        [.., "ordering"] => Ordering::VARIANTS,
        ["sinks", "NAME-file" | "NAME-postgres" | "NAME-sqlite", "format"] => &["json", "cloudevents", "raw"],
        ["sinks", _, "format"] => Format::VARIANTS,
        [.., "template"] => BuiltInTarget::VARIANTS,
        [.., "min_confidence"] => Confidence::VARIANTS,
        [.., "compress"] => &["none", "gzip", "zstd"],
        [.., "search"] => Search::VARIANTS,
        [.., "security", "mechanism"] => Mechanism::VARIANTS,
        [.., "oauth2", "credentials"] => Credentials::VARIANTS,
        _ => return None,
    })
}
