//! Access control: an address that works once, then a cookie; the right Host, the right Origin, and a token in each form.
//!
//! # Invariants
//!
//! * **An address works once.** A second use is refused and logged, because the first user may not have been the operator.
//! * **Only loopback names.** A foreign page can make its own host name resolve to this machine, but it cannot use the name
//!   `localhost` or a loopback address.
//! * **Only this origin.** The cookie is `SameSite=Strict` and not readable by scripts. A request from another origin is
//!   refused, even with a valid cookie. A POST needs our own origin and the session's own token.
//! * **Secrets are compared by their hashes,** so the duration of the comparison reveals nothing about them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State as Of};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::html;
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::page::{self, Shell};
use super::{BOUNDS, State, is_loopback};
use net::tasks::lock;
#[cfg(test)]
mod tests;

/// The largest number of unused addresses, and of remembered used addresses.
const MOST_OFFERS: usize = 16;

/// The largest number of sessions. A new session replaces the session that has been silent for the longest time.
const MOST_SESSIONS: usize = 16;

/// A session ends after this time without a request.
const SILENT: Duration = Duration::from_secs(12 * 60 * 60);

/// How long an address works that a browser offers to another browser.
const INVITED: Duration = Duration::from_secs(10 * 60);

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

type Hashed = [u8; 32];

/// The addresses that let a browser in, and the sessions.
pub(super) struct Access {
    cookie: String,
    pub(super) read_only: bool,
    doors: Mutex<Doors>,
}

#[derive(Default)]
struct Doors {
    /// Unused addresses, each with the time at which it expires.
    offered: VecDeque<(Hashed, Option<Instant>)>,
    /// Used addresses.
    used: VecDeque<Hashed>,
    sessions: VecDeque<Session>,
    /// The number of sessions since the start.
    count: u64,
}

struct Session {
    secret: Hashed,
    form_token: String,
    number: u64,
    asked: Instant,
    /// A notice that the next page shows once.
    notice: Option<Notice>,
}

/// The result of a change, shown once on the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) is_good: bool,
    pub(super) text: String,
}

/// The browser that sent the request.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// The number of the browser in this console, from 1.
    pub(super) number: u64,
    /// A token that every form contains.
    pub(super) form_token: String,
    pub(super) notice: Option<Notice>,
    pub(super) read_only: bool,
}

/// The result of opening an address.
#[derive(Debug, PartialEq, Eq)]
enum Entered {
    /// The browser is let in. Contains the value of its cookie.
    In(String),
    Used,
    Unknown,
}

impl Access {
    pub(super) fn new(port: u16, read_only: bool) -> Self {
        Self { cookie: format!("channeld-console-{port}"), read_only, doors: Mutex::default() }
    }

    /// Returns a new address, which works once.
    pub(super) fn offer_address(&self, address: SocketAddr) -> String {
        format!("http://{address}/enter?token={}", self.offer(None))
    }

    fn offer(&self, until: Option<Instant>) -> String {
        let token = secret();
        let mut doors = lock(&self.doors);
        doors.offered.push_back((hash(&token), until));
        bounded(&mut doors.offered, MOST_OFFERS);
        token
    }

    fn enter(&self, token: &str) -> Entered {
        let (token, mut doors) = (hash(token), lock(&self.doors));
        let now = Instant::now();
        doors.offered.retain(|(_, until)| until.is_none_or(|until| now < until));
        let Some(at) = doors.offered.iter().position(|(offered, _)| *offered == token) else {
            return if doors.used.contains(&token) { Entered::Used } else { Entered::Unknown };
        };
        doors.offered.remove(at);
        doors.used.push_back(token);
        bounded(&mut doors.used, MOST_OFFERS);
        let cookie = secret();
        doors.count += 1;
        let number = doors.count;
        let session = Session { secret: hash(&cookie), form_token: secret(), number, asked: now, notice: None };
        doors.sessions.push_back(session);
        bounded(&mut doors.sessions, MOST_SESSIONS);
        Entered::In(cookie)
    }

    /// Finds the session of a request's cookies. A request for a page also takes the notice.
    fn visitor(&self, headers: &HeaderMap, takes_notice: bool) -> Option<Visitor> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        let mut secrets = pairs.filter(|(name, _)| *name == self.cookie).map(|(_, secret)| hash(secret));
        let mut doors = lock(&self.doors);
        doors.sessions.retain(|session| session.asked.elapsed() < SILENT);
        let at = secrets.find_map(|secret| doors.sessions.iter().position(|session| session.secret == secret))?;
        // The session with the latest request is evicted last.
        let mut session = doors.sessions.remove(at)?;
        session.asked = Instant::now();
        let notice = if takes_notice { session.notice.take() } else { None };
        let (number, form_token) = (session.number, session.form_token.clone());
        doors.sessions.push_back(session);
        Some(Visitor { number, form_token, notice, read_only: self.read_only })
    }

    /// Stores a notice for the browser's next page.
    pub(super) fn notify(&self, visitor: &Visitor, is_good: bool, text: impl Into<String>) {
        let mut doors = lock(&self.doors);
        if let Some(session) = doors.sessions.iter_mut().find(|session| session.number == visitor.number) {
            session.notice = Some(Notice { is_good, text: text.into() });
        }
    }
}

/// Returns 256 random bits as text.
fn secret() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

fn hash(text: &str) -> Hashed {
    Sha256::digest(text.as_bytes()).into()
}

/// Removes the oldest entries.
fn bounded<T>(all: &mut VecDeque<T>, most: usize) {
    while all.len() > most {
        all.pop_front();
    }
}

/// Refuses requests for a host name that is not loopback.
pub(super) async fn check_host(request: Request, next: Next) -> Response {
    if host(request.headers()).is_some() {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, "the console is asked by the address that it has printed, and by no other name\n")
        .into_response()
}

/// The requested host with its port, if the request has exactly one Host header and it is loopback.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, None) = (hosts.next()?.to_str().ok()?, hosts.next()) else { return None };
    is_loopback(name(host)).then_some(host)
}

/// Removes the port, and the brackets of an IPv6 address.
fn name(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Whether a request comes from a page of ours or from no page. A request that changes something must come from a page of
/// ours.
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

/// Admits requests with a valid session, and passes the visitor on to the pages.
pub(super) async fn guard(Of(state): Of<Arc<State>>, request: Request, next: Next) -> Response {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_own(request.headers(), changes) {
        return locked(StatusCode::FORBIDDEN, "This request came from another site, or does not say from where.");
    }
    if request.uri().path() == "/enter" {
        return enter(&state.access, request.uri().query().unwrap_or_default());
    }
    // Background requests of a page do not take the notice.
    let takes_notice = request.headers().get("sec-fetch-mode").is_none_or(|mode| mode == "navigate") && !changes;
    let Some(visitor) = state.access.visitor(request.headers(), takes_notice) else {
        return locked(StatusCode::UNAUTHORIZED, "This browser has not been let in, or was silent for too long.");
    };
    if !changes {
        let mut request = request;
        request.extensions_mut().insert(visitor);
        return next.run(request).await;
    }
    if state.access.read_only {
        return locked(StatusCode::FORBIDDEN, "This console was started with --read-only: it changes nothing.");
    }
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BOUNDS.body).await else {
        return locked(StatusCode::PAYLOAD_TOO_LARGE, "The form is too long.");
    };
    let given = url::form_urlencoded::parse(&body).find(|(name, _)| name == "form");
    if given.is_none_or(|(_, token)| hash(&token) != hash(&visitor.form_token)) {
        return locked(StatusCode::FORBIDDEN, "This form is not one of this browser's: open the page again.");
    }
    let mut request = Request::from_parts(head, Body::from(body));
    request.extensions_mut().insert(visitor);
    next.run(request).await
}

/// Lets a browser in. Returns a page instead of a redirect: after a link on another site, the browser would not send the
/// cookie with the redirected request.
fn enter(access: &Access, query: &str) -> Response {
    let token = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "token");
    match access.enter(&token.map(|(_, token)| token).unwrap_or_default()) {
        Entered::In(cookie) => {
            info!("a browser has been let in");
            let cookie = format!("{}={cookie}; Path=/; HttpOnly; SameSite=Strict", access.cookie);
            let page = page::bare(
                "Welcome",
                &html! {
                    meta http-equiv="refresh" content="0; url=/";
                },
                &html! {
                    p { "This browser is let in now. " a href="/" { "Go on to the events" } }
                },
            );
            ([(header::SET_COOKIE, cookie)], page).into_response()
        }
        Entered::Used => {
            warn!("an address was opened that had been used before: if the first time was not you, end the console");
            locked(
                StatusCode::FORBIDDEN,
                "This address was used before, and works once. If that was not you, end the console at once.",
            )
        }
        Entered::Unknown => locked(StatusCode::FORBIDDEN, "This address does not work, or works no more."),
    }
}

/// A page for a browser without a session.
fn locked(status: StatusCode, why: &str) -> Response {
    let page = page::bare(
        "Not let in",
        &html! {},
        &html! {
            p { (why) }
            p { "The address that " code { "channeld console" } " prints lets one browser in. A browser that is in can let in \
                another, by " em { "Another browser" } " at the foot of its pages." }
        },
    );
    (status, page).into_response()
}

/// Adds the security headers to every response.
pub(super) async fn harden(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Asks whether to let another browser in.
pub(super) async fn invite_page(Of(state): Of<Arc<State>>, Extension(visitor): Extension<Visitor>) -> Response {
    let shell = Shell::of(&state, &visitor, "Another browser", "").await;
    shell.page(&html! {
        h1 { "Let another browser in" }
        p.lead { "You get an address that works once, for ten minutes. The browser that opens it shows and may do what this one may." }
        @if visitor.read_only {
            p { "This console was started with " code { "--read-only" } ": it gives no further addresses. Start another one." }
        } @else {
            form method="post" action="/invite" {
                (shell.form_token())
                button.primary type="submit" { "Make an address" }
            }
        }
    })
}

/// Offers an address for another browser, with the host name that this browser uses.
pub(super) async fn invite(
    Of(state): Of<Arc<State>>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
) -> Response {
    let token = state.access.offer(Some(Instant::now() + INVITED));
    info!(browser = visitor.number, "an address for another browser was asked for");
    let address = format!("http://{}/enter?token={token}", host(&headers).unwrap_or_default());
    let shell = Shell::of(&state, &visitor, "Another browser", "").await;
    shell.page(&html! {
        h1 { "An address for another browser" }
        p.lead { "It works once, for ten minutes." }
        (page::copied("The address", &address))
    })
}
