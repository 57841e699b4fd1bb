//! The simulated service that a trial reads.

use std::fs;
use std::io::{self, BufRead};
use std::path::Path;

use serde::Deserialize;

use crate::cli::context::CommandError;

/// The values that `channeld simulate` prints as one line of JSON.
#[derive(Deserialize)]
pub(super) struct SimulatorAnnouncement {
    pub(super) base_url: String,
    pub(super) api_key: String,
    pub(super) org_id: String,
    pub(super) valid_signers: Vec<String>,
    pub(super) min_required_signatures: u64,
    pub(super) channels: Vec<String>,
}

/// Reads the line that `channeld simulate` printed to this file.
pub(super) fn announced(file: &Path) -> Result<SimulatorAnnouncement, CommandError> {
    let failed = || CommandError::io(format!("{} could not be read", file.display()));
    let mut text = String::new();
    if file == Path::new("-") {
        io::stdin().lock().read_line(&mut text).map_err(failed())?;
    } else {
        text = fs::read_to_string(file).map_err(failed())?;
    }
    let line = text.lines().next().unwrap_or_default();
    serde_json::from_str(line).map_err(|_| {
        let file = file.display();
        CommandError::usage(format!("{file} does not begin with the line that `channeld simulate` prints"))
    })
}
