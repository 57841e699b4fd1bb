//! The addresses that let a browser in, and the sessions of the browsers that are in.
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
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use net::tasks::lock;

pub(super) mod guard;
#[cfg(test)]
mod tests;

/// The largest number of unused addresses, and of remembered used addresses.
const MOST_OFFERS: usize = 16;

/// The largest number of sessions. A new session replaces the session that has been silent for the longest time.
const MOST_SESSIONS: usize = 16;

/// A session ends after this time without a request.
const SILENT: Duration = Duration::from_secs(12 * 60 * 60);

type Hashed = [u8; 32];

/// The addresses that let a browser in, and the sessions.
pub(super) struct Access {
    pub(super) cookie: String,
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
pub(super) enum Entered {
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

    pub(super) fn offer(&self, until: Option<Instant>) -> String {
        let token = secret();
        let mut doors = lock(&self.doors);
        doors.offered.push_back((hash(&token), until));
        bounded(&mut doors.offered, MOST_OFFERS);
        token
    }

    pub(super) fn enter(&self, token: &str) -> Entered {
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
    pub(super) fn visitor(&self, headers: &HeaderMap, takes_notice: bool) -> Option<Visitor> {
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
    pub(super) fn notify(&self, visitor: &Visitor, notice: Notice) {
        let mut doors = lock(&self.doors);
        if let Some(session) = doors.sessions.iter_mut().find(|session| session.number == visitor.number) {
            session.notice = Some(notice);
        }
    }
}

/// Returns 256 random bits as text.
fn secret() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

pub(super) fn hash(text: &str) -> Hashed {
    Sha256::digest(text.as_bytes()).into()
}

/// Removes the oldest entries.
fn bounded<T>(all: &mut VecDeque<T>, most: usize) {
    while all.len() > most {
        all.pop_front();
    }
}
