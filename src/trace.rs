//! What a batch is known by from the request that brought it to the record that it was dealt with.

use std::fmt;
use std::num::NonZero;

/// The id of a batch in logs: that of a trace in the sense of W3C Trace Context, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(NonZero<u128>);

impl TraceId {
    /// One that no other batch has.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_of_32_digits() {
        let id = TraceId(NonZero::new(0xab).expect("it is not zero"));
        assert_eq!(id.to_string(), "000000000000000000000000000000ab");
        assert_ne!(TraceId::random(), TraceId::random());
    }
}
