//! Faults of the files that the daemon writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::super::world::{BACKLOG, CHANNELS, FILES, World};
use crate::support::place;

/// The path of a file's directory while the fault is active.
pub(super) fn away(world: &World, sink: &str) -> PathBuf {
    world.directory(sink).with_file_name(format!("{sink}-away"))
}

/// Replaces a file with a copy that lacks the last lines, and returns these lines. The copy keeps the backlog of each
/// channel, because channeld notices a restored file only for channels that have a line in it. The copy also keeps the
/// late deliveries. Their offsets are lower than the offsets before them, so their loss is noticed only if a late delivery
/// is the last line of a lane.
pub(super) fn restore(world: &World, sink: &str, lost: usize) -> BTreeSet<(String, i64)> {
    let file = world.file(sink);
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
    let late: BTreeSet<_> = world.late.iter().map(|(channel, offset)| (Some(format!("c{channel}")), *offset)).collect();
    let late = lines.iter().rposition(|line| late.contains(&place(line))).map_or(0, |last| last + 1);
    let backlog = usize::try_from(BACKLOG).unwrap() * CHANNELS / FILES.len();
    let kept = lines.len().saturating_sub(lost).max(backlog).max(late);
    let copy = file.with_extension("copy");
    fs::write(&copy, lines[..kept].concat()).unwrap();
    fs::rename(copy, file).unwrap();
    lines[kept..].iter().map(|line| place(line)).map(|(channel, offset)| (channel.unwrap(), offset)).collect()
}
