//! `channeld pause` and `channeld resume`.

use std::io::Write;
use std::path::Path;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say};
use crate::operator::api::SetPaused;

pub(super) async fn run(what: SetPaused, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let changed = Operator::open(config)?.ask_daemon(&what).await?;
    let SetPaused { channel, sink, paused } = what;
    let sink = sink.map(|sink| format!(" sink {sink}")).unwrap_or_default();
    let already = if changed { "" } else { " already" };
    let now = if paused { "paused" } else { "going on" };
    say(out, format!("{channel}{sink}:{already} {now}"))
}
