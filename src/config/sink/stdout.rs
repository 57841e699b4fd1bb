//! Standard output: it has no keys of its own.

use serde_json::Map;

use super::{SinkSettings, Target};
use crate::config::table::{Reported, Table};

#[expect(clippy::unnecessary_wraps, reason = "other types can be wrong")]
pub(super) fn read(_: &mut Table<'_>) -> Result<Target, Reported> {
    Ok(Target::new(SinkSettings::Stdout, String::new(), Map::new()))
}
