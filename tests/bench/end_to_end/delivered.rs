//! What arrived, held to what should have.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Record<'a> {
    channel: &'a str,
    offset: u64,
    verification: Verification<'a>,
}

#[derive(Deserialize)]
struct Verification<'a> {
    status: &'a str,
}

/// Ends the program unless the file has every event of every channel once, in order, and verified: from offset 1 to
/// `events`, without gaps.
pub(crate) fn must_be_whole(file: &Path, channels: usize, events: u64) {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(file).unwrap());
    let (mut line, mut reached) = (String::new(), BTreeMap::<String, u64>::new());
    while reader.read_line(&mut line).unwrap() > 0 {
        assert!(line.ends_with('\n'), "the last line is torn: {line}");
        let record: Record<'_> = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(record.verification.status, "verified", "{line}");
        let last = reached.entry(record.channel.to_owned()).or_default();
        assert_eq!(record.offset, *last + 1, "after offset {last} of {}", record.channel);
        *last = record.offset;
        line.clear();
    }
    assert_eq!(reached.len(), channels, "channels that arrived");
    assert!(reached.values().all(|reached| *reached == events), "not all of {events} events arrived: {reached:?}");
}
