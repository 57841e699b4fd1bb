//! The keys of a file sink, and the combinations that are refused.

use std::num::NonZeroUsize;

use super::*;
use ::sink::{Access, ClosedName, Compression, Keep, Rotation};

/// `GOOD` with a file sink that has these keys.
fn with_file(keys: &str) -> Result<Config, ConfigError> {
    load(&format!("{GOOD}[sinks.file]\ntype = \"file\"\npath = \"/var/events.jsonl\"\n{keys}"), &[])
}

fn file(keys: &str) -> FileSettings {
    let config = with_file(keys).unwrap_or_else(|error| panic!("{keys}\n{error}"));
    let SinkSettings::File(file) = config.sinks["file"].settings.clone() else { panic!("{config:?}") };
    file
}

#[test]
fn a_file_has_exactly_the_chosen_settings() {
    assert_eq!(file(""), file_at("/var/events.jsonl"));
    assert_eq!(file("compress = \"none\""), file_at("/var/events.jsonl"));
    let access = file("mode = \"0600\"\nowner = \"root\"\ngroup = 12").access;
    assert_eq!(access, Access { mode: Some(0o600), owner: Some(0), group: Some(12) });

    let keys = "rotate_size = \"1.5KiB\"\nrotate_every = \"15m\"\nrotated_name = \"a-{time}-{last}\"\ncompress = \"gzip\"\n\
                keep_files = 3\nkeep_for = \"48h\"\nkeep_size = \"2 MiB\"\nlatest_link = \"/var/latest\"";
    let keep =
        Keep { files: NonZeroUsize::new(3), time: Some(Duration::from_secs(48 * 3600)), size: Some(2 * 1024 * 1024) };
    let expected = Rotation {
        size: Some(1536),
        every: Some(Duration::from_secs(900)),
        name: ClosedName::parse("a-{time}-{last}").expect("a template"),
        compression: Some(Compression::Gzip),
        keep,
        latest_link: Some("/var/latest".into()),
    };
    assert_eq!(file(keys).rotation, Some(expected));
    let name = file("rotate_every = \"24h\"").closed_name();
    assert_eq!(name.to_string(), "events-{time}.jsonl");
}

#[test]
fn each_mistake_is_reported_under_its_key() {
    for (key, value) in [
        ("mode", "416"),
        ("mode", "\"rw-r-----\""),
        ("mode", "\"0750\""),
        ("mode", "\"0400\""),
        ("mode", "\"+640\""),
        ("mode", "\"10640\""),
        ("owner", "\"nobody-of-this-name\""),
        ("owner", "4294967295"),
        ("group", "\"-1\""),
        ("rotate_size", "\"0MiB\""),
        ("rotate_size", "1000"),
        ("rotate_size", "\"large\""),
        ("rotate_every", "\"7m\""),
        ("rotate_every", "\"48h\""),
        ("rotate_every", "\"500ms\""),
        ("rotated_name", "\"events.jsonl\""),
        ("rotated_name", "\"closed/{time}\""),
        ("compress", "\"lz4\""),
        ("keep_files", "0"),
        ("keep_for", "\"0s\""),
        ("keep_size", "\"10\""),
        ("latest_link", "\"\""),
    ] {
        let error = with_file(&format!("{key} = {value}")).expect_err(&format!("{key} = {value}"));
        assert_eq!(keys_of(&error), [format!("sinks.file.{key}")], "{key} = {value}\n{error}");
    }
}

#[test]
fn incompatible_settings_are_refused() {
    for (keys, wrong) in [
        ("compress = \"zstd\"\nkeep_files = 3", &["compress", "keep_files"][..]),
        ("rotated_name = \"{time}\"", &["rotated_name"]),
        ("keep_for = \"1h\"\nkeep_size = \"1MiB\"\nlatest_link = \"/l\"", &["keep_for", "keep_size", "latest_link"]),
        ("rotate_size = \"2MiB\"\nkeep_size = \"1MiB\"", &["keep_size"]),
        ("rotate_size = \"2MiB\"\nlatest_link = \"/var/events.jsonl\"", &["latest_link"]),
        ("rotate_size = \"2MiB\"\nlatest_link = \"/var/events-20240514T120015.123456Z.jsonl.gz\"", &["latest_link"]),
    ] {
        let error = with_file(keys).expect_err(keys);
        let wrong: Vec<_> = wrong.iter().map(|key| format!("sinks.file.{key}")).collect();
        assert_eq!(keys_of(&error), wrong, "{keys}\n{error}");
    }
}

#[test]
fn a_sink_that_matches_the_files_of_another_is_refused() {
    let first = "rotate_size = \"1MiB\"\nrotated_name = \"all-{time}\"\nlatest_link = \"/var/latest\"";
    for (path, keys, wrong) in [
        ("/var/other.jsonl", "rotate_size = \"1MiB\"\nrotated_name = \"all-{time}\"", Some("rotated_name")),
        ("/var/other.jsonl", "rotate_size = \"1MiB\"\nrotated_name = \"al{time}\"", None),
        ("/srv/other.jsonl", "rotate_size = \"1MiB\"\nrotated_name = \"all-{time}\"", None),
        ("/var/all-20240514T120015.123456Z", "", Some("path")),
        ("/var/all", "", Some("path")),
        ("/var/other.jsonl", "rotate_size = \"1MiB\"\nlatest_link = \"/var/latest\"", Some("latest_link")),
        ("/var/latest", "", Some("path")),
    ] {
        let second = format!("\n[sinks.other]\ntype = \"file\"\npath = {path:?}\n{keys}");
        let loaded = with_file(&format!("{first}{second}"));
        let found = loaded.as_ref().err().map_or(Vec::new(), keys_of);
        let wrong: Vec<_> = wrong.iter().map(|key| format!("sinks.other.{key}")).collect();
        assert_eq!(found, wrong, "{path} {keys}");
    }
}
