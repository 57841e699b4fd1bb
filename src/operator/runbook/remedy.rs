//! Finds the remedy for one problem in the runbook.

use super::text::{cut, filled, inline};
use super::{ANY, Topic};

/// Wider than any paragraph, so that each paragraph and each item of a list is one line.
const ONE_LINE: usize = 100_000;

impl Topic {
    /// The remedy for one problem, in at most `width` characters. `problem` is the message of the problem: if the runbook
    /// lists remedies for several messages, the remedy for this message is returned.
    pub fn remedy(&self, problem: &str, width: usize) -> String {
        let body = self.body.map(|body| filled(body, ONE_LINE)).unwrap_or_default();
        let items = body.lines().filter_map(|line| Some((fit(line, problem)?, line.strip_prefix("* ")?)));
        let of_message = items.max_by_key(|(fit, _)| *fit).map(|(_, item)| item);
        let of_row =
            self.cells.iter().find_map(|cell| cell.strip_prefix("what to do: ")).filter(|cell| !cell.starts_with('['));
        let found = of_message.or(of_row).or_else(|| {
            body.lines()
                .find(|line| line.starts_with(|c: char| c.is_alphabetic() || c == '`' && !line.starts_with("```")))
        });
        cut(&inline(found.unwrap_or(&self.summary)), width)
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
        by_name(&topics(), name).unwrap().0.remedy(problem, 280)
    }

    #[test]
    fn the_remedy_is_about_the_message() {
        for (problem, remedy_begins) in [
            ("answered 410: it accepts no more events", "410: the endpoint asked for no more requests."),
            ("answered 422", "409, 422: the endpoint refuses this event"),
            ("answered 413", "413: this single event is larger"),
            ("table public.events has no column digest", "has no column …: the table was changed"),
            ("something else 4100", "A sink refuses events, and retries alone do not help."),
        ] {
            let found = remedy("sink_blocked", problem);
            assert!(found.starts_with(remedy_begins) && found.chars().count() <= 280, "{problem}: {found}");
        }
    }

    #[test]
    fn every_topic_has_a_short_remedy() {
        assert!(remedy("event-hash-mismatch", "").starts_with("The event was changed after it was signed"));
        for topic in topics() {
            let found = topic.remedy("", 280);
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
