//! The parts that all pages share: head, navigation and foot; badges, times, and a text to copy.

use std::sync::Arc;

use axum::extract::{Extension, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

use super::access::{Notice, Visitor};
use super::state::State;
use super::text::whole;
use operator::runbook;

/// The width of a runbook text, in columns.
const WIDTH: usize = 88;

/// The frame of a page for one visitor.
pub(super) struct Shell {
    title: String,
    /// The address of the page's tab.
    tab: &'static str,
    form_token: String,
    notice: Option<Notice>,
    read_only: bool,
    /// Whether the daemon is ready; `None` if it does not answer.
    ready: Option<bool>,
    /// The number of quarantined events and dead letters.
    held: u64,
}

/// The verdict on an event's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Badge {
    Verified,
    Unsigned,
    Pending,
    Rejected,
}

impl Badge {
    pub(super) fn of(word: &str) -> Self {
        match word {
            "verified" => Self::Verified,
            "unsigned" => Self::Unsigned,
            "pending" => Self::Pending,
            _ => Self::Rejected,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unsigned => "unsigned",
            Self::Pending => "pending",
            Self::Rejected => "rejected",
        }
    }

    /// Each badge has its own shape, so it does not depend on color alone: shield, dashed ring, clock, octagon.
    pub(super) fn show(self) -> Markup {
        let (word, shape) = match self {
            Self::Verified => (
                self.word(),
                html! {
                    path.fill d="M8 1l6 2v4.500c0 3.600-2.500 6.200-6 7.500-3.500-1.300-6-3.900-6-7.500V3z" {}
                    path.cut d="M5 8l2.200 2.200L11 6" {}
                },
            ),
            Self::Unsigned => (self.word(), html! { circle.dash cx="8" cy="8" r="6" {} path.line d="M5.500 8h5" {} }),
            Self::Pending => {
                (self.word(), html! { circle.line cx="8" cy="8" r="6" {} path.line d="M8 4.500V8l2.500 1.500" {} })
            }
            Self::Rejected => (
                self.word(),
                html! {
                    path.fill d="M5.200 1h5.600L15 5.200v5.600L10.800 15H5.200L1 10.800V5.200z" {}
                    path.cut d="M5.500 5.500l5 5M10.500 5.500l-5 5" {}
                },
            ),
        };
        html! {
            span class={ "badge " (word) } {
                svg viewBox="0 0 16 16" aria-hidden="true" { (shape) }
                (word)
            }
        }
    }
}

impl Shell {
    pub(super) async fn of(state: &State, visitor: &Visitor, title: &str, tab: &'static str) -> Self {
        let report = state.link.lately().await;
        let held = report.as_ref().map_or(0, |report| report.quarantine.events + report.dead_letters.events);
        Self {
            title: title.to_owned(),
            tab,
            form_token: visitor.form_token.clone(),
            notice: visitor.notice.clone(),
            read_only: visitor.read_only,
            ready: report.filter(|report| report.daemon.is_some()).map(|report| report.ready),
            held,
        }
    }

    /// Proves that a form was made for this browser.
    pub(super) fn form_token(&self) -> Markup {
        html! { input type="hidden" name="form" value=(self.form_token); }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn page(&self, content: &Markup) -> Response {
        let state = match self.ready {
            Some(true) => html! { a.state.good href="/daemon" { span.dot {} "ready" } },
            Some(false) => html! { a.state.bad href="/daemon" { span.dot {} "not ready" } },
            None => html! { a.state.away href="/daemon" { span.dot {} "no daemon answers" } },
        };
        let tab = |href: &str, name: &str, count: u64| {
            html! {
                a href=(href) aria-current=[(self.tab == href).then_some("page")] {
                    (name)
                    @if count > 0 { " " span.count { (count) } }
                }
            }
        };
        document(
            &self.title,
            &html! {},
            &html! {
                header.top {
                    a.skip href="#main" { "Skip to the content" }
                    a.mark href="/" { svg viewBox="0 0 32 32" aria-hidden="true" {
                        rect width="32" height="32" rx="8" {}
                        path.face d="M16 6l8 3v6.500c0 5-3.400 8.600-8 10.500-4.600-1.900-8-5.500-8-10.500V9z" {}
                        path.tick d="M12 15.800l3 3 5.200-5.800" {}
                    } span { "channeld" } }
                    nav aria-label="Pages" {
                        (tab("/", "Events", 0))
                        (tab("/daemon", "Daemon", 0))
                        (tab("/held", "Held back", self.held))
                    }
                    (state)
                }
                main id="main" {
                    @if let Some(Notice { is_good, text }) = &self.notice {
                        p.notice.good[*is_good].bad[!*is_good] role="status" { (whole(text)) }
                    }
                    (content)
                }
                footer {
                    span { "channeld console" @if self.read_only { ", read-only" } }
                    a href="/invite" { "Open in another browser" }
                    span.keys { "Keys: " kbd { "/" } " search, " kbd { "j" } " " kbd { "k" } " next and previous, " kbd { "Enter" }
                        " open, " kbd { "n" } " new events" }
                }
            },
        )
    }
}

/// A page without navigation.
pub(super) fn bare(title: &str, head: &Markup, content: &Markup) -> Response {
    document(title, head, &html! { main.bare id="main" { h1 { (title) } (content) } })
}

fn document(title: &str, head: &Markup, body: &Markup) -> Response {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · channeld" }
                link rel="icon" href="/icon.svg";
                link rel="stylesheet" href="/console.css";
                script src="/console.js" defer {}
                (head)
            }
            body { (body) }
        }
    }
    .into_response()
}

pub(super) async fn nowhere(Of(state): Of<Arc<State>>, Extension(visitor): Extension<Visitor>) -> Response {
    problem(&state, &visitor, StatusCode::NOT_FOUND, "Page not found.").await
}

/// A page that explains why the requested page cannot be shown.
pub(super) async fn problem(state: &State, visitor: &Visitor, status: StatusCode, why: &str) -> Response {
    let shell = Shell::of(state, visitor, "Not shown", "").await;
    let page = shell.page(&html! {
        h1 { "Not shown" }
        p.lead { (whole(why)) }
        p { a href="/" { "To the events" } }
    });
    (status, page).into_response()
}

/// A date and time in UTC, or a dash without a time.
pub(super) fn time(at: Option<Timestamp>) -> Markup {
    match at {
        None => html! { span.none { "–" } },
        Some(at) => {
            html! { time datetime=(format!("{at:.0}")) title=(format!("{at} (UTC)")) { (at.strftime("%Y-%m-%d %H:%M:%S")) } }
        }
    }
}

/// A duration in a suitable unit, rounded down.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// How long ago a time was.
pub(super) fn ago(then: Timestamp) -> String {
    let seconds = Timestamp::now().as_second().saturating_sub(then.as_second());
    format!("{} ago", span(u64::try_from(seconds).unwrap_or(0)))
}

/// A number with thousands separators.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut apart = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// `1 event`, `2 events`.
pub(super) fn events(count: u64) -> String {
    format!("{} event{}", number(count), if count == 1 { "" } else { "s" })
}

/// A text in its own field, with a copy button that needs scripts.
pub(super) fn copied(label: &str, content: &str) -> Markup {
    html! {
        div.copied {
            label { span { (label) } input type="text" readonly value=(content); }
            button type="button" data-copy=(content) { "Copy" }
        }
    }
}

/// Encodes one segment of a URL path.
pub(super) fn segment(text: &str) -> String {
    let bytes = text.bytes().map(|byte| {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if is_plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    bytes.collect()
}

/// Encodes the members of a query string.
pub(super) fn form(members: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(members).finish()
}

/// The runbook's advice for a reason: one sentence, and the complete text in a collapsed block.
pub(super) fn advice(reason: &str) -> Markup {
    let topics = runbook::topics();
    let Some((topic, name)) = runbook::by_name(&topics, reason) else { return html! {} };
    html! {
        details.advice {
            summary { (topic.summary) ": what to do" }
            pre.runbook tabindex="0" { (topic.text(WIDTH)) }
            p.note { "As " code { "channeld explain '" (name) "'" } " says it." }
        }
    }
}
