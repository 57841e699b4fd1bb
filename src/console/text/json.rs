//! Splits a JSON text into its tokens. Each token is an unchanged part of the text: numbers keep their digits, and strings
//! keep their escapes.
//!
//! # Invariants
//!
//! * **Never fails.** A text that is truncated or is not JSON is split as far as possible.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// `{` or `[`.
    Open(char),
    /// `}` or `]`.
    Close(char),
    Comma,
    Colon,
    /// The name of a member, with its quotes.
    Name(&'a str),
    /// A string that is a value, with its quotes.
    Text(&'a str),
    /// A number, `true`, `false` or `null`.
    Word(&'a str),
}

/// Iterates over the tokens of a text, each with the index of its first byte.
pub(crate) struct Tokens<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(crate) fn of(json: &'a str) -> Self {
        Self { json, at: 0 }
    }

    /// The string that begins at the current position, with its quotes.
    fn string(&self) -> &'a str {
        let (json, bytes) = (self.json, self.json.as_bytes());
        let mut end = self.at + 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let mut end = (end + 1).min(bytes.len());
        while !json.is_char_boundary(end) {
            end += 1;
        }
        &json[self.at..end]
    }

    /// The number or word that begins at the current position.
    fn word(&self) -> &'a str {
        let rest = &self.json[self.at..];
        let end = rest.find(|c: char| c.is_ascii_whitespace() || "{}[],:\"".contains(c));
        &rest[..end.unwrap_or(rest.len())]
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (usize, Token<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.json.as_bytes();
        self.at += space(&bytes[self.at..]);
        let (token, length) = match *bytes.get(self.at)? {
            open @ (b'{' | b'[') => (Token::Open(char::from(open)), 1),
            close @ (b'}' | b']') => (Token::Close(char::from(close)), 1),
            b',' => (Token::Comma, 1),
            b':' => (Token::Colon, 1),
            b'"' => {
                let text = self.string();
                let after = &bytes[self.at + text.len()..];
                let is_name = after.get(space(after)) == Some(&b':');
                (if is_name { Token::Name(text) } else { Token::Text(text) }, text.len())
            }
            _ => {
                let word = self.word();
                (Token::Word(word), word.len())
            }
        };
        let at = self.at;
        self.at += length;
        Some((at, token))
    }
}

/// The number of whitespace bytes at the beginning of a text.
fn space(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}
