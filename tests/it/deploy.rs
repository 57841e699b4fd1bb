//! What is shipped to run and to watch the daemon does what it says: each file is tried, by the daemon itself or by the
//! program that it is for.

use std::path::{Path, PathBuf};

mod container;
mod image;
mod manual;
mod runbook;
mod systemd;
mod version;
mod watching;

/// A file that is shipped.
fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(shipped(path)).unwrap()
}

/// The names of the alerts, in the order of their file.
fn alerts() -> Vec<String> {
    let rules = read("prometheus/alerts.yaml");
    let alerts: Vec<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    alerts
}
