//! `channeld console`: events, their proofs and the daemon, in a browser.
//!
//! ```text
//! browser ──► access ──► events ──► tables     rows of a `sqlite` or `postgres` sink, read only
//!              │           └──────► service    without such a sink: the service's own search
//!              ├───────► one                   one event: its signed and unsigned content, verified again
//!              ├───────► overview ──► link     the daemon's status, from its control socket
//!              └───────► held ──────► link     quarantine and dead letters; each change has a page that describes it first
//! ```
//!
//! # Invariants
//!
//! * **For users of the control socket.** The printed address works once and sets a cookie. Without that cookie, only the
//!   style sheet, the script and the icon are served. See `access`.
//! * **Loopback only, and no request to other machines.** Script, style sheet and pictures are compiled in, and the content
//!   policy allows nothing else.
//! * **Texts of events are only text.** They are escaped and isolated from the direction of the surrounding text, and their
//!   control characters are made visible. See `text`.
//! * **A GET changes nothing.** Each change is a request to the daemon, which logs who made it.
//! * **Bounded.** A page has at most `MOST_ROWS` rows, and searches no longer than its budget.
//!
//! # Cancellation
//!
//! Ends at a signal, whatever its clients do. The daemon completes the requests that it has received.

use std::convert::Infallible;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tokio::net::TcpListener;
use tracing::warn;

use crate::cli::connect::{client, configured};
use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::who;
use crate::cli::output::say;
use crate::config::{Config, SignerNames};
use crate::daemon::signals::Signals;
use api::Client;
use operator::ConfiguredChannel;
use operator::server::{Bounds, serve};
use telemetry;

mod access;
mod assets;
mod events;
mod held;
mod json;
mod link;
mod one;
mod overview;
mod page;
mod picture;
mod service;
mod tables;
mod text;

use access::Access;
use link::Link;
use tables::Source;

/// Limits for the console's clients, which are one person's browsers. A client can take a long time to read an export.
const BOUNDS: Bounds = Bounds { clients: 64, body: 64 * 1024, each_step: Duration::from_secs(60) };

/// Show events, their proofs and the daemon in a browser.
///
/// Prints one address, which works once: the browser that opens it is let in by a cookie from then on, and can let in others.
/// Runs beside the daemon as the user who may use its control socket, listens on loopback only, and asks nothing of other
/// machines but the service and the database that are configured. Runs until it is interrupted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen: a loopback address. Port 0 lets the system choose.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,
    /// The sink of type `sqlite` or `postgres` whose table is read [default: the first that a channel uses]
    #[arg(long, value_name = "SINK")]
    from: Option<String>,
    /// Show everything and change nothing: no retry, no redelivery, no pause.
    #[arg(long)]
    read_only: bool,
    /// Open the address in this desktop's browser.
    #[arg(long)]
    open: bool,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "must be an IP address and a port".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err("must be a loopback address, such as 127.0.0.1:8480: from another machine, come through `ssh -L`".to_owned())
}

/// Serves until a signal arrives.
pub(crate) async fn run(args: &Args, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let config = Config::load(file)?;
    telemetry::init_plain(&config.log);
    let mut signals = Signals::listen().map_err(Failure::output)?;
    let console = Console::open(&config, args.listen, args.from.as_deref(), args.read_only).await?;
    let address = console.offer_address();
    say(out, &address)?;
    anstream::eprintln!("The address works once. Ctrl-C ends the console.");
    if args.open {
        open_browser(&address);
    }
    tokio::select! { never = console.serve() => match never {}, _ = signals.next() => Ok(Exit::Done) }
}

/// A console that listens.
pub(crate) struct Console {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
}

/// The data from which the pages are made.
struct State {
    access: Access,
    link: Link,
    channels: Vec<ConfiguredChannel>,
    client: Client,
    source: Source,
    signer_names: SignerNames,
}

impl Console {
    /// Opens the listener. Sends no request to the daemon, the database or the service yet.
    pub(crate) async fn open(
        config: &Config,
        listen: SocketAddr,
        from: Option<&str>,
        read_only: bool,
    ) -> Result<Self, Failure> {
        let source = Source::of(config, from)?;
        let (client, channels) = (client(config)?, configured(&config.channels));
        let doing = format!("the console cannot listen on {listen}");
        let listener = TcpListener::bind(listen).await.map_err(Failure::io(&doing))?;
        let address = listener.local_addr().map_err(Failure::io(&doing))?;
        let link = Link::new(config.state.path.clone(), who());
        let access = Access::new(address.port(), read_only);
        let signer_names = config.signer_names.clone();
        let state = State { access, link, channels, client, source, signer_names };
        Ok(Self { listener, address, state: Arc::new(state) })
    }

    /// Returns an address that works once.
    pub(crate) fn offer_address(&self) -> String {
        self.state.access.offer_address(self.address)
    }

    /// Prints an address among other lines. If `open` is set, also opens it in a browser.
    pub(crate) fn say_address(&self, open: bool) {
        let address = self.offer_address();
        println!("In a browser, once: {address}\n");
        if open {
            open_browser(&address);
        }
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self) -> Infallible {
        let Self { listener, state, .. } = self;
        let accept = async || listener.accept().await.map(|(client, _)| client);
        serve(accept, router(state), BOUNDS).await
    }
}

fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/", get(events::list))
        .route("/new", get(events::new_ones))
        .route("/export", get(events::export))
        .route("/poll", axum::routing::post(events::poll))
        .route("/event/{channel}/{offset}", get(one::delivered))
        .route("/event/{channel}/{offset}/raw", get(one::delivered_raw))
        .route("/at-service/{channel}/{event}", get(one::at_service))
        .route("/daemon", get(overview::show))
        .route("/daemon/now", get(overview::now))
        .route("/held", get(held::list))
        .route("/held/quarantine/{channel}/{offset}", get(one::quarantined))
        .route("/held/dead/{channel}/{sink}/{offset}", get(one::dead_letter))
        .route("/do/{what}", get(held::confirm).post(held::carry_out))
        .route("/invite", get(access::invite_page).post(access::invite))
        .fallback(page::nowhere)
        .layer(from_fn_with_state(state.clone(), access::guard))
        .merge(assets::routes())
        .layer(axum::middleware::map_response(access::harden))
        .layer(axum::middleware::from_fn(access::check_host))
        .with_state(state)
}

/// Asks the desktop to open the address. The address is printed in any case.
fn open_browser(address: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut browser = Command::new(program);
    browser.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = browser.spawn() {
        warn!(%error, "no browser could be opened: open the address yourself");
    }
}

/// Whether pages can be requested with this host name.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
