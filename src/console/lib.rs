//! The console: events, their proofs and the daemon, in a browser.
//!
//! ```text
//! browser ──► access ──► events ──► tables     rows of a `sqlite` or `postgres` sink, read only
//!              │           └──────► service    without a table: the service's own search
//!              ├───────► event_page            one event: its signed and unsigned content, verified again
//!              ├───────► overview              the daemon's status, from its control socket
//!              ├───────► undelivered           quarantine and dead letters
//!              ├───────► consumers             the consumers of the feed, and their cursors
//!              ├───────► palette               pages, channels, sinks and consumers to jump to
//!              └───────► change                the changes that an operator can request
//!                           └──► daemon_connection    all requests to the daemon
//! ```
//!
//! # Invariants
//!
//! * **Only for browsers that are signed in.** `channeld console` prints an address that works once and sets a cookie.
//!   Without this cookie, only the style sheet, the script and the icon are served. See `access`.
//! * **Loopback only, and no request to other machines.** Script, style sheet and pictures are compiled in, and the content
//!   policy allows nothing else.
//! * **Texts of events are only text.** They are escaped, they cannot change the writing direction of the text around
//!   them, and their control characters are made visible. See `text`.
//! * **A GET request changes nothing in the daemon.** For each change, the console sends a request to the daemon, which
//!   logs the name of the user.
//! * **Bounded.** A page has at most `MOST_ROWS` rows, and its search ends when its time budget is used up.
//!
//! # Cancellation
//!
//! The console ends at a signal and does not wait for its clients. The daemon still completes the requests that it has
//! received.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tokio::net::TcpListener;

use api::{AccountName, Client};
use operator::server::serve;
use operator::{ConfiguredChannel, SignerNames};

mod access;
mod change;
mod consumers;
mod daemon_connection;
mod event_page;
mod events;
mod overview;
mod page;
mod palette;
mod state;
#[cfg_attr(
    not(all(feature = "postgres", feature = "sqlite")),
    allow(dead_code, unreachable_code, reason = "some items are used by only one of the databases")
)]
mod tables;
mod text;
mod undelivered;
mod watchers;

use access::{Access, guard};
use daemon_connection::DaemonConnection;
use state::State;
use tables::OpenSource;

pub use tables::EventSource;

/// The settings of a console.
pub struct ConsoleSettings {
    /// The loopback address to listen on. `None` for an address in 127/8 that only this console uses: browsers send a cookie to
    /// every port of an address.
    pub listen: Option<SocketAddr>,
    /// Whether the console refuses to change anything.
    pub read_only: bool,
    /// The directory with the daemon's control socket.
    pub directory: PathBuf,
    /// The user who runs the console. The daemon logs this name with each change.
    pub who: String,
    /// The configured channels.
    pub channels: Vec<ConfiguredChannel>,
    /// The displayed names of signers.
    pub signer_names: SignerNames,
    /// The address of the block explorer of each network, by its chain selector.
    pub explorers: BTreeMap<u64, String>,
    /// The clients of the channels' accounts.
    pub clients: BTreeMap<AccountName, Client>,
    /// The source of the events.
    pub source: EventSource,
}

/// Why a console cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The settings of the table cannot be used.
    #[error("{0}")]
    Table(String),
    /// The console cannot listen.
    #[error("the console cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Parts of the pages, for the tests of other crates and for the fuzzer.
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::missing_panics_doc)]
pub mod testing {
    use channel::ChannelStatus;
    use jiff::Timestamp;

    use super::EventSource;
    use super::events::query::Query;
    use super::tables::OpenSource;

    /// Returns the HTML for a channel on the page about the daemon.
    pub fn channel_html(channel: &ChannelStatus) -> String {
        super::overview::channel(channel, None, None, true).into_string()
    }

    /// Lists the events of a table that an address asks for. `query` is the part of the address after `?`. Panics if the page
    /// cannot be read, or if the address of the list is not read as the same query.
    pub async fn list_events(source: EventSource, query: &str) {
        let OpenSource::Table(table) = OpenSource::of(source).unwrap() else { panic!("the source is not a table") };
        let query = Query::parse(query, Timestamp::UNIX_EPOCH);
        let address = query.without_position();
        assert_eq!(Query::parse(&address, Timestamp::UNIX_EPOCH).without_position(), address);
        if query.problem(table.search).is_none() {
            table.page(&query.filter, query.below.as_ref(), query.rows, false).await.unwrap();
        }
    }
}

/// A console that listens for browsers.
pub struct Console {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
}

impl Console {
    /// Opens the listener. No request is sent to the daemon, the database or the service yet.
    ///
    /// # Errors
    /// [`ConsoleError`] if the console cannot listen on the address, or if the settings of the table cannot be used.
    pub async fn open(settings: ConsoleSettings) -> Result<Self, ConsoleError> {
        let ConsoleSettings { listen, read_only, directory, who, channels, signer_names, explorers, clients, source } =
            settings;
        let source = OpenSource::of(source).map_err(ConsoleError::Table)?;
        let (listener, address) = bind(listen).await?;
        let (daemon, access) = (DaemonConnection::new(directory, who), Access::new(address.port(), read_only));
        let state = State { access, daemon, channels, clients, source, signer_names, explorers };
        Ok(Self { listener, address, state: Arc::new(state) })
    }

    /// Returns an address that signs one browser in.
    pub fn offer_address(&self) -> String {
        self.state.access.offer_address(self.address)
    }

    /// Serves browsers until the returned future is dropped.
    pub async fn serve(self) -> Infallible {
        let Self { listener, state, .. } = self;
        let accept = async || listener.accept().await.map(|(client, _)| client);
        serve(accept, router(state), guard::BOUNDS).await
    }
}

async fn bind(listen: Option<SocketAddr>) -> Result<(TcpListener, SocketAddr), ConsoleError> {
    let own = async |listen: SocketAddr| {
        let failed = |source| ConsoleError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok((listener, address))
    };
    match listen {
        Some(listen) => own(listen).await,
        None => match own(own_address().into()).await {
            // Some systems have only one loopback address.
            Err(_) => own((Ipv4Addr::LOCALHOST, 0).into()).await,
            bound => bound,
        },
    }
}

/// A random address in 127/8, but not in 127.0/16, which other programs use.
fn own_address() -> (Ipv4Addr, u16) {
    let [second, third, fourth] = rand::random::<[u8; 3]>().map(|byte| byte % 254 + 1);
    (Ipv4Addr::new(127, second, third, fourth), 0)
}

fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/", get(events::list))
        .route("/new", get(events::new_ones))
        .route("/export", get(events::export))
        .route("/poll", axum::routing::post(events::poll))
        .route("/event/{channel}/{offset}", get(event_page::delivered))
        .route("/event/{channel}/{offset}/raw", get(event_page::delivered_raw))
        .route("/at-service/{channel}/{event}", get(event_page::at_service))
        .route("/daemon", get(overview::show))
        .route("/daemon/now", get(overview::now))
        .route("/held", get(undelivered::list))
        .route("/held/quarantine/{channel}/{offset}", get(event_page::quarantined))
        .route("/held/dead/{channel}/{sink}/{offset}", get(event_page::dead_letter))
        .route("/consumers", get(consumers::show))
        .route("/consumers/now", get(consumers::now))
        .route("/do/set-cursor", get(consumers::set_cursor::confirm).post(consumers::set_cursor::carry_out))
        .route("/do/{what}", get(change::confirm).post(change::carry_out))
        .route("/invite", get(guard::invite_page).post(guard::invite))
        .route("/concepts", get(page::concepts))
        .route("/destinations", get(palette::destinations))
        .fallback(page::nowhere)
        .layer(from_fn_with_state(state.clone(), guard::admit))
        .merge(assets())
        .layer(axum::middleware::map_response(guard::harden))
        .layer(axum::middleware::from_fn(guard::check_host))
        .with_state(state)
}

/// The files that pages load. They are compiled in, and are served without a cookie because they contain no data.
fn assets() -> Router<Arc<State>> {
    let serve =
        |kind: &'static str, text: &'static str| get(move || async move { ([(header::CONTENT_TYPE, kind)], text) });
    Router::new()
        .route(
            "/console.css",
            serve(
                "text/css; charset=utf-8",
                concat!(include_str!("assets/console.css"), include_str!("assets/palette.css")),
            ),
        )
        .route(
            "/console.js",
            serve(
                "text/javascript; charset=utf-8",
                concat!(include_str!("assets/console.js"), include_str!("assets/palette.js")),
            ),
        )
        .route("/icon.svg", serve("image/svg+xml", include_str!("assets/icon.svg")))
}
