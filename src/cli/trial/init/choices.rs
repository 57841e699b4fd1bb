//! The channels that the service lists, from which an operator chooses.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::cli::context::CommandError;
use crate::cli::verdict_line::printable;
use crate::config;
use api::ListedChannel;

/// The channels that the service lists. Empty if the list is not available.
#[derive(Debug, Default)]
pub(super) struct Choices(Vec<Choice>);

#[derive(Debug)]
struct Choice {
    /// The name for the configuration, different for each channel.
    name: String,
    channel: ListedChannel,
}

impl Choices {
    pub(super) fn of(listed: Vec<ListedChannel>) -> Self {
        let mut taken = BTreeSet::new();
        let choice = |channel: ListedChannel| Choice { name: unique_name(&channel, &mut taken), channel };
        Self(listed.into_iter().map(choice).collect())
    }

    /// The list, with the numbers that an operator can choose.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        (1..).zip(&self.0).map(|(number, Choice { name, channel })| {
            let said = channel.name.as_deref().filter(|said| said != name).map(|said| format!("  {said}"));
            let status = channel.status.as_deref().map(|status| format!("  ({status})"));
            // The longest text is last, because a narrow terminal cuts it.
            let text = format!("{}{}", status.unwrap_or_default(), said.unwrap_or_default());
            format!("{number:>4}  {name}  {}{}", channel.channel_id, printable(&text))
        })
    }

    /// The answer that chooses the first channel. `None` without a list.
    pub(super) fn first(&self) -> Option<&'static str> {
        (!self.0.is_empty()).then_some("1")
    }

    pub(super) fn question(&self) -> &'static str {
        if self.0.is_empty() { "A channel, as NAME=ID" } else { "Channels, as numbers of the list, or as NAME=ID" }
    }

    /// Returns the names and ids of the channels in an operator's answer. Each is a number of the list, or a
    /// text as in [`one`](Self::one).
    pub(super) fn chosen(&self, answer: &str) -> Result<Vec<(String, String)>, CommandError> {
        let parts = answer.split([',', ' ']).filter(|part| !part.is_empty());
        let numbers: Option<Vec<usize>> = parts.map(|part| part.parse().ok()).collect();
        match numbers.filter(|_| !self.0.is_empty()) {
            Some(numbers) => numbers.into_iter().map(|number| self.numbered(number)).collect(),
            None => self.one(answer).map(|channel| vec![channel]),
        }
    }

    fn numbered(&self, number: usize) -> Result<(String, String), CommandError> {
        let choice = number.checked_sub(1).and_then(|at| self.0.get(at));
        choice.map(Choice::named).ok_or_else(|| {
            CommandError::usage(format!("{number} is not in the list, which ends with {}", self.0.len()))
        })
    }

    /// Returns the name and the id of a channel: NAME=ID, or the name or id of a listed channel.
    pub(super) fn one(&self, text: &str) -> Result<(String, String), CommandError> {
        if let Some((name, id)) = text.split_once('=') {
            return Ok((name.trim().to_owned(), id.trim().to_owned()));
        }
        if self.0.is_empty() {
            return Err(CommandError::usage("a channel is NAME=ID, such as settlements=7c9e6679-…"));
        }
        let (text, id) = (text.trim(), text.trim().parse::<Uuid>().ok());
        let is_meant = |choice: &&Choice| match id {
            Some(id) => choice.channel.channel_id == id,
            None => choice.name == text || choice.channel.name.as_deref() == Some(text),
        };
        let found: Vec<_> = self.0.iter().filter(is_meant).collect();
        match found[..] {
            [one] => Ok(one.named()),
            [] => {
                let names: Vec<_> = self.0.iter().map(|choice| &*choice.name).collect();
                let (text, names) = (printable(text), names.join(", "));
                Err(CommandError::usage(format!("the service lists no channel {text}; it lists {names}")))
            }
            [..] => {
                let ids: Vec<_> = found.iter().map(|choice| choice.channel.channel_id.to_string()).collect();
                let (text, ids) = (printable(text), ids.join(", "));
                Err(CommandError::usage(format!("several channels are named {text}; give the id of one: {ids}")))
            }
        }
    }
}

impl Choice {
    fn named(&self) -> (String, String) {
        (self.name.clone(), self.channel.channel_id.to_string())
    }
}

/// Makes a name for the configuration from the name that the service shows.
fn unique_name(channel: &ListedChannel, taken: &mut BTreeSet<String>) -> String {
    let text = channel.name.as_deref().unwrap_or_default();
    let ends = std::iter::once(String::new()).chain((2..).map(|number| format!("-{number}")));
    let name = ends
        .map(|end| config::channel_name(text, &end))
        .find(|name| !taken.contains(name))
        .expect("the numbers do not end");
    taken.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> String {
        Uuid::from_u128(number).to_string()
    }

    fn choices(names: &[Option<&str>]) -> Choices {
        let channel = |(number, name): (u128, Option<&str>)| ListedChannel {
            channel_id: Uuid::from_u128(number),
            name: name.map(str::to_owned),
            description: None,
            status: Some("active".to_owned()),
            created_at: None,
        };
        Choices::of((1..).zip(names.iter().copied()).map(channel).collect())
    }

    #[test]
    fn every_listed_channel_has_its_own_legal_name() {
        let long = "x".repeat(70);
        let names = [
            Some("Settlements (EU)"),
            Some("settlements__eu"),
            None,
            Some("Settlements EU"),
            Some("→"),
            Some(&*long),
            Some(&*long),
        ];
        let found: Vec<_> = choices(&names).0.into_iter().map(|choice| choice.name).collect();
        let expected = ["Settlements-EU", "settlements-eu", "channel", "Settlements-EU-2", "channel-2"];
        assert_eq!(found[..5], expected);
        assert_eq!(found[5..], ["x".repeat(64), format!("{}-2", "x".repeat(62))]);
    }

    #[test]
    fn a_channel_is_chosen_by_number_name_or_id() {
        let choices = choices(&[Some("Settlements EU"), Some("mints"), Some("mints")]);
        let settlements = ("Settlements-EU".to_owned(), id(1));
        let (mints, other) = (("mints".to_owned(), id(2)), ("mints-2".to_owned(), id(3)));
        for (answer, expected) in [
            ("1", vec![settlements.clone()]),
            ("3, 1", vec![other.clone(), settlements.clone()]),
            ("Settlements EU", vec![settlements.clone()]),
            ("Settlements-EU", vec![settlements.clone()]),
            (&*id(2), vec![mints]),
            ("mints-2", vec![other]),
            ("mine = 7c9e", vec![("mine".to_owned(), "7c9e".to_owned())]),
        ] {
            let chosen = choices.chosen(answer).unwrap_or_else(|error| panic!("{answer}: {error}"));
            assert_eq!(chosen, expected, "{answer}");
        }
        for (answer, message) in [
            ("0", "0 is not in the list, which ends with 3"),
            ("4", "4 is not in the list"),
            ("burns", "the service lists no channel burns; it lists Settlements-EU, mints, mints-2"),
            (&*id(9), "the service lists no channel 0000"),
            ("mints", &*format!("several channels are named mints; give the id of one: {}, {}", id(2), id(3))),
        ] {
            let error = choices.chosen(answer).expect_err(answer).to_string();
            assert!(error.contains(message), "{answer}: {error}");
        }
        assert!(choices.one("1").is_err(), "a number is only an answer to the list");
        let lines: Vec<_> = choices.lines().collect();
        assert_eq!(lines[0], format!("   1  Settlements-EU  {}  (active)  Settlements EU", id(1)));
        assert_eq!(lines[1], format!("   2  mints  {}  (active)", id(2)));
    }

    #[test]
    fn without_a_list_a_channel_has_a_name_and_an_id() {
        for answer in ["1", "settlements", &*id(1)] {
            assert!(Choices::default().chosen(answer).expect_err(answer).to_string().contains("a channel is NAME=ID"));
        }
    }
}
