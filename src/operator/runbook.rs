//! The topics that `channeld explain` knows: the concepts, each section of the runbook, and each row of the runbook's
//! tables of reasons.

use std::iter;

use serde::Serialize;

mod remedy;
mod text;

pub use remedy::split_remedy;
pub use text::{cut, filled};

const RUNBOOK: &str = include_str!("../../deploy/RUNBOOK.md");
const CONCEPTS: &str = include_str!("../../deploy/CONCEPTS.md");

/// A placeholder for any text in a message that a table quotes.
const ANY: char = '…';

/// The kind of a topic.
#[expect(missing_docs, reason = "`about` describes each")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Concepts,
    Rejection,
    Alert,
    NotReady,
    NotStarted,
    Task,
}

impl Kind {
    /// Every kind, in the order of a list.
    pub const ALL: [Self; 6] =
        [Self::Concepts, Self::Rejection, Self::Alert, Self::NotReady, Self::NotStarted, Self::Task];

    /// The kind in the words of an explanation's first line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Concepts => "the words that channeld uses",
            Self::Rejection => "why an event was rejected",
            Self::Alert => "an alert",
            Self::NotReady => "why channeld is not ready",
            Self::NotStarted => "why channeld does not start, or has ended",
            Self::Task => "from the runbook",
        }
    }

    /// The heading of a list of this kind.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Concepts => "The words that channeld uses",
            Self::Rejection => "Why an event was rejected",
            Self::Alert => "Alerts",
            Self::NotReady => "Why channeld is not ready",
            Self::NotStarted => "Why channeld does not start, by the message in the log",
            Self::Task => "Other sections of the runbook",
        }
    }
}

/// A topic that the runbook explains.
#[derive(Debug)]
pub struct Topic {
    /// The kind of the topic.
    pub kind: Kind,
    /// The names by which code and people refer to the topic. Empty if the topic has only messages.
    pub names: Vec<String>,
    /// The messages that the runbook quotes, with `…` for any text. People paste such messages from a log. Code finds a
    /// topic by a name.
    pub quotes: Vec<String>,
    /// A summary in one sentence.
    pub summary: String,
    /// The cells of the row, each after the heading of its column. Empty if the topic is a section.
    cells: Vec<String>,
    /// The text of the topic's own section, or of the section that the topic's row links to.
    body: Option<&'static str>,
    /// The names of related topics: the section that contains the row, and the sections that the text links to.
    links: Vec<String>,
}

/// All topics: the concepts, and then the runbook in its order.
pub fn topics() -> Vec<Topic> {
    let concepts = CONCEPTS.split_once('\n').map_or(CONCEPTS, |(_title, body)| body);
    let mut topics = vec![Topic {
        kind: Kind::Concepts,
        names: vec!["concepts".to_owned()],
        quotes: Vec::new(),
        summary: text::first_sentence(concepts),
        cells: Vec::new(),
        body: Some(concepts),
        links: Vec::new(),
    }];
    for (heading, body) in sections() {
        topics.push(Topic {
            kind: if is_alert(heading) { Kind::Alert } else { Kind::Task },
            names: vec![section_name(heading)],
            quotes: Vec::new(),
            summary: text::first_sentence(body),
            cells: Vec::new(),
            body: Some(body),
            links: linked(body).collect(),
        });
        match heading {
            "ChanneldEventsRejected" => topics.extend(rows(Kind::Rejection, heading, body)),
            "ChanneldNotReady" => topics.extend(rows(Kind::NotReady, heading, body)),
            "ChanneldDown" => topics.extend(rows(Kind::NotStarted, heading, body)),
            _ => {}
        }
    }
    topics
}

/// The second-level headings, each with the text below it.
pub fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    RUNBOOK.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, "")))
}

fn section_at(anchor: &str) -> Option<(&'static str, &'static str)> {
    sections().find(|(heading, _)| slug(heading) == anchor)
}

/// The anchor of a heading, as links use it.
fn slug(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

fn is_alert(heading: &str) -> bool {
    heading.starts_with("Channeld")
}

/// The topic name of a section: the name of its alert or, if the section is not about an alert, its anchor.
fn section_name(heading: &str) -> String {
    if is_alert(heading) { heading.to_owned() } else { slug(heading) }
}

/// The topic names of the sections that a text links to.
fn linked(markdown: &str) -> impl Iterator<Item = String> {
    let name =
        |anchor: &str| section_at(anchor).map_or_else(|| anchor.to_owned(), |(heading, _)| section_name(heading));
    text::anchors(markdown).map(name)
}

/// The rows of the first table of a section.
fn rows(kind: Kind, section: &str, body: &'static str) -> Vec<Topic> {
    let is_row = |line: &&str| line.trim_start().starts_with('|');
    let mut table = body.lines().skip_while(|line| !is_row(line)).take_while(is_row).map(text::cells);
    let headings = table.next().unwrap_or_default();
    let topic = |cells: Vec<&'static str>| {
        let cell = |number: usize| cells.get(number).copied().unwrap_or_default();
        let spans = |number| cell(number).split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let last = cells.last().copied().unwrap_or_default();
        let (names, quotes, summary) = match kind {
            Kind::Rejection => (spans(0), Vec::new(), cell(1)),
            Kind::NotReady => (spans(0), spans(1), last),
            _ => (Vec::new(), spans(0), last),
        };
        let told = headings.iter().zip(&cells).skip(1).map(|(heading, cell)| {
            let heading = if *heading == "the log says" { "meaning" } else { heading };
            format!("{heading}: {cell}")
        });
        Topic {
            kind,
            names,
            quotes,
            summary: text::inline(summary),
            cells: told.collect(),
            // If the last cell begins with a link, the answer is in the linked section.
            body: last.strip_prefix('[').and_then(|_| section_at(text::anchors(last).next()?)).map(|(_, body)| body),
            links: iter::once(section.to_owned()).chain(linked(&cells.join(" "))).collect(),
        }
    };
    // The first line after the headings is the separator.
    table.skip(1).map(topic).collect()
}

impl Topic {
    /// The texts under which a list shows the topic: its names or, if it has none, its messages.
    pub fn listed(&self) -> &[String] {
        if self.names.is_empty() { &self.quotes } else { &self.names }
    }

    /// The runbook's text, as Markdown, for a page that shows the message. The cell with the pattern of the message is left out.
    pub fn markdown(&self) -> String {
        let named = |cell: &String| match cell.split_once(": ") {
            Some(("reason", _)) => String::new(),
            Some(("what to do", cell)) => format!("{cell}\n\n"),
            Some((heading, cell)) => format!("**{heading}:** {cell}\n\n"),
            None => format!("{cell}\n\n"),
        };
        let cells = self.told().map(named);
        cells.chain(self.body.map(str::to_owned)).collect()
    }

    /// The cells of the row. The text of the section follows, so a cell that is only a link to it says nothing.
    fn told(&self) -> impl Iterator<Item = &String> {
        let is_link =
            |cell: &&String| self.body.is_some() && text::is_link(cell.split_once(": ").map_or("", |cell| cell.1));
        self.cells.iter().filter(move |cell| !is_link(cell))
    }

    /// The runbook's text, followed by the commands that explain the related topics.
    pub fn text(&self, width: usize) -> String {
        let cells: Vec<_> = self.told().map(|cell| text::wrapped(cell, "", "  ", width)).collect();
        let cells = (!cells.is_empty()).then(|| cells.join("\n"));
        let body = self.body.map(|body| text::filled(body, width));
        let text = cells.into_iter().chain(body).collect::<Vec<_>>().join("\n\n");
        let mut others = Vec::new();
        for name in &self.links {
            let other = format!("  channeld explain {name}");
            if !self.names.contains(name) && !others.contains(&other) {
                others.push(other);
            }
        }
        if others.is_empty() {
            return text;
        }
        format!("{}\n\nSee also:\n{}\n", text.trim_end(), others.join("\n"))
    }
}

/// Finds a topic by a name, ignoring case. If no name matches, finds it by a message that a table or an item of a list quotes,
/// because people paste lines of a log or of `status`.
pub fn find<'t>(topics: &'t [Topic], asked: &str) -> Option<(&'t Topic, &'t str)> {
    let asked = asked.trim().trim_matches('`');
    by_name(topics, asked)
        .or_else(|| {
            let asked = asked.to_lowercase();
            let quotes = topics.iter().flat_map(|topic| topic.quotes.iter().map(move |quote| (topic, quote.as_str())));
            let literal = |quote: &str| quote.chars().filter(|c| *c != ANY).count();
            quotes.filter(|(_, quote)| is_of(quote, &asked)).max_by_key(|(_, quote)| literal(quote))
        })
        .or_else(|| remedy::by_item(topics, asked))
}

/// Finds a topic by a name, ignoring case.
pub fn by_name<'t>(topics: &'t [Topic], name: &str) -> Option<(&'t Topic, &'t str)> {
    let is_it = |known: &&String| known.eq_ignore_ascii_case(name) || slug(known) == slug(name);
    topics.iter().find_map(|topic| topic.names.iter().find(is_it).map(|known| (topic, known.as_str())))
}

/// Whether a message matches a message that a table quotes. The message can lack the name of its channel at the beginning.
fn is_of(pattern: &str, message: &str) -> bool {
    let pattern = pattern.to_lowercase();
    let without = pattern.strip_prefix("channel …: ").filter(|rest| rest.chars().any(char::is_alphabetic));
    [Some(pattern.as_str()), without].into_iter().flatten().any(|pattern| {
        let mut rest = message;
        pattern.split(ANY).all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    })
}

/// The names with the smallest edit distance to a text. Names that contain the text come first, together with names
/// that the text contains.
pub fn nearest<'t>(topics: &'t [Topic], asked: &str, most: usize) -> Vec<&'t str> {
    let asked = asked.to_lowercase();
    let names = topics.iter().flat_map(|topic| &topic.names);
    let mut names: Vec<_> = names
        .map(|name| {
            let lower = name.to_lowercase();
            let bare = lower.strip_prefix("channeld").unwrap_or(&lower);
            let holds = asked.len() > 2 && (bare.contains(&asked) || asked.contains(bare));
            (!holds, strsim::damerau_levenshtein(bare, asked.strip_prefix("channeld").unwrap_or(&asked)), name.as_str())
        })
        .collect();
    names.sort_unstable();
    names.into_iter().take(most).map(|(_, _, name)| name).collect()
}
