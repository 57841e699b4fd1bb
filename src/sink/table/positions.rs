//! The column `position`: the number of an event in the order of delivery.
//!
//! # Invariants
//!
//! * **Dense.** The positions of a channel in a table begin with 1, and each new row gets the next one. An event that already has a
//!   row gets no other position and leaves no gap.
//! * **Never reused.** The newest position is also in the table of lanes. It therefore survives the deletion of rows.
//! * **Final.** A position never changes. A reader that has seen position P has seen every earlier position.

/// The column with the position. It is not in [`COLUMNS`](super::COLUMNS), because the statement that writes the row assigns the
/// position. In the table of lanes, the column with this name contains the newest position of the lane's channel.
///
/// A row without a position was written by a version that did not assign positions.
pub(crate) const POSITION: &str = "position";

/// The name of the unique index over the channel and the position.
pub(crate) fn position_index(table: &str) -> String {
    format!("{table}_position")
}

/// The name of the table with the cursors and the leases of the feed's consumers.
pub(crate) fn consumers(table: &str) -> String {
    format!("{table}_consumers")
}
