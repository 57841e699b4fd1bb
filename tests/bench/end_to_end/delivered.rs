//! Checks that the output contains exactly the expected events.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

/// The part of a delivered record that the benchmarks need.
#[derive(Deserialize)]
pub(crate) struct Record<'a> {
    pub(crate) channel: &'a str,
    pub(crate) offset: u64,
    pub(crate) received: Timestamp,
    verification: Verification<'a>,
}

#[derive(Deserialize)]
struct Verification<'a> {
    status: &'a str,
}

impl<'a> Record<'a> {
    /// Parses a line. The record must be verified.
    pub(crate) fn of(line: &'a str) -> Self {
        let record: Self = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(record.verification.status, "verified", "{line}");
        record
    }
}

/// The number of delivered events per channel name.
///
/// Ends the benchmark unless the file contains each event once, verified, and in order without gaps from offset 1.
pub(crate) fn arrived(file: &Path) -> BTreeMap<String, u64> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(file).unwrap());
    let (mut line, mut reached) = (String::new(), BTreeMap::<String, u64>::new());
    while reader.read_line(&mut line).unwrap() > 0 {
        assert!(line.ends_with('\n'), "the last line is torn: {line}");
        let record = Record::of(&line);
        let last = reached.entry(record.channel.to_owned()).or_default();
        assert_eq!(record.offset, *last + 1, "after offset {last} of {}", record.channel);
        *last = record.offset;
        line.clear();
    }
    reached
}

/// Ends the benchmark unless the file contains exactly this many events of each of this many channels.
pub(crate) fn must_be_whole(file: &Path, channels: usize, events: u64) {
    let arrived = arrived(file);
    assert_eq!(arrived.len(), channels, "the number of channels with events in the file");
    assert!(arrived.values().all(|reached| *reached == events), "not all of {events} events arrived: {arrived:?}");
}
