//! Reads the parameters of a request. A parameter that is unknown, repeated or malformed is a problem, because a request with a
//! misspelled `after` would silently begin with the oldest event.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use jiff::fmt::friendly::SpanParser;

use crate::problem::{Problem, ProblemKind};

/// The largest number of events of one response.
const MAX_LIMIT: usize = 1_000;

/// The number of events of one response, if the client does not choose it.
const DEFAULT_LIMIT: usize = 100;

/// The longest wait for an event.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The parameters of a request that returns events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// The position after which to read. `None`: from the oldest event on.
    pub(crate) after: Option<i64>,
    pub(crate) limit: usize,
    pub(crate) wait: Duration,
}

impl Parameters {
    /// Reads the query of a request. Only the `known` parameters are allowed.
    pub(crate) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut given = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let Some(name) = known.iter().find(|known| **known == name) else {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Problem::invalid(format!(
                    "the request has an unknown parameter; the known ones are: {known}"
                )));
            };
            if given.insert(*name, value.into_owned()).is_some() {
                return Err(Problem::invalid(format!("{name} is given more than once")));
            }
        }
        let limit = given.get("limit").map_or(Ok(DEFAULT_LIMIT), |text| limit(text))?;
        let wait = given.get("wait").map_or(Ok(Duration::ZERO), |text| wait(text))?;
        Ok(Self { after: given.get("after").map(|text| position("after", text)).transpose()?, limit, wait })
    }
}

/// The names in a path.
pub(crate) type PathNames<T> = Result<Path<T>, PathRejection>;

/// Returns the names in a path, if they are valid text.
pub(crate) fn names<T>(names: PathNames<T>) -> Result<T, Problem> {
    names
        .map(|Path(names)| names)
        .map_err(|_| Problem::new(ProblemKind::NotFound, "the names in the path are not valid"))
}

/// Reads a position. Only digits are accepted.
pub(crate) fn position(name: &str, text: &str) -> Result<i64, Problem> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let needed = || Problem::invalid(format!("{name} must be a position: a whole number from 0 to {}", i64::MAX));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(needed)
}

fn limit(text: &str) -> Result<usize, Problem> {
    let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| Problem::invalid(format!("limit must be a whole number from 1 to {MAX_LIMIT}")))
}

fn wait(text: &str) -> Result<Duration, Problem> {
    let wait = SpanParser::new().parse_unsigned_duration(text).ok().filter(|wait| *wait <= MAX_WAIT);
    let most = MAX_WAIT.as_secs();
    wait.ok_or_else(|| Problem::invalid(format!("wait must be a duration from 0s to {most}s, such as 30s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 3] = ["after", "limit", "wait"];

    #[test]
    fn valid_parameters_are_read() {
        let read = |query| Parameters::read(query, &ALL).unwrap();
        assert_eq!(read(None), Parameters { after: None, limit: 100, wait: Duration::ZERO });
        let given = read(Some("after=7&limit=1000&wait=1m"));
        assert_eq!(given, Parameters { after: Some(7), limit: 1000, wait: Duration::from_secs(60) });
        assert_eq!(read(Some("after=9223372036854775807")).after, Some(i64::MAX));
        assert_eq!(read(Some("wait=1500ms")).wait, Duration::from_millis(1_500));
    }

    #[test]
    fn invalid_parameters_are_explained() {
        for (query, about) in [
            ("after=-1", "after must be"),
            ("after=+1", "after must be"),
            ("after=", "after must be"),
            ("after=1.5", "after must be"),
            ("after=9223372036854775808", "after must be"),
            ("limit=0", "limit must be"),
            ("limit=1001", "limit must be"),
            ("limit=many", "limit must be"),
            ("wait=30", "wait must be"),
            ("wait=61s", "wait must be"),
            ("wait=-1s", "wait must be"),
            ("afer=3", "unknown parameter"),
            ("after=1&after=2", "after is given more than once"),
        ] {
            let problem = Parameters::read(Some(query), &ALL).expect_err(query).json().to_string();
            assert!(problem.contains(about), "{query}: {problem}");
        }
        let problem = Parameters::read(Some("after=1"), &["limit"]).expect_err("it has no position");
        assert!(problem.json().to_string().contains("the known ones are: limit"));
    }
}
