//! The changes that an operator can request. A page first describes the change and asks for confirmation.
//!
//! # Invariants
//!
//! * **Described before it is made.** A GET describes a change and changes nothing. The form on the page makes the change.
//! * **Made by the daemon.** The daemon makes the change under the channel's lease, and logs who requested the change.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};

use super::access::Notice;
use super::access::guard::READ_ONLY;
use super::page::PageRequest;
use super::text::text;
use record::printable;

mod operator_request;

use operator_request::OperatorRequest;

/// The description of a change, with the form that makes it.
pub(super) struct Confirmation {
    /// The name of the change, for the heading.
    pub(super) title: String,
    /// The text of the button.
    pub(super) button: String,
    /// The effect of the change. Each element is a paragraph.
    pub(super) effects: Vec<Markup>,
    /// The address to which the form is sent.
    pub(super) action: String,
    /// The hidden fields of the form.
    pub(super) members: Vec<(&'static str, String)>,
    /// The visible fields of the form.
    pub(super) fields: Markup,
    /// Whether the change removes data permanently.
    pub(super) is_final: bool,
    /// The page that offers the change.
    pub(super) back: String,
}

impl Confirmation {
    pub(super) async fn page(&self, request: &PageRequest) -> Response {
        let Self { title, button, effects, action, members, fields, is_final, back } = self;
        let content = html! {
            div.confirm {
                h1 { (text(title)) "?" }
                @for said in effects { p { (said) } }
                form method="post" action=(action) {
                    (request.form_token())
                    @for (name, value) in members { input type="hidden" name=(name) value=(value); }
                    (fields)
                    div.actions {
                        button.primary.danger[*is_final] type="submit" { (text(button)) }
                        a.button href=(back) { "Cancel" }
                    }
                }
                p.note { "The daemon logs the change with the name of the user who runs this console." }
            }
        };
        request.page(&printable(title), "", &content).await
    }
}

/// Logs a change that was requested, and returns to the page that offers it. That page shows the result.
pub(super) fn finished(request: &PageRequest, what: &str, result: Notice, back: &str) -> Response {
    let PageRequest { state, visitor, .. } = request;
    tracing::info!(browser = visitor.number, what, done = result.is_ok(), "a change was requested");
    state.access.notify(visitor, result);
    Redirect::to(back).into_response()
}

pub(super) async fn confirm(request: PageRequest, Path(what): Path<String>) -> Response {
    let Some(mut change) = OperatorRequest::parse(&what, request.query.as_bytes()) else {
        return request.problem(StatusCode::NOT_FOUND, "This request is unknown or incomplete.").await;
    };
    if request.visitor.read_only {
        return request.problem(StatusCode::FORBIDDEN, READ_ONLY).await;
    }
    let count = change.limit(&request.state.daemon).await;
    let title = change.title(count);
    let confirmation = Confirmation {
        button: change.verb().map_or_else(|| title.clone(), str::to_owned),
        title,
        effects: change.effects(),
        action: format!("/do/{what}"),
        members: change.members(),
        fields: if change.takes_time() {
            end_of_pause()
        } else {
            html! {}
        },
        is_final: change.is_final(),
        back: change.back(),
    };
    confirmation.page(&request).await
}

fn end_of_pause() -> Markup {
    html! {
        label.other { span { "Resume" }
            select name="for" {
                option value="" { "manually" }
                @for (value, name) in [("15m", "after 15 minutes"), ("1h", "after 1 hour"), ("4h", "after 4 hours"), ("24h", "after 1 day")] {
                    option value=(value) { (name) }
                }
            }
        }
    }
}

pub(super) async fn carry_out(request: PageRequest, Path(what): Path<String>, body: String) -> Response {
    let Some(change) = OperatorRequest::parse(&what, body.as_bytes()) else {
        return request.problem(StatusCode::BAD_REQUEST, "The form is incomplete.").await;
    };
    let result = change.carry_out(&request.state, request.visitor.number).await;
    finished(&request, &what, result, &change.back())
}
