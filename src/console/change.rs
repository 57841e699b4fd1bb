//! The changes that an operator can request. A page first describes the change and asks for confirmation.
//!
//! # Invariants
//!
//! * **Described before it is made.** A GET describes a change and changes nothing. The form on the page makes the change.
//! * **Made by the daemon.** The daemon makes the change under the channel's lease, and logs who requested the change.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;

use super::access::guard::READ_ONLY;
use super::page::PageRequest;

mod operator_request;

use operator_request::OperatorRequest;

pub(super) async fn confirm(request: PageRequest, Path(what): Path<String>) -> Response {
    let Some(change) = OperatorRequest::parse(&what, request.query.as_bytes()) else {
        return request.problem(StatusCode::NOT_FOUND, "This request is unknown or incomplete.").await;
    };
    if request.visitor.read_only {
        return request.problem(StatusCode::FORBIDDEN, READ_ONLY).await;
    }
    let content = html! {
        div.confirm {
            h1 { (change.title()) "?" }
            @for said in change.effects() { p { (said) } }
            form method="post" action={ "/do/" (what) } {
                (request.form_token())
                @for (name, value) in change.members() { input type="hidden" name=(name) value=(value); }
                @if change.takes_time() {
                    label.other { span { "Resume" }
                        select name="for" {
                            option value="" { "manually" }
                            @for (value, name) in [("15m", "after 15 minutes"), ("1h", "after 1 hour"), ("4h", "after 4 hours"), ("24h", "after 1 day")] {
                                option value=(value) { (name) }
                            }
                        }
                    }
                }
                div.actions {
                    button.primary.danger[change.is_final()] type="submit" { (change.title()) }
                    a.button href=(change.back()) { "Cancel" }
                }
            }
            p.note { "The daemon logs the change with the name of the user who runs this console." }
        }
    };
    request.page(change.title(), "", &content).await
}

pub(super) async fn carry_out(request: PageRequest, Path(what): Path<String>, body: String) -> Response {
    let Some(change) = OperatorRequest::parse(&what, body.as_bytes()) else {
        return request.problem(StatusCode::BAD_REQUEST, "The form is incomplete.").await;
    };
    let PageRequest { state, visitor, .. } = &request;
    let result = change.carry_out(state, visitor.number).await;
    tracing::info!(browser = visitor.number, what, done = result.is_ok(), "a change was requested");
    state.access.notify(visitor, result);
    Redirect::to(&change.back()).into_response()
}
