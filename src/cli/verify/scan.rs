//! Finds the end of a JSON object, byte by byte.
//!
//! Checks only the structure, so that a truncated line is noticed early and does not swallow the lines after it. Numbers and
//! words are checked when the whole object is parsed.

/// No object is nested deeper than this; the same bound as for events.
const MAX_DEPTH: usize = 10_000;

/// The state between two bytes.
#[derive(Debug)]
pub(super) struct Scan {
    open: Vec<Container>,
    expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    CommaOrEnd,
    /// Within a name or a text, after a backslash or not.
    Text {
        is_name: bool,
        escaped: bool,
    },
    /// Within a number or a word.
    Word,
}

/// What is known after a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The object goes on.
    Open,
    /// This was its last byte.
    Complete,
    /// It is no object.
    Broken,
}

impl Scan {
    /// Before the first byte of an object.
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), expected: Expected::Value }
    }

    /// How many objects and arrays are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Takes the next byte.
    pub(super) fn push(&mut self, byte: u8) -> Step {
        match self.after(byte) {
            Some(expected) => {
                self.expected = expected;
                if self.open.is_empty() { Step::Complete } else { Step::Open }
            }
            None => Step::Broken,
        }
    }

    fn after(&mut self, byte: u8) -> Option<Expected> {
        use Expected::{Colon, CommaOrEnd, Name, NameOrEnd, Text, Value, ValueOrEnd, Word};
        match (self.expected, byte) {
            (Text { is_name, escaped: true }, 0x20..) => Some(Text { is_name, escaped: false }),
            (Text { is_name, .. }, b'\\') => Some(Text { is_name, escaped: true }),
            (Text { is_name, .. }, b'"') => Some(if is_name { Colon } else { CommaOrEnd }),
            (text @ Text { .. }, 0x20..) => Some(text),
            (Text { .. }, _) => None,
            (Word | Value | ValueOrEnd, b'0'..=b'9' | b'a'..=b'z' | b'-') | (Word, b'E' | b'+' | b'.') => Some(Word),
            (Word, _) => {
                self.expected = CommaOrEnd;
                self.after(byte)
            }
            (expected, b' ' | b'\t' | b'\n' | b'\r') => Some(expected),
            (Name | NameOrEnd, b'"') => Some(Text { is_name: true, escaped: false }),
            (Value | ValueOrEnd, b'"') => Some(Text { is_name: false, escaped: false }),
            (Value | ValueOrEnd, b'{') => self.opened(Container::Object, NameOrEnd),
            (Value | ValueOrEnd, b'[') => self.opened(Container::Array, ValueOrEnd),
            (CommaOrEnd, b',') if self.open.last() == Some(&Container::Object) => Some(Name),
            (CommaOrEnd, b',') | (Colon, b':') => Some(Value),
            (CommaOrEnd | NameOrEnd, b'}') => self.closed(Container::Object),
            (CommaOrEnd | ValueOrEnd, b']') => self.closed(Container::Array),
            _ => None,
        }
    }

    fn opened(&mut self, container: Container, expected: Expected) -> Option<Expected> {
        self.open.push(container);
        (self.open.len() <= MAX_DEPTH).then_some(expected)
    }

    fn closed(&mut self, container: Container) -> Option<Expected> {
        (self.open.pop() == Some(container)).then_some(Expected::CommaOrEnd)
    }
}
