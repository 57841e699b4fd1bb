//! Makes rows in groups. The rows of a group are written together.

use std::ops::Range;

use jiff::Timestamp;

use super::Row;
use record::Message;

/// After making rows of this many bytes, the task yields to other tasks. Making rows of this size takes two or three
/// milliseconds.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Limits how many rows are written together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLimit {
    pub(crate) rows: usize,
    /// No row is added once the messages of the rows have this many bytes.
    pub(crate) bytes: usize,
}

/// Makes the rows of the next messages with `make`, up to the limit `most`, but at least one. The first `made` messages are
/// skipped, because they already have rows. Returns the range of the messages and their rows, or `None` if no message is left.
/// Yields to other tasks in between if the messages are large.
pub(crate) async fn next_rows(
    messages: &[Message],
    made: usize,
    most: RowLimit,
    make: impl Fn(&Message, Timestamp) -> Row,
) -> Option<(Range<usize>, Vec<Row>)> {
    let count = messages.len().saturating_sub(made).min(most.rows);
    let (mut rows, mut bytes, mut yielded) = (Vec::with_capacity(count), 0, 0);
    for message in &messages[made..made + count] {
        rows.push(make(message, Timestamp::now()));
        bytes += message.body().len();
        if bytes >= most.bytes {
            break;
        }
        if bytes - yielded > BYTES_AT_ONCE {
            yielded = bytes;
            tokio::task::yield_now().await;
        }
    }
    (!rows.is_empty()).then_some((made..made + rows.len(), rows))
}
