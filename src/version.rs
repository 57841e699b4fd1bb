//! The version in the output of `--version` and `channeld status` and in the log. The commit comes from `build.rs`.

use jiff::Timestamp;

/// Returns the version and, if it is known, the commit: `0.1.0 (abc1234 2026-11-20)`. `-dirty` after the commit means that
/// the sources differed from the commit.
pub fn text() -> String {
    written(env!("CARGO_PKG_VERSION"), option_env!("BUILD_COMMIT"), date().as_deref())
}

/// The features that a build has by default, and whether this build has them.
const DEFAULTS: [(&str, bool); 6] = [
    ("fast", cfg!(feature = "fast")),
    ("console", cfg!(feature = "console")),
    ("nats", cfg!(feature = "nats")),
    ("otlp", cfg!(feature = "otlp")),
    ("postgres", cfg!(feature = "postgres")),
    ("sqlite", cfg!(feature = "sqlite")),
];

/// Returns [`text`], and a second line with the differences from a default build: `features: kafka` or `features: none`,
/// followed by `, without fast, nats` if these default features are missing.
pub fn long() -> String {
    let features = if cfg!(feature = "kafka") { "kafka" } else { "none" };
    let missing: Vec<_> = DEFAULTS.into_iter().filter(|(_, is_there)| !is_there).map(|(name, _)| name).collect();
    let without = if missing.is_empty() { String::new() } else { format!(", without {}", missing.join(", ")) };
    format!("{}\nfeatures: {features}{without}", text())
}

/// Returns the day of the commit in UTC: `2026-11-20`.
pub fn date() -> Option<String> {
    option_env!("BUILD_COMMIT_TIME").and_then(day)
}

fn written(version: &str, commit: Option<&str>, date: Option<&str>) -> String {
    match (commit, date) {
        (Some(commit), Some(date)) => format!("{version} ({commit} {date})"),
        (Some(commit), None) => format!("{version} ({commit})"),
        (None, _) => version.to_owned(),
    }
}

/// Returns the UTC day of a time in seconds since 1970.
fn day(time: &str) -> Option<String> {
    let time = Timestamp::from_second(time.parse().ok()?).ok()?;
    Some(time.strftime("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_commit_and_day_if_known() {
        assert_eq!(written("0.1.0", None, None), "0.1.0");
        assert_eq!(written("0.1.0", Some("abc1234"), None), "0.1.0 (abc1234)");
        assert_eq!(written("0.1.0", Some("abc1234-dirty"), Some("2026-11-20")), "0.1.0 (abc1234-dirty 2026-11-20)");
    }

    #[test]
    fn the_day_is_in_utc() {
        assert_eq!(day("1795132799").as_deref(), Some("2026-11-19"));
        assert_eq!(day("1795132800").as_deref(), Some("2026-11-20"));
        assert_eq!(day("soon"), None);
    }
}
