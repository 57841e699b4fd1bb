//! Responses that are not a success, as `application/problem+json` (RFC 9457).

use std::fmt::Display;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use strum::IntoStaticStr;
use tracing::warn;

/// The media type of a problem.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// How many seconds a client should wait before it retries after a temporary problem.
const RETRY_AFTER: &str = "1";

/// The kind of a problem. The type of a problem is `urn:channeld:feed:` and the name of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantArray))]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum ProblemKind {
    InvalidRequest,
    NoToken,
    NotAllowed,
    NotFound,
    MethodNotAllowed,
    Leased,
    NotLeased,
    Gone,
    TooLarge,
    TooManyRequests,
    Unavailable,
}

impl ProblemKind {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::NotAllowed => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Leased | Self::NotLeased => StatusCode::CONFLICT,
            Self::Gone => StatusCode::GONE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "The request is not valid",
            Self::NoToken => "A valid token is required",
            Self::NotAllowed => "The token does not allow this",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "The method is not allowed",
            Self::Leased => "Another lease is valid",
            Self::NotLeased => "The lease is unknown or has expired",
            Self::Gone => "The events at this position were deleted",
            Self::TooLarge => "The request is too large",
            Self::TooManyRequests => "Too many requests of this consumer",
            Self::Unavailable => "Temporarily unavailable",
        }
    }
}

/// A problem.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    kind: ProblemKind,
    /// The mistake in this request, and the remedy.
    detail: String,
    /// The oldest position, for [`ProblemKind::Gone`].
    oldest: Option<i64>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), oldest: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::InvalidRequest, detail)
    }

    pub(crate) fn gone(oldest: i64) -> Self {
        let before = oldest.saturating_sub(1);
        let detail = format!(
            "the next event has position {oldest}: the events before it were deleted. Read them elsewhere, or continue after {before}"
        );
        Self { oldest: Some(oldest), ..Self::new(ProblemKind::Gone, detail) }
    }

    /// Like [`gone`](Self::gone), for a consumer, whose client cannot choose a position.
    pub(crate) fn gone_after_cursor(oldest: i64, consumer: &str, channel: &str) -> Self {
        let before = oldest.saturating_sub(1);
        let detail = format!(
            "the events after the cursor were deleted; the oldest event has position {oldest}. An operator must set the cursor: channeld consumers set {consumer} {channel} {before} --yes"
        );
        Self { detail, ..Self::gone(oldest) }
    }

    /// The problem of a table that cannot be used. Only the log contains the reason.
    pub(crate) fn of_table(error: impl Display) -> Self {
        warn!(%error, "the feed cannot use its table: the request is refused");
        Self::new(ProblemKind::Unavailable, "the table of the feed cannot be used at the moment: try again")
    }

    pub(crate) fn busy(detail: &str) -> Self {
        Self::new(ProblemKind::Unavailable, detail)
    }

    /// The oldest position, if the events at the requested position were deleted.
    pub(crate) fn oldest(&self) -> Option<i64> {
        self.oldest
    }

    pub(crate) fn json(&self) -> Value {
        let kind: &str = self.kind.into();
        let mut problem = json!({
            "type": format!("urn:channeld:feed:{kind}"),
            "title": self.kind.title(),
            "status": self.kind.status().as_u16(),
            "detail": self.detail,
        });
        if let Some(oldest) = self.oldest {
            problem["oldest"] = oldest.into();
        }
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = self.json().to_string();
        let mut response = (self.kind.status(), [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        let more = match self.kind {
            ProblemKind::NoToken => Some((header::WWW_AUTHENTICATE, "Bearer")),
            ProblemKind::TooManyRequests | ProblemKind::Unavailable | ProblemKind::Leased => {
                Some((header::RETRY_AFTER, RETRY_AFTER))
            }
            _ => None,
        };
        if let Some((name, value)) = more {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
