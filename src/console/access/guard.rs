//! Checks the Host, the Origin and the session of each request, and the token of each form.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State as Of};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::html;
use tracing::{info, warn};

use super::{Access, EntryResult, hash, peer};
use crate::page::{self, PageRequest};
use crate::state::State;
use operator::server::{Bounds, Peer};

/// Limits for the console's clients, which are one person's browsers. A client can take a long time to read an export.
pub(crate) const BOUNDS: Bounds =
    Bounds { clients: 64, body: 64 * 1024, each_step: Duration::from_secs(60), ends_with_client: false };

/// How long an invitation address for another browser stays valid.
const INVITED: Duration = Duration::from_secs(10 * 60);

pub(crate) const READ_ONLY: &str = "This console was started with --read-only and cannot change anything.";

/// Pages may load only the console's own files. Scripts, styles and `data:` images inside a page are not allowed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const HEADERS: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // With `no-referrer`, a browser would not send the origin of a form.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Refuses requests for a host name that is not loopback.
pub(crate) async fn check_host(request: Request, next: Next) -> Response {
    if host(request.headers()).is_some() {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, "the console accepts requests only at the address that it printed\n")
        .into_response()
}

/// The requested host with its port, if the request has exactly one Host header and this host is loopback.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, None) = (hosts.next()?.to_str().ok()?, hosts.next()) else { return None };
    let name = name(host);
    let is_address = || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    (name.eq_ignore_ascii_case("localhost") || is_address()).then_some(host)
}

/// Removes the port, and the brackets of an IPv6 address.
fn name(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Whether a request comes from one of the console's pages or from no page. A request that changes something must come from
/// one of the console's pages.
fn is_own(headers: &HeaderMap, changes: bool) -> bool {
    let own = host(headers).map(|host| format!("http://{host}"));
    let is_own_origin = |value: &HeaderValue| value.to_str().ok() == own.as_deref();
    let mut origins = headers.get_all(header::ORIGIN).iter().peekable();
    if changes && origins.peek().is_none() || !origins.all(is_own_origin) {
        return false;
    }
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    match site {
        None | Some("same-origin") => true,
        // The address was typed in or opened from a bookmark.
        Some("none") => !changes,
        // A link on another site may lead here. Other requests from another site are refused.
        Some(_) => !changes && headers.get("sec-fetch-dest").is_some_and(|dest| dest == "document"),
    }
}

/// Admits requests with a valid session, and passes the [`Visitor`](super::Visitor) to the page.
pub(crate) async fn admit(Of(state): Of<Arc<State>>, mut request: Request, next: Next) -> Response {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_own(request.headers(), changes) {
        return locked(StatusCode::FORBIDDEN, "This request came from another site, or does not name its origin.");
    }
    let user = match request.extensions().get::<Peer>() {
        Some(Peer(Some(client))) => peer::user(*client, state.access.port).await,
        _ => None,
    };
    if request.uri().path() == "/enter" {
        return enter(&state.access, request.uri().query().unwrap_or_default(), user);
    }
    // Only page loads consume the pending notice. Background requests leave the notice for the next page.
    let takes_notice = request.headers().get("sec-fetch-mode").is_none_or(|mode| mode == "navigate") && !changes;
    let Some(visitor) = state.access.visitor(request.headers(), user, takes_notice) else {
        return locked(StatusCode::UNAUTHORIZED, "This browser is not signed in, or its session has expired.");
    };
    if changes {
        if state.access.read_only {
            return locked(StatusCode::FORBIDDEN, READ_ONLY);
        }
        let (head, body) = request.into_parts();
        let Ok(body) = to_bytes(body, BOUNDS.body).await else {
            return locked(StatusCode::PAYLOAD_TOO_LARGE, "The form is too long.");
        };
        if page::member(&body, "form").is_none_or(|token| hash(&token) != hash(&visitor.form_token)) {
            return locked(StatusCode::FORBIDDEN, "This form belongs to another session: open the page again.");
        }
        request = Request::from_parts(head, Body::from(body));
    }
    request.extensions_mut().insert(visitor);
    next.run(request).await
}

/// Signs a browser in. Returns a page instead of a redirect: if the browser followed a link on another site, it would
/// not send the cookie with the redirected request.
fn enter(access: &Access, query: &str, user: Option<u32>) -> Response {
    match access.enter(&page::member(query.as_bytes(), "token").unwrap_or_default(), user) {
        EntryResult::In(cookie) => {
            info!("a browser has signed in");
            let cookie = format!("{}={cookie}; Path=/; HttpOnly; SameSite=Strict", access.cookie);
            let refresh = html! { meta http-equiv="refresh" content="0; url=/"; };
            let content = html! { p { "This browser is signed in. " a href="/" { "Show the events" } } };
            ([(header::SET_COOKIE, cookie)], page::bare("Welcome", &refresh, &content)).into_response()
        }
        EntryResult::Used => {
            warn!(
                "a one-time address was opened a second time: if you did not open it the first time, stop the console"
            );
            locked(
                StatusCode::FORBIDDEN,
                "This one-time address was already used. If you did not use it, stop the console now.",
            )
        }
        EntryResult::Unknown => locked(StatusCode::FORBIDDEN, "This address is invalid or has expired."),
    }
}

/// A page for a browser without a session.
fn locked(status: StatusCode, why: &str) -> Response {
    let content = html! {
        p { (why) }
        p { "The address that " code { "channeld console" } " prints signs one browser in. A browser that is signed in can sign in another one, with " em { "Open in another browser" } " at the bottom of each page." }
    };
    (status, page::bare("Access denied", &html! {}, &content)).into_response()
}

/// Adds the security headers to every response.
pub(crate) async fn harden(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Shows the page that creates an address for another browser.
pub(crate) async fn invite_page(request: PageRequest) -> Response {
    let content = html! {
        h1 { "Sign in another browser" }
        p.lead { "The button creates an address that works once and expires after ten minutes. The browser that opens the address gets the same rights as this one." }
        @if request.visitor.read_only {
            p { "This console was started with " code { "--read-only" } ", so it cannot create addresses. Start another console instead." }
        } @else {
            form method="post" action="/invite" {
                (request.form_token())
                button.primary type="submit" { "Create an address" }
            }
        }
    };
    request.page("Sign in another browser", "", &content).await
}

/// Creates an address for another browser, with the host name that this browser uses.
pub(crate) async fn invite(request: PageRequest, headers: HeaderMap) -> Response {
    let token = request.state.access.offer(Some(Instant::now() + INVITED));
    info!(browser = request.visitor.number, "an address for another browser was requested");
    let address = format!("http://{}/enter?token={token}", host(&headers).unwrap_or_default());
    let content = html! {
        h1 { "An address for another browser" }
        p.lead { "The address works once and expires after ten minutes." }
        (page::copied("Address", &address))
    };
    request.page("Sign in another browser", "", &content).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tests::headers;

    #[test]
    fn only_loopback_hosts_are_accepted() {
        for (name, is_known) in [
            ("127.0.0.1:8480", true),
            ("127.8.9.1", true),
            ("localhost:1", true),
            ("LocalHost", true),
            ("[::1]:8480", true),
            ("192.168.0.7:8480", false),
            ("console.example:8480", false),
            ("127.0.0.1.example", false),
            ("localhost.example:80", false),
            ("", false),
        ] {
            assert_eq!(host(&headers(&[("host", name)])).is_some(), is_known, "{name}");
        }
        assert!(host(&headers(&[])).is_none());
        assert!(
            host(&[("host", "localhost"), ("host", "localhost")].iter().fold(
                HeaderMap::new(),
                |mut all, (name, value)| {
                    all.append(*name, value.parse().unwrap());
                    all
                }
            ))
            .is_none(),
            "two Host headers"
        );
    }

    #[test]
    fn foreign_origins_are_refused() {
        let known = ("host", "127.0.0.1:80");
        let own = ("origin", "http://127.0.0.1:80");
        for (more, reads, changes) in [
            (&[][..], true, false),
            (&[own], true, true),
            (&[own, ("sec-fetch-site", "same-origin")], true, true),
            (&[("origin", "http://127.0.0.1:81")], false, false),
            (&[("origin", "https://127.0.0.1:80")], false, false),
            (&[("origin", "http://evil.example")], false, false),
            (&[("origin", "null")], false, false),
            (&[own, ("sec-fetch-site", "cross-site")], false, false),
            (&[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document")], true, false),
            (&[("sec-fetch-site", "same-site"), ("sec-fetch-dest", "script")], false, false),
            (&[("sec-fetch-site", "none")], true, false),
        ] {
            let headers = headers(&[&[known], more].concat());
            assert_eq!((is_own(&headers, false), is_own(&headers, true)), (reads, changes), "{more:?}");
        }
    }
}
