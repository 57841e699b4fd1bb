//! The parts that pages share: the head, the navigation and the foot, badges, single values, and tables.

use std::sync::Arc;

use axum::extract::rejection::ExtensionRejection;
use axum::extract::{Extension, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use strum::{EnumString, IntoStaticStr};

use super::access::Visitor;
use super::state::State;
use super::text::{sentence, whole};
use operator::runbook;

mod markdown;
mod values;

use markdown::markdown;
pub(super) use values::{
    ago, copied, copy_button, events, network_name, search_field, signer, time, with_commands, with_copy_button,
};

/// The tabs of the navigation: the address and the name.
pub(super) const TABS: [(&str, &str); 4] = [
    ("/", "Events"),
    ("/daemon", "Daemon"),
    ("/consumers", "Consumers"),
    // The longest name is last, because it has a line of its own on a phone.
    ("/held", "Quarantine and dead letters"),
];

/// A request from a browser that is signed in.
pub(super) struct PageRequest {
    pub(super) state: Arc<State>,
    pub(super) visitor: Visitor,
    /// The part of the address after `?`.
    pub(super) query: String,
}

/// The verdict on an event's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Badge {
    Verified,
    Unsigned,
    Pending,
    Rejected,
}

impl Badge {
    pub(super) fn of(word: &str) -> Self {
        word.parse().unwrap_or(Self::Rejected)
    }

    /// Each badge has its own shape, so that the verdict can be recognized without colors: shield, dashed ring, clock,
    /// octagon.
    pub(super) fn show(self) -> Markup {
        let word: &str = self.into();
        let shape = match self {
            Self::Verified => html! {
                path.fill d="M8 1l6 2v4.500c0 3.600-2.500 6.200-6 7.500-3.500-1.300-6-3.900-6-7.500V3z" {}
                path.cut d="M5 8l2.200 2.200L11 6" {}
            },
            Self::Unsigned => html! { circle.dash cx="8" cy="8" r="6" {} path.line d="M5.500 8h5" {} },
            Self::Pending => html! { circle.line cx="8" cy="8" r="6" {} path.line d="M8 4.500V8l2.500 1.500" {} },
            Self::Rejected => html! {
                path.fill d="M5.200 1h5.600L15 5.200v5.600L10.800 15H5.200L1 10.800V5.200z" {}
                path.cut d="M5.500 5.500l5 5M10.500 5.500l-5 5" {}
            },
        };
        html! {
            span class={ "badge " (word) } {
                svg viewBox="0 0 16 16" aria-hidden="true" { (shape) }
                span { (word) }
            }
        }
    }
}

impl FromRequestParts<Arc<State>> for PageRequest {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<State>) -> Result<Self, Self::Rejection> {
        let Extension(visitor) = Extension::from_request_parts(parts, state).await?;
        Ok(Self { state: state.clone(), visitor, query: parts.uri.query().unwrap_or_default().to_owned() })
    }
}

impl PageRequest {
    /// A hidden field with the token of the session. It proves that the form was made for this browser.
    pub(super) fn form_token(&self) -> Markup {
        html! { input type="hidden" name="form" value=(self.visitor.form_token); }
    }

    /// Returns a page. `here` is the address of its tab in the navigation, or empty if it has no tab.
    pub(super) async fn page(&self, title: &str, here: &str, content: &Markup) -> Response {
        let report = self.state.daemon.recent_report().await;
        let undelivered = report.as_ref().map_or(0, |report| report.quarantine.events + report.dead_letters.events);
        let state = match report.filter(|report| report.daemon.is_some()).map(|report| report.ready) {
            Some(true) => html! { a.state.good href="/daemon" { span.dot {} "ready" } },
            Some(false) => html! { a.state.bad href="/daemon" { span.dot {} "not ready" } },
            None => html! { a.state.away href="/daemon" { span.dot {} "daemon unreachable" } },
        };
        document(
            title,
            &html! {},
            &html! {
                header.top {
                    a.skip href="#main" { "Skip to content" }
                    a.mark href="/" { svg viewBox="0 0 32 32" aria-hidden="true" {
                        rect width="32" height="32" rx="8" {}
                        path.face d="M16 6l8 3v6.500c0 5-3.400 8.600-8 10.500-4.600-1.900-8-5.500-8-10.500V9z" {}
                        path.tick d="M12 15.800l3 3 5.200-5.800" {}
                    } span { "channeld" } }
                    nav aria-label="Pages" {
                        @for (href, name) in TABS {
                            a href=(href) aria-current=[(here == href).then_some("page")] {
                                (name)
                                // The page itself has a number on each of its tabs.
                                @if href == "/held" && here != href && undelivered > 0 { " " span.count { (undelivered) } }
                            }
                        }
                    }
                    // The script shows this button, and opens the command palette.
                    button #palette type="button" hidden { "Go to… " kbd { "Ctrl K" } }
                    (state)
                }
                main id="main" {
                    @match &self.visitor.notice {
                        Some(Ok(text)) => p.notice.good role="status" { (whole(text)) },
                        Some(Err(text)) => p.notice.bad role="status" { (whole(text)) },
                        None => {}
                    }
                    (content)
                }
                footer {
                    span { "channeld console" @if self.visitor.read_only { ", read-only" } }
                    a href="/concepts" { "Concepts" }
                    a href="/invite" { "Open in another browser" }
                    // The script shows this button, and lists the shortcuts of the page.
                    button #keys type="button" hidden { "Keyboard shortcuts " kbd { "?" } }
                }
            },
        )
    }

    /// A page that explains why the requested page cannot be shown.
    pub(super) async fn problem(&self, status: StatusCode, why: &str) -> Response {
        let content = html! {
            h1 { "Page unavailable" }
            p.lead { (whole(why)) }
            p { a href="/" { "Go to the events" } }
        };
        (status, self.page("Page unavailable", "", &content).await).into_response()
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

pub(super) async fn nowhere(request: PageRequest) -> Response {
    request.problem(StatusCode::NOT_FOUND, "Page not found.").await
}

/// Explains the words that the pages use.
pub(super) async fn concepts(request: PageRequest) -> Response {
    let topics = runbook::topics();
    let text = runbook::by_name(&topics, "concepts").map(|(topic, _)| topic.markdown());
    let content = html! {
        h1 { "Concepts" }
        (markdown(&text.unwrap_or_default(), true))
        p.note { code { "channeld explain concepts" } " prints the same text." }
    };
    request.page("Concepts", "", &content).await
}

/// A table. Each column has a name and a class, which can be empty. Screen readers read the label.
pub(super) fn table(
    label: &str,
    class: &str,
    columns: &[(&str, &str)],
    rows: impl IntoIterator<Item = Vec<Markup>>,
) -> Markup {
    let not_empty = |class: &'_ str| (!class.is_empty()).then(|| class.to_owned());
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table class=[not_empty(class)] {
                thead {
                    tr { @for (name, class) in columns { th scope="col" class=[not_empty(class)] { span.hidden[*class == "change"] { (name) } } } }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for ((name, class), cell) in columns.iter().zip(row) {
                                td class=[not_empty(class)] data-label=(name) { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a member of a query string or of a form.
pub(super) fn member(members: &[u8], name: &str) -> Option<String> {
    let found = url::form_urlencoded::parse(members).find(|(found, _)| found == name);
    found.map(|(_, value)| value.into_owned())
}

/// Encodes one segment of a URL path.
pub(super) fn segment(text: &str) -> String {
    // In a path, `+` does not mean a space.
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// Encodes the members of a query string.
pub(super) fn form(members: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(members).finish()
}

/// The advice about a problem: the remedy for this message in at most three lines, and the complete text of the runbook in
/// a collapsed block. `reason` is the name of the problem, and `message` its text.
pub(super) fn advice(reason: &str, message: &str) -> Markup {
    let topics = runbook::topics();
    let remedy = runbook::by_name(&topics, reason).map(|(topic, _)| topic.remedy(message));
    remedy.map_or_else(|| html! {}, |remedy| advice_with(reason, &remedy))
}

/// Like [`advice`], for a known remedy.
pub(super) fn advice_with(reason: &str, remedy: &str) -> Markup {
    let topics = runbook::topics();
    let Some((topic, name)) = runbook::by_name(&topics, reason) else { return html! {} };
    html! {
        div.advice {
            p { strong { "What to do: " } (with_commands(&sentence(remedy))) }
            details {
                summary { "More" span.hidden { " about " (name) } }
                (markdown(&topic.markdown(), false))
                p.note { code { "channeld explain '" (name) "'" } " prints the same text." }
            }
        }
    }
}
