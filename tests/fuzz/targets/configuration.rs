//! A configuration file with its environment: each text is accepted or refused with its mistakes, and no secret is shown.
//!
//! Lines at the end of the form `CHANNELD_NAME=value` are environment variables.

#![no_main]

use std::ffi::OsString;
use std::path::Path;

use channeld::config::{Config, ConfigText};
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "never-shown-0123456789";

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Files that the text names must not be read: they may be devices, or belong to this machine.
    if text.contains("_file") || text.contains("FILE") || text.contains('/') && text.contains("path") {
        return;
    }
    let is_variable = |line: &&str| line.starts_with("CHANNELD_") && line.contains('=');
    let variables = text.lines().filter(is_variable).map(|line| {
        let (name, value) = line.split_once('=').unwrap();
        (OsString::from(name), OsString::from(value))
    });
    let secret = [(OsString::from("CHANNELD_API__API_KEY"), OsString::from(SECRET))];
    let file: String =
        text.lines().filter(|line| !is_variable(line)).flat_map(|line| [line, "\n"]).collect();
    let shown = match Config::of(ConfigText::written(Path::new("channeld.toml"), file), variables.chain(secret)) {
        Ok(loaded) => loaded.config.notes.join("\n"),
        Err(error) => {
            assert!(!error.problems.is_empty(), "a refusal names a mistake");
            error.to_string()
        }
    };
    assert!(!shown.contains(SECRET), "{shown}");
});
