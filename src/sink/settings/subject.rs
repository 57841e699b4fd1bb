//! The subjects of events, made from a pattern, and the subjects that a stream accepts.

use std::fmt;
use std::str::FromStr;

use record::{ChannelRef, Record};

/// The longest value in a subject. A server accepts 4 KiB for the protocol line that contains the subject.
const VALUE_LIMIT: usize = 200;

/// The longest subject pattern.
const PATTERN_LIMIT: usize = 500;

/// The pattern from which the subject of an event is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Part>);

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// A literal text.
    Text(String),
    /// The channel's name.
    Channel,
    /// The channel's id.
    ChannelId,
    /// The event's type. Its dots separate tokens.
    Type,
}

impl FromStr for Pattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("has a { without its }")?;
            let part = match name {
                "channel" => Part::Channel,
                "channel_id" => Part::ChannelId,
                "type" => Part::Type,
                _ => return Err("may name {channel}, {channel_id} and {type}, and nothing else in braces"),
            };
            parts.extend((!before.is_empty()).then(|| Part::Text(before.to_owned())));
            parts.push(part);
            rest = after;
        }
        parts.extend((!rest.is_empty()).then(|| Part::Text(rest.to_owned())));
        let legal = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '>' | '{' | '}');
        if !parts.iter().all(|part| matches!(part, Part::Text(text) if text.chars().all(legal)) || !part.is_text()) {
            return Err("must be of visible ASCII characters without * and >");
        }
        let pattern = Self(parts);
        let shape = pattern.with(|_| "x".to_owned());
        if shape.split('.').any(str::is_empty) || text.len() > PATTERN_LIMIT {
            return Err("must be tokens with one dot between each two, 500 characters at most");
        }
        let first = pattern.0.first().filter(|first| matches!(first, Part::Text(text) if text.contains('.')));
        if first.is_none() || text.starts_with('$') {
            return Err("must begin with a word and a dot, such as \"channeld.\", and not with $");
        }
        Ok(pattern)
    }
}

impl Part {
    fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }
}

impl Pattern {
    /// The subject of an event. It depends only on the event and its channel.
    pub fn of(&self, record: &Record) -> String {
        self.with(|part| match part {
            Part::Type => cleaned(record.kind.as_ref()),
            part => Self::of_channel(part, &record.channel),
        })
    }

    /// A filter that matches the subjects of all events of a channel.
    pub fn filter(&self, channel: &ChannelRef) -> String {
        self.wildcard(|part| Self::of_channel(part, channel))
    }

    /// A filter that matches the subjects of all events.
    pub fn filter_of_all(&self) -> String {
        self.wildcard(|_| "*".to_owned())
    }

    /// The first token.
    pub fn first(&self) -> &str {
        match self.0.first() {
            Some(Part::Text(text)) => text.split('.').next().unwrap_or_default(),
            _ => "",
        }
    }

    fn of_channel(part: &Part, channel: &ChannelRef) -> String {
        match part {
            Part::ChannelId => channel.id.to_string(),
            _ => channel.name.to_string(),
        }
    }

    /// The pattern as a filter. The first type and everything after it become `>`, because a type can have several tokens.
    fn wildcard(&self, value: impl Fn(&Part) -> String) -> String {
        const TYPE: &str = "\u{1}";
        let subject = self.with(|part| if *part == Part::Type { TYPE.to_owned() } else { value(part) });
        let mut tokens = Vec::new();
        for token in subject.split('.') {
            if token.contains(TYPE) {
                tokens.push(">");
                break;
            }
            // A wildcard must be a whole token.
            tokens.push(if token.contains('*') { "*" } else { token });
        }
        tokens.join(".")
    }

    fn with(&self, value: impl Fn(&Part) -> String) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            part => value(part),
        };
        self.0.iter().map(text).collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |part: &Part| match part {
            Part::Channel => "{channel}",
            Part::ChannelId => "{channel_id}",
            _ => "{type}",
        };
        f.write_str(&self.with(|part| name(part).to_owned()))
    }
}

/// A text as a part of a subject. Dots separate tokens. Every other character except letters, digits, - and _ becomes _,
/// and so does an empty token.
fn cleaned(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let text: String = text.chars().take(VALUE_LIMIT).map(legal).collect();
    let tokens: Vec<_> = text.split('.').map(|token| if token.is_empty() { "_" } else { token }).collect();
    tokens.join(".")
}

#[cfg(test)]
mod tests;
