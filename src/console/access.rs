//! Signs browsers in: the addresses that work once, and the sessions of the browsers.
//!
//! # Invariants
//!
//! * **An address works once.** A second use is refused and logged, because the first user may not have been the operator.
//! * **Only loopback names.** The owner of a foreign page can make the page's host name resolve to this machine (DNS
//!   rebinding). The browser then sends that host name in its request. Requests are accepted only for `localhost` or a
//!   loopback address.
//! * **Only this origin.** The cookie is `SameSite=Strict` and not readable by scripts. A request from another origin is
//!   refused, even with a valid cookie. A POST request needs the console's origin and the form token of its session.
//! * **Only the user who signed in.** A browser sends its cookies to every port of a host, so a server of another user can
//!   receive the cookie. A session therefore belongs to the user whose program signed in: see `peer`. By default the console
//!   also has a loopback address of its own, to which browsers send only its own cookie.
//! * **Secrets are compared by their hashes,** so the duration of a comparison reveals nothing about a secret.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tracing::warn;

use net::tasks::lock;

pub(super) mod guard;
mod peer;
#[cfg(test)]
mod tests;

/// The largest number of unused addresses, and of remembered used addresses.
const MOST_OFFERS: usize = 16;

/// The largest number of sessions. A new session replaces the session that has been silent for the longest time.
const MOST_SESSIONS: usize = 16;

/// A session ends after this time without a request.
const SILENT: Duration = Duration::from_secs(12 * 60 * 60);

type Hashed = [u8; 32];

pub(super) struct Access {
    pub(super) cookie: String,
    port: u16,
    pub(super) read_only: bool,
    state: Mutex<AccessState>,
}

#[derive(Default)]
struct AccessState {
    /// Unused addresses, each with the time at which it expires.
    offered: VecDeque<(Hashed, Option<Instant>)>,
    /// Used addresses.
    used: VecDeque<Hashed>,
    sessions: VecDeque<Session>,
    /// How many sessions were created since the console started.
    count: u64,
}

struct Session {
    secret: Hashed,
    /// The user whose program signed in. `None` if the system does not tell.
    user: Option<u32>,
    form_token: String,
    number: u64,
    asked: Instant,
    notice: Option<Notice>,
}

/// The result of a change in words, shown once on the next page.
pub(super) type Notice = Result<String, String>;

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
pub(super) enum EntryResult {
    /// The browser is signed in. Contains the value of its cookie.
    In(String),
    Used,
    Unknown,
}

impl Access {
    pub(super) fn new(port: u16, read_only: bool) -> Self {
        Self { cookie: format!("channeld-console-{port}"), port, read_only, state: Mutex::default() }
    }

    /// Returns a new address, which works once.
    pub(super) fn offer_address(&self, address: SocketAddr) -> String {
        format!("http://{address}/enter?token={}", self.offer(None))
    }

    pub(super) fn offer(&self, until: Option<Instant>) -> String {
        let token = short_secret();
        let mut state = lock(&self.state);
        push(&mut state.offered, (hash(&token), until), MOST_OFFERS);
        token
    }

    pub(super) fn enter(&self, token: &str, user: Option<u32>) -> EntryResult {
        let (token, mut state) = (hash(token), lock(&self.state));
        let now = Instant::now();
        state.offered.retain(|(_, until)| until.is_none_or(|until| now < until));
        let Some(at) = state.offered.iter().position(|(offered, _)| *offered == token) else {
            return if state.used.contains(&token) { EntryResult::Used } else { EntryResult::Unknown };
        };
        state.offered.remove(at);
        push(&mut state.used, token, MOST_OFFERS);
        let cookie = secret();
        state.count += 1;
        let number = state.count;
        let session = Session { secret: hash(&cookie), user, form_token: secret(), number, asked: now, notice: None };
        push(&mut state.sessions, session, MOST_SESSIONS);
        EntryResult::In(cookie)
    }

    /// Returns the browser that the request's cookie belongs to. `user` is the user who sent the request. If `takes_notice` is
    /// set, moves the notice from the session to the result.
    pub(super) fn visitor(&self, headers: &HeaderMap, user: Option<u32>, takes_notice: bool) -> Option<Visitor> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        let mut secrets = pairs.filter(|(name, _)| *name == self.cookie).map(|(_, secret)| hash(secret));
        let mut state = lock(&self.state);
        state.sessions.retain(|session| session.asked.elapsed() < SILENT);
        let at = secrets.find_map(|secret| state.sessions.iter().position(|session| session.secret == secret))?;
        if state.sessions[at].user != user {
            warn!("another user of this machine has the cookie of a session: the request was refused");
            return None;
        }
        // The session with the latest request is evicted last.
        let mut session = state.sessions.remove(at)?;
        session.asked = Instant::now();
        let notice = if takes_notice { session.notice.take() } else { None };
        let (number, form_token) = (session.number, session.form_token.clone());
        state.sessions.push_back(session);
        Some(Visitor { number, form_token, notice, read_only: self.read_only })
    }

    /// Stores a notice for the browser's next page.
    pub(super) fn notify(&self, visitor: &Visitor, notice: Notice) {
        let mut state = lock(&self.state);
        if let Some(session) = state.sessions.iter_mut().find(|session| session.number == visitor.number) {
            session.notice = Some(notice);
        }
    }
}

/// Returns 256 random bits as text.
fn secret() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

/// Returns 120 random bits as text. A person may have to type it, and it works only once.
fn short_secret() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 15]>())
}

pub(super) fn hash(text: &str) -> Hashed {
    Sha256::digest(text.as_bytes()).into()
}

/// Appends an entry, and removes the oldest entries until at most `most` are left.
fn push<T>(all: &mut VecDeque<T>, entry: T, most: usize) {
    all.push_back(entry);
    while all.len() > most {
        all.pop_front();
    }
}
