//! The query part of the address of an event list. A colleague who opens the same address sees the same list.

use std::str::FromStr;

use jiff::Timestamp;
use url::form_urlencoded::{Serializer, parse};

use crate::tables::{EventFilter, Facet, MOST_ROWS, PagePosition, Search};
use net::time;

/// The largest number of chosen values in one column.
const MOST_CHOSEN: usize = 50;

/// The largest number of search words, and of characters in each value of an address.
const MOST_WORDS: usize = 12;
const LONGEST: usize = 300;

/// The number of rows on a page, unless another number is requested.
pub(super) const ROWS: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// The words as the user entered them. `from` and `to` are also unchanged input.
    pub(crate) words: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) filter: EventFilter,
    /// The page begins below the row at this position.
    pub(crate) below: Option<PagePosition>,
    pub(crate) rows: usize,
    /// Whether to search for longer than a page usually does.
    pub(crate) is_patient: bool,
    wrong: Option<String>,
}

impl Query {
    /// Parses the part of an address after `?`. Invalid parts are ignored, except times.
    pub(crate) fn parse(query: &str, now: Timestamp) -> Self {
        let mut read = Self { rows: ROWS, ..Self::default() };
        for (name, value) in parse(query.as_bytes()) {
            let value: String = value.chars().filter(|c| *c != '\0').take(LONGEST).collect();
            let value = value.trim().to_owned();
            match &*name {
                _ if value.is_empty() => {}
                "q" => read.words = value,
                "from" => read.from = value,
                "to" => read.to = value,
                "below" => read.below = value.parse().ok(),
                "rows" => read.rows = value.parse().unwrap_or(ROWS).clamp(1, MOST_ROWS),
                "patient" => read.is_patient = value == "1",
                name => {
                    let Ok(facet) = Facet::from_str(name) else { continue };
                    let chosen = read.filter.chosen.entry(facet).or_default();
                    if chosen.len() < MOST_CHOSEN && !chosen.contains(&value) {
                        chosen.push(value);
                    }
                }
            }
        }
        read.filter.words = read.words.split_whitespace().take(MOST_WORDS).map(str::to_owned).collect();
        let mut at = |text: &str| {
            let time = time::at(text, now);
            if time.is_none() && !text.is_empty() {
                read.wrong = Some(format!(
                    "“{text}” is not a valid time. Examples: 2026-05-14T12:00, Unix seconds, or 1h for one hour ago."
                ));
            }
            time
        };
        (read.filter.from, read.filter.to) = (at(&read.from), at(&read.to));
        read
    }

    /// Why the list cannot be shown.
    pub(crate) fn problem(&self, search: Search) -> Option<String> {
        let short = self.filter.words.iter().find(|word| word.chars().count() < 3);
        if let (Search::Trigrams, Some(short)) = (search, short) {
            return Some(format!("“{short}” is too short: each search word needs at least three characters."));
        }
        self.wrong.clone()
    }

    pub(super) fn is_restricted(&self) -> bool {
        !self.words.is_empty() || !self.from.is_empty() || !self.to.is_empty() || !self.filter.chosen.is_empty()
    }

    fn write(&self, below: Option<&PagePosition>, also: &[(&str, &str)]) -> String {
        let mut query = Serializer::new(String::new());
        for (name, value) in [("q", &self.words), ("from", &self.from), ("to", &self.to)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        for (facet, values) in &self.filter.chosen {
            for value in values {
                query.append_pair(&facet.parameter(), value);
            }
        }
        if self.rows != ROWS {
            query.append_pair("rows", &self.rows.to_string());
        }
        if let Some(below) = below {
            query.append_pair("below", &below.to_string());
        }
        query.extend_pairs(also);
        query.finish()
    }

    pub(crate) fn without_position(&self) -> String {
        self.write(None, &[])
    }

    pub(super) fn first_page(&self) -> String {
        address(&self.without_position())
    }

    pub(super) fn below(&self, position: &PagePosition) -> String {
        address(&self.write(Some(position), &[]))
    }

    /// The same query from the last row on, with more time to search.
    pub(super) fn patiently(&self, last: Option<&PagePosition>) -> String {
        address(&self.write(last.or(self.below.as_ref()), &[("patient", "1")]))
    }

    pub(super) fn export(&self, kind: &str) -> String {
        format!("/export?{}", self.write(None, &[("as", kind)]))
    }

    pub(super) fn since(&self, from: &str) -> String {
        Self { from: from.to_owned(), to: String::new(), ..self.clone() }.first_page()
    }

    /// For each chosen value: the name of its field, its text, and the address of the list without this value.
    pub(super) fn chips(&self) -> Vec<(&'static str, String, String)> {
        let mut chips = vec![("Words", &self.words, Self { words: String::new(), ..self.clone() })];
        for (facet, values) in &self.filter.chosen {
            for value in values {
                let mut without = self.clone();
                without.filter.chosen.entry(*facet).or_default().retain(|other| other != value);
                chips.push((facet.heading(), value, without));
            }
        }
        chips.push(("From", &self.from, Self { from: String::new(), ..self.clone() }));
        chips.push(("To", &self.to, Self { to: String::new(), ..self.clone() }));
        let chosen = chips.into_iter().filter(|(_, value, _)| !value.is_empty());
        chosen.map(|(name, value, without)| (name, value.clone(), without.first_page())).collect()
    }
}

fn address(query: &str) -> String {
    if query.is_empty() { "/".to_owned() } else { format!("/?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn the_url_contains_the_whole_query() {
        let query = "q=two+words&from=1h&to=2027-01-14&verdict=verified&type=a&type=b&rows=200";
        let read = Query::parse(query, now());
        assert_eq!(read.filter.words, ["two", "words"]);
        assert_eq!(read.filter.from, now().checked_sub(jiff::SignedDuration::from_hours(1)).ok());
        assert_eq!(read.filter.chosen[&Facet::Type], ["a", "b"]);
        let again = Query::parse(read.first_page().strip_prefix("/?").unwrap(), now());
        assert_eq!(again, read);
    }

    #[test]
    fn a_page_position_round_trips() {
        for time in [None, Some(now())] {
            let [channel, event] = ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "11111111-7425-40de-944b-e07fc1f90ae7"];
            let (channel, event) = (channel.parse().unwrap(), event.parse().unwrap());
            let position = PagePosition { time, offset: 7, channel, event };
            let address = Query::parse("name=x", now()).below(&position);
            assert_eq!(Query::parse(address.strip_prefix("/?").unwrap(), now()).below, Some(position));
        }
    }

    #[test]
    fn invalid_parameters_are_ignored_and_a_wrong_time_is_reported() {
        let read = Query::parse("below=x&rows=100000&who=me&type=&q=%20&%ff=%fe", now());
        assert_eq!((read.below.clone(), read.rows, read.is_restricted()), (None, MOST_ROWS, false));
        assert_eq!(read.problem(Search::None), None);
        assert!(Query::parse("from=yesterday", now()).problem(Search::None).unwrap().contains("yesterday"));
        assert!(Query::parse("q=ab", now()).problem(Search::Trigrams).is_some());
        assert!(Query::parse("q=ab", now()).problem(Search::Words).is_none());
        let many = (0..200).map(|number| format!("type={number}")).collect::<Vec<_>>().join("&");
        assert_eq!(Query::parse(&many, now()).filter.chosen[&Facet::Type].len(), MOST_CHOSEN);
    }

    #[test]
    fn a_word_is_read_the_same_if_nulls_follow_it() {
        let read = Query::parse("q=a+%00", now());
        assert_eq!(Query::parse(&read.without_position(), now()), read);
    }

    #[test]
    fn each_filter_can_be_removed() {
        let read = Query::parse("q=w&type=a&type=b&from=1h", now());
        let chips = read.chips();
        assert_eq!(chips.len(), 4);
        assert_eq!(chips[1].2, "/?q=w&from=1h&type=b");
    }
}
