//! Delivered records, as a consumer reads them.

use std::path::Path;

use proof::event::ChannelId;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A delivered record.
#[derive(Debug, Deserialize)]
pub(crate) struct Delivered {
    pub(crate) channel: String,
    pub(crate) channel_id: ChannelId,
    pub(crate) offset: i64,
    pub(crate) event_id: Option<String>,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) time: Option<String>,
    pub(crate) received: String,
    pub(crate) verification: Value,
    pub(crate) decoded: Option<Box<RawValue>>,
    pub(crate) event: Box<RawValue>,
    /// The text of the record.
    #[serde(skip)]
    pub(crate) json: String,
}

impl Delivered {
    /// The record in a text.
    pub(crate) fn parse(json: &str) -> Self {
        let mut delivered: Self = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        json.clone_into(&mut delivered.json);
        delivered
    }

    /// The records in a file. Asserts that no line is incomplete.
    pub(crate) fn read(path: &Path) -> Vec<Self> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "the last line is incomplete");
        text.lines().map(Self::parse).collect()
    }

    /// `verified` or `unsigned`.
    pub(crate) fn status(&self) -> &str {
        self.verification["status"].as_str().unwrap()
    }

    /// The names of the record's members, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        struct Names(Vec<String>);
        impl<'de> Deserialize<'de> for Names {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = Names;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                        let mut names = Vec::new();
                        while let Some((name, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                            names.push(name);
                        }
                        Ok(Names(names))
                    }
                }
                deserializer.deserialize_map(Visitor)
            }
        }
        let names: Names = serde_json::from_str(&self.json).unwrap();
        names.0
    }
}

/// The offsets of records.
pub(crate) fn offsets(delivered: &[Delivered]) -> Vec<i64> {
    delivered.iter().map(|delivered| delivered.offset).collect()
}
