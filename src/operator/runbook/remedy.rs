//! Finds the remedy for one problem in the runbook.

use super::text::{cut, filled, with_code};
use super::{ANY, Topic};

/// The longest remedy, in characters: three lines on a wide terminal.
const LONGEST: usize = 280;

/// Wider than any paragraph, so that each paragraph and each item of a list is one line.
const ONE_LINE: usize = 100_000;

impl Topic {
    /// The remedy for one problem, in about three lines. `problem` is the message of the problem: if the runbook
    /// lists remedies for several messages, the remedy for this message is returned.
    pub fn remedy(&self, problem: &str) -> String {
        if let Some(remedy) = self.remedy_of_message(problem) {
            return remedy;
        }
        let body = self.body.map(|body| filled(body, ONE_LINE)).unwrap_or_default();
        let of_row =
            self.cells.iter().find_map(|cell| cell.strip_prefix("what to do: ")).filter(|cell| !cell.starts_with('['));
        let found = of_row.or_else(|| {
            body.lines()
                .find(|line| line.starts_with(|c: char| c.is_alphabetic() || c == '`' && !line.starts_with("```")))
        });
        cut(&with_code(found.unwrap_or(&self.summary)), LONGEST)
    }

    /// The remedy that the runbook lists for a message; `None` if no item of its list quotes the message.
    pub fn remedy_of_message(&self, message: &str) -> Option<String> {
        let body = filled(self.body?, ONE_LINE);
        best_item(&body, message).map(|(_, item)| cut(&with_code(item), LONGEST))
    }
}

/// The item of a list that quotes the message, with the quality of the match.
fn best_item<'t>(body: &'t str, problem: &str) -> Option<(usize, &'t str)> {
    let items = body.lines().filter_map(|line| Some((fit(line, problem)?, line.strip_prefix("* ")?)));
    items.max_by_key(|(fit, _)| *fit)
}

/// Finds the section with the list whose item quotes a message.
pub(super) fn by_item<'t>(topics: &'t [Topic], problem: &str) -> Option<(&'t Topic, &'t str)> {
    let sections = topics.iter().filter(|topic| topic.cells.is_empty());
    let found = sections.filter_map(|topic| Some((best_item(topic.body?, problem)?.0, topic, topic.names.first()?)));
    found.max_by_key(|(fit, ..)| *fit).map(|(_, topic, name)| (topic, name.as_str()))
}

/// Splits a message into the problem and the remedy. A message contains its remedy if it names a command of channeld: the remedy
/// begins with the sentence, or the part of a sentence, that contains the first command.
pub fn split_remedy(message: &str) -> (&str, Option<&str>) {
    let Some(command) = message.find("`channeld ") else { return (message, None) };
    let ends = |mark| message[..command].rfind(mark);
    match [". ", "; "].into_iter().filter_map(ends).max().or_else(|| ends(": ")) {
        // The problem keeps its period.
        Some(at) => (message[..=at].trim_end_matches([';', ':']), Some(&message[at + 2..])),
        None => (message, None),
    }
}

/// How many characters of a quoted message in the bold beginning of a list item occur in the problem. `None` if no
/// message of the item occurs.
fn fit(line: &str, problem: &str) -> Option<usize> {
    let (head, _) = line.strip_prefix("* **")?.split_once("**")?;
    let messages = head.split('`').skip(1).step_by(2).filter(|message| !message.is_empty());
    messages.filter(|message| occurs(message, problem)).map(str::len).max()
}

/// Whether all parts of a quoted message occur in the problem. A number occurs only as a whole.
fn occurs(message: &str, problem: &str) -> bool {
    if message.bytes().all(|byte| byte.is_ascii_digit()) {
        return problem.split(|c: char| !c.is_ascii_digit()).any(|number| number == message);
    }
    message.split(ANY).all(|part| problem.contains(part))
}

#[cfg(test)]
mod tests {
    use super::super::{by_name, topics};

    fn remedy(name: &str, problem: &str) -> String {
        by_name(&topics(), name).unwrap().0.remedy(problem)
    }

    #[test]
    fn the_remedy_is_about_the_message() {
        for (problem, remedy_begins) in [
            ("answered 410: it accepts no more events", "`410`: the endpoint asked for no more requests."),
            ("answered 422", "`409`, `422`: the endpoint refuses this event"),
            ("answered 413", "`413`: this single event is larger"),
            ("table public.events has no column digest", "`has no column …`: the table was changed"),
            ("something else 4100", "A sink refuses events, and retries alone do not help."),
        ] {
            let found = remedy("sink_blocked", problem);
            assert!(found.starts_with(remedy_begins) && found.chars().count() <= 280, "{problem}: {found}");
        }
    }

    #[test]
    fn a_message_with_commands_contains_its_remedy() {
        for (message, problem, remedy) in [
            (
                "the table has no row. Nothing is delivered. To deliver again: `channeld pause c0`, `channeld resume c0`",
                "the table has no row. Nothing is delivered.",
                Some("To deliver again: `channeld pause c0`, `channeld resume c0`"),
            ),
            ("it differs; to accept it: `channeld pause c0`", "it differs", Some("to accept it: `channeld pause c0`")),
            (
                "3 events are missing, the first at offset 5: `channeld check --history c0` lists them",
                "3 events are missing, the first at offset 5",
                Some("`channeld check --history c0` lists them"),
            ),
            ("answered 401; see `secret`. Or not", "answered 401; see `secret`. Or not", None),
            ("run `channeld reload`", "run `channeld reload`", None),
        ] {
            assert_eq!(super::split_remedy(message), (problem, remedy));
        }
    }

    #[test]
    fn every_topic_has_a_short_remedy() {
        assert!(remedy("event-hash-mismatch", "").starts_with("The event was changed after it was signed"));
        for topic in topics() {
            let found = topic.remedy("");
            assert!(
                !found.is_empty() && found.chars().count() <= 280 && !found.contains("**"),
                "{:?}: {found}",
                topic.names
            );
            let is_text = !found.starts_with('|') && !found.starts_with("```") && !found.contains("](");
            assert!(is_text, "{:?}: {found}", topic.names);
        }
    }
}
