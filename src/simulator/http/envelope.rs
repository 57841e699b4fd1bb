//! The error envelope: `{type, code, message}`.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::task::JoinError;

use super::query::InvalidQuery;
use crate::event::content::json;

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) struct RequestError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    message: String,
}

#[derive(Serialize)]
struct Envelope<'a> {
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    message: &'a str,
}

impl RequestError {
    /// Returns a 404 with a code, such as `CHANNEL_NOT_FOUND`.
    pub(crate) fn not_found(code: &'static str, message: &str) -> Self {
        Self { status: StatusCode::NOT_FOUND, kind: "NOT_FOUND", code: Some(code), message: message.to_owned() }
    }

    /// Returns a 401 for a missing or wrong key.
    pub(crate) fn unauthorized() -> Self {
        let message = "missing or wrong API key".to_owned();
        Self { status: StatusCode::UNAUTHORIZED, kind: "UNAUTHORIZED", code: None, message }
    }

    /// Returns a 403 for a key that lacks a scope.
    pub(crate) fn denied() -> Self {
        let message = "the API key lacks a scope".to_owned();
        Self { status: StatusCode::FORBIDDEN, kind: "PERMISSION_DENIED", code: None, message }
    }

    /// Returns the envelope for a status.
    pub(crate) fn of(status: StatusCode) -> Self {
        let (kind, code) = match status.as_u16() {
            401 => ("ORGANIZATION_NOT_FOUND", None),
            403 => ("PERMISSION_DENIED", None),
            404 => ("NOT_FOUND", Some("CHANNEL_NOT_FOUND")),
            409 => ("CONFLICT", Some("RESOURCE_VERSION_CONFLICT")),
            429 => ("RATE_LIMITED", None),
            500.. => ("INTERNAL_ERROR", None),
            _ => ("VALIDATION_ERROR", None),
        };
        let message = status.canonical_reason().unwrap_or("refused").to_lowercase();
        Self { status, kind, code, message }
    }
}

impl From<InvalidQuery> for RequestError {
    fn from(InvalidQuery(message): InvalidQuery) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "VALIDATION_ERROR", code: None, message }
    }
}

/// A task that searches or makes records did not finish, because it panicked or the runtime is shutting down.
impl From<JoinError> for RequestError {
    fn from(_: JoinError) -> Self {
        Self::of(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let body = json(&Envelope { r#type: self.kind, code: self.code, message: &self.message });
        (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}
