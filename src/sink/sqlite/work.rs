//! The work of one lane, which the writer carries out.

use std::collections::BTreeSet;

use crate::table::{Cell, Row};
use crate::{LaneRef, Resumed, SinkError, Undelivered};
use proof::event::{EventKey, Offset};

/// The work of one lane.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) lane: LaneRef,
    pub(super) epoch: u64,
    pub(super) task: Task,
}

#[derive(Debug)]
pub(super) enum Task {
    /// The lane resumes.
    TakeOver {
        /// The recorded cursor.
        through: Option<Offset>,
        /// Whether the recorded cursor becomes the lane's position in the table.
        is_adopted: bool,
        /// The pending events for which the lane asks whether they have a row.
        pending: BTreeSet<EventKey>,
    },
    /// The lane delivers.
    Deliver {
        /// The position that the table is expected to have.
        after: Option<Offset>,
        /// The position becomes the higher of `after` and this.
        through: Offset,
        rows: Vec<Row>,
    },
}

/// The state of the lane in the table, or how many rows were written and why no more.
pub(super) type Answer = Result<Resumed, Undelivered>;

/// The result of the work of one lane within a transaction.
pub(super) type Done = Result<Resumed, SinkError>;

impl Work {
    pub(super) fn rows(&self) -> usize {
        if let Task::Deliver { rows, .. } = &self.task { rows.len() } else { 0 }
    }

    /// Keeps only the first `count` rows, and lowers the position to the last of them. `count` is at least one.
    pub(super) fn keep_first(&mut self, count: usize) {
        if let Task::Deliver { through, rows, .. } = &mut self.task {
            rows.truncate(count);
            *through = rows.last().and_then(offset).unwrap_or(*through);
        }
    }
}

/// The offset of a row's event.
fn offset(row: &Row) -> Option<Offset> {
    row.0.iter().find_map(|cell| if let Cell::Number(offset) = cell { Offset::new(*offset) } else { None })
}
