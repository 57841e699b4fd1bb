//! Who is let in: one address that works once, then a cookie; the right Host, the right Origin, and a token in each form.
//!
//! # Invariants
//!
//! * **An address works once.** A second use is refused and logged: the first one may not have been the operator's.
//! * **Names are loopback's.** A page elsewhere can let its own name point here, but not under the name `localhost` or an
//!   address of loopback.
//! * **Only this origin.** The cookie is `SameSite=Strict` and out of a script's reach. A request that another origin makes is
//!   refused, whatever cookie it brings; a POST needs our own origin and the session's own token.
//! * **Secrets are compared by their hashes,** so that the time it takes says nothing of them.

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

/// Addresses that were offered and not used, and those that were used.
const MOST_OFFERS: usize = 16;

/// Browsers that are let in at the same time: a further one takes the place of the one that has been silent for longest.
const MOST_SESSIONS: usize = 16;

/// A browser that asked for nothing for so long is let in no more.
const SILENT: Duration = Duration::from_secs(12 * 60 * 60);

/// An address that a browser has offered to another works for so long.
const INVITED: Duration = Duration::from_secs(10 * 60);

/// Everything that a page may load is ours. No script, no style and no picture stands in a page itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const HEADERS: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // With `no-referrer` a browser would not say the origin of a form.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

type Hashed = [u8; 32];

/// Who may come in, and who is in.
pub(super) struct Access {
    cookie: String,
    pub(super) read_only: bool,
    doors: Mutex<Doors>,
}

#[derive(Default)]
struct Doors {
    /// Addresses that work, each until then.
    offered: VecDeque<(Hashed, Option<Instant>)>,
    /// Addresses that were used.
    used: VecDeque<Hashed>,
    sessions: VecDeque<Session>,
    /// How many there have been.
    count: u64,
}

struct Session {
    secret: Hashed,
    form_token: String,
    number: u64,
    asked: Instant,
    /// What the next page says once.
    notice: Option<Notice>,
}

/// What a change has come to, said once on the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) is_good: bool,
    pub(super) text: String,
}

/// The browser that asks.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// Which browser of this console it is, from 1.
    pub(super) number: u64,
    /// Stands in each form.
    pub(super) form_token: String,
    pub(super) notice: Option<Notice>,
    pub(super) read_only: bool,
}

/// What an address leads to.
#[derive(Debug, PartialEq, Eq)]
enum Entered {
    /// In, with this cookie's value.
    In(String),
    Used,
    Unknown,
}

impl Access {
    pub(super) fn new(port: u16, read_only: bool) -> Self {
        Self { cookie: format!("channeld-console-{port}"), read_only, doors: Mutex::default() }
    }

    /// A new address, which works once.
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

    /// The browser that a request's cookies are of. A page that is asked for takes the notice along.
    fn visitor(&self, headers: &HeaderMap, takes_notice: bool) -> Option<Visitor> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        let mut secrets = pairs.filter(|(name, _)| *name == self.cookie).map(|(_, secret)| hash(secret));
        let mut doors = lock(&self.doors);
        doors.sessions.retain(|session| session.asked.elapsed() < SILENT);
        let at = secrets.find_map(|secret| doors.sessions.iter().position(|session| session.secret == secret))?;
        // The one that asked last is the last to go.
        let mut session = doors.sessions.remove(at)?;
        session.asked = Instant::now();
        let notice = if takes_notice { session.notice.take() } else { None };
        let (number, form_token) = (session.number, session.form_token.clone());
        doors.sessions.push_back(session);
        Some(Visitor { number, form_token, notice, read_only: self.read_only })
    }

    /// Leaves a notice for a browser's next page.
    pub(super) fn notify(&self, visitor: &Visitor, is_good: bool, text: impl Into<String>) {
        let mut doors = lock(&self.doors);
        if let Some(session) = doors.sessions.iter_mut().find(|session| session.number == visitor.number) {
            session.notice = Some(Notice { is_good, text: text.into() });
        }
    }
}

/// 256 random bits, as text.
fn secret() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

fn hash(text: &str) -> Hashed {
    Sha256::digest(text.as_bytes()).into()
}

/// The oldest go.
fn bounded<T>(all: &mut VecDeque<T>, most: usize) {
    while all.len() > most {
        all.pop_front();
    }
}

/// Refuses requests for another name than loopback's.
pub(super) async fn check_host(request: Request, next: Next) -> Response {
    if host(request.headers()).is_some() {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, "the console is asked by the address that it has printed, and by no other name\n")
        .into_response()
}

/// The one host that is asked for, with its port, where that is loopback.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, None) = (hosts.next()?.to_str().ok()?, hosts.next()) else { return None };
    is_loopback(name(host)).then_some(host)
}

/// A host without its port and the brackets of an IPv6 address.
fn name(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Whether a request comes from a page of ours or from no page. Where something is to be changed, a page of ours must say so.
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
        // Typed in, or from a bookmark.
        Some("none") => !changes,
        // A link elsewhere may lead here; what is more than a link may not.
        Some(_) => !changes && headers.get("sec-fetch-dest").is_some_and(|dest| dest == "document"),
    }
}

/// Lets in who may come in, and gives the pages the visitor.
pub(super) async fn guard(Of(state): Of<Arc<State>>, request: Request, next: Next) -> Response {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_own(request.headers(), changes) {
        return locked(StatusCode::FORBIDDEN, "This request came from another site, or does not say from where.");
    }
    if request.uri().path() == "/enter" {
        return enter(&state.access, request.uri().query().unwrap_or_default());
    }
    // What a page asks for by itself takes no notice with it.
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

/// Lets a browser in. A page and no redirect: the cookie is not sent along where another site has led here.
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

/// A page for a browser that is not let in.
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

/// Adds what every answer says to a browser.
pub(super) async fn harden(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Asks whether another browser is to be let in.
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

/// Offers an address for another browser, under the name that this one uses.
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
