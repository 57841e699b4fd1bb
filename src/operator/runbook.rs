//! The topics that the runbook explains: its sections, and the rows of its tables of reasons.

use serde::Serialize;

use channel::RejectionReason;

mod text;

pub use text::{cut, filled};

const RUNBOOK: &str = include_str!("../../deploy/RUNBOOK.md");

/// A placeholder for any text in a message that a table quotes.
const ANY: char = '…';

/// The kind of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A reason why an event is rejected.
    Rejection,
    /// An alert.
    Alert,
    /// A reason why the daemon is not ready.
    NotReady,
    /// A message of a daemon that does not start.
    NotStarted,
    /// A section about other work.
    Task,
}

impl Kind {
    /// Every kind, in the order of a list.
    pub const ALL: [Self; 5] = [Self::Rejection, Self::Alert, Self::NotReady, Self::NotStarted, Self::Task];

    /// The kind in the words of an explanation's first line.
    pub fn about(self) -> &'static str {
        match self {
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
            Self::Rejection => "Why an event was rejected",
            Self::Alert => "Alerts",
            Self::NotReady => "Why channeld is not ready",
            Self::NotStarted => "Why channeld does not start, as the log says",
            Self::Task => "Sections of the runbook about work that comes up",
        }
    }

    /// The section whose table lists the reasons of this kind.
    fn table(self) -> Option<&'static str> {
        match self {
            Self::Rejection => Some("ChanneldEventsRejected"),
            Self::NotReady => Some("ChanneldNotReady"),
            Self::NotStarted => Some("ChanneldDown"),
            Self::Alert | Self::Task => None,
        }
    }
}

/// A topic that the runbook explains.
#[derive(Debug)]
pub struct Topic {
    /// Its kind.
    pub kind: Kind,
    /// The names by which code and people refer to it. Empty if only its messages are known.
    pub names: Vec<String>,
    /// The messages that the runbook quotes, with `…` for any text. People paste such lines; code uses names.
    pub quotes: Vec<String>,
    /// Its summary, one sentence.
    pub summary: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Section(&'static str),
    Row { headings: Vec<&'static str>, cells: Vec<&'static str>, section: &'static str },
}

/// All topics, in the order of the runbook.
pub fn topics() -> Vec<Topic> {
    let mut topics = Vec::new();
    for (heading, body) in sections() {
        let kind = if heading.starts_with("Channeld") { Kind::Alert } else { Kind::Task };
        let name = if kind == Kind::Alert { heading.to_owned() } else { slug(heading) };
        topics.push(Topic {
            kind,
            names: vec![name],
            quotes: Vec::new(),
            summary: text::first_sentence(body),
            source: Source::Section(body),
        });
        let of_rows = Kind::ALL.into_iter().find(|kind| kind.table() == Some(heading));
        topics.extend(of_rows.into_iter().flat_map(|kind| rows(kind, heading, body)));
    }
    topics
}

/// The second-level headings, each with the text below it.
pub fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    RUNBOOK.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, "")))
}

/// The anchor of a heading, as links use it.
pub fn slug(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

/// The rows of the first table of a section.
fn rows(kind: Kind, section: &'static str, body: &'static str) -> Vec<Topic> {
    let is_row = |line: &&str| line.trim_start().starts_with('|');
    let mut table = body.lines().skip_while(|line| !is_row(line)).take_while(is_row).map(text::cells);
    let headings = table.next().unwrap_or_default();
    let topic = |cells: Vec<&'static str>| {
        let spans = |cell: usize| cells.get(cell).map_or_else(Vec::new, |cell| text::code_spans(cell));
        let (names, quotes) = match kind {
            Kind::Rejection => (spelled_out(&spans(0)), Vec::new()),
            Kind::NotReady => (spans(0), spans(1)),
            _ => (Vec::new(), spans(0)),
        };
        let reason =
            names.first().filter(|_| kind == Kind::Rejection).and_then(|name| RejectionReason::from_name(name));
        let summary = match reason {
            Some(reason) => reason.explanation().to_owned(),
            None => text::inline(cells.last().unwrap_or(&"")),
        };
        Topic { kind, names, quotes, summary, source: Source::Row { headings: headings.clone(), cells, section } }
    };
    // The first line after the headings is the separator.
    table.skip(1).map(topic).collect()
}

/// Replaces each name that ends in `…` with every rejection reason that begins with it.
fn spelled_out(names: &[String]) -> Vec<String> {
    let known = |name: &String| match name.strip_suffix(ANY) {
        Some(start) => RejectionReason::all()
            .map(RejectionReason::name)
            .filter(|reason| reason.starts_with(start))
            .map(str::to_owned)
            .collect(),
        None => vec![name.clone()],
    };
    names.iter().flat_map(known).collect()
}

impl Topic {
    /// The texts under which it is listed: its names or, if it has none, its messages.
    pub fn listed(&self) -> &[String] {
        if self.names.is_empty() { &self.quotes } else { &self.names }
    }

    /// The runbook's text, followed by the other reasons that it links to.
    pub fn text(&self, width: usize) -> String {
        let (plain, markdown, around) = match &self.source {
            Source::Section(body) => (text::filled(body, width), (*body).to_owned(), None),
            Source::Row { headings, cells, section } => {
                let told = headings.iter().zip(cells).skip(1);
                let told =
                    told.map(|(heading, cell)| (if *heading == "the log says" { "meaning" } else { heading }, cell));
                let lines = told.map(|(heading, cell)| text::wrapped(&format!("{heading}: {cell}"), "", "  ", width));
                let mut plain = lines.collect::<Vec<_>>().join("\n");
                // If the last cell begins with a link, the answer is in the linked section.
                if let Some(body) = cells.last().and_then(|cell| led_to(cell)) {
                    plain = format!("{plain}\n\n{}", text::filled(body, width));
                }
                (plain, cells.join(" "), Some(*section))
            }
        };
        let linked = text::anchors(&markdown).into_iter().map(called);
        let mut more: Vec<_> = around.map(str::to_owned).into_iter().chain(linked).collect();
        more.retain(|name| !self.names.contains(name));
        let mut seen = Vec::new();
        for name in more {
            if !seen.contains(&name) {
                seen.push(name);
            }
        }
        if seen.is_empty() {
            return plain;
        }
        let seen: Vec<_> = seen.iter().map(|name| format!("  channeld explain {name}")).collect();
        format!("{}\n\nSee also:\n{}\n", plain.trim_end(), seen.join("\n"))
    }
}

/// The text of the section that a text links to, if the text begins with the link.
fn led_to(text: &str) -> Option<&'static str> {
    let (_, rest) = text.strip_prefix('[')?.split_once("](#")?;
    let (anchor, _) = rest.split_once(')')?;
    sections().find(|(heading, _)| slug(heading) == anchor).map(|(_, body)| body)
}

/// The topic name of the section that an anchor leads to.
fn called(anchor: &str) -> String {
    let alert = sections().find(|(heading, _)| heading.starts_with("Channeld") && slug(heading) == anchor);
    alert.map_or_else(|| anchor.to_owned(), |(heading, _)| heading.to_owned())
}

/// Finds a topic by a name in any case or, for a line that a person pasted, by a message that a table quotes.
pub fn find<'t>(topics: &'t [Topic], asked: &str) -> Option<(&'t Topic, &'t str)> {
    let asked = asked.trim().trim_matches('`');
    by_name(topics, asked).or_else(|| {
        let asked = asked.to_lowercase();
        let quotes = topics.iter().flat_map(|topic| topic.quotes.iter().map(move |quote| (topic, quote.as_str())));
        let literal = |quote: &str| quote.chars().filter(|c| *c != ANY).count();
        quotes.filter(|(_, quote)| is_of(quote, &asked)).max_by_key(|(_, quote)| literal(quote))
    })
}

/// Finds a topic by a name in any case.
pub fn by_name<'t>(topics: &'t [Topic], name: &str) -> Option<(&'t Topic, &'t str)> {
    let is_it = |known: &&String| known.eq_ignore_ascii_case(name) || slug(known) == slug(name);
    topics.iter().find_map(|topic| topic.names.iter().find(is_it).map(|known| (topic, known.as_str())))
}

/// Whether a message matches a message that a table quotes, with or without the name of its channel before it.
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

/// The names with the smallest edit distance. Names that contain the text, or that it contains, come first.
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
