//! `channeld demo`: runs the simulated service and the daemon in one process.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, ConfigText};
use crate::daemon::assembly::{Clients, FeedService, Sinks};
use crate::daemon::background::names;
use crate::daemon::signals::Signals;
use crate::daemon::supervisor::{EndReason, Supervisor};
use crate::daemon::{StartError, assembly, open_ledgers};
use channel::{Handle, LaneSettings, Processors, SharedParts};
use ledger::{Ledger, Quarantined};
use net::retry::RetryPolicy;
use net::tasks::lock;
use operator::liveness::Liveness;
use operator::{Discovery, Socket, Sources};
use simulator::{Announcement, EventSpec, Kind, Options, Simulator, Tampering};
use sink::is_built_in;
use telemetry::metrics::Metrics;
use telemetry::trace::Traces;

use crate::cli::context::{CommandError, Exit};
use crate::cli::look::console;
use crate::cli::terminal::shell_word;

mod screen;

use screen::{ScreenSink, ScreenState};

/// Run the simulated service and the daemon in one process.
///
/// Needs no configuration, no network and no API key. The state is temporary. The proof of one event arrives late, and
/// this event is delivered when its proof arrives. Another event was changed after it was signed, and is never
/// delivered.
///
/// Also serves a feed on a Unix socket that only this user can use, and prints commands that read its events.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stop after N delivered events instead of at Ctrl-C.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,
    /// Also show the demonstration in a browser: print an address of `channeld console` that works once.
    #[arg(long)]
    console: bool,
    /// Open that address in the browser of this desktop.
    #[arg(long, requires = "console")]
    open: bool,
}

/// The log level. Rejections are not logged, because the demonstration prints them among the events.
const LOG: &str = "error,channeld::channel::verify::rejection=off";

const CHANNEL: &str = "demo";

/// The name of the sink that prints events.
const SCREEN: &str = "screen";

/// The topic of `channeld explain` that explains pending events.
const EXPLAINS_PENDING: &str = "concepts";

/// The name of the sink for the table that the feed and the console read.
const TABLE: &str = "table";

/// The longest path of the feed's socket, in bytes. If the directory for temporary files is too long, the demonstration has no feed.
const MAX_SOCKET_PATH: usize = 100;

const BETWEEN_EVENTS: Duration = Duration::from_millis(400);

/// The late proof arrives after this many events: about three seconds.
const PROOF_AFTER: u64 = 8;

const SINK_RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(1) };

pub(crate) async fn run(args: Args) -> Result<Exit, CommandError> {
    demonstrate(args).await.map_err(|error| CommandError::by(&*error))
}

async fn demonstrate(args: Args) -> Result<Exit, StartError> {
    let mut signals = Signals::listen()?;
    let simulator = Simulator::start(Options::default()).await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("channeld.toml");
    let socket = feed_socket(directory.path());
    let text = configuration(simulator.announcement(), directory.path(), args.console, socket.as_deref());
    let config = Config::of(ConfigText::written(&file, text.clone()), [])?.config;
    telemetry::init_plain(&config.log);
    // Other commands need it to verify the events of the feed.
    fs::write(&file, &text)?;

    say(&format!("A simulated service listens on {}; channeld reads it.\n\n", simulator.announcement().base_url))?;
    let ledgers = Arc::new(open_ledgers(config.state.clone()).await?);
    let screen = Arc::new(ScreenSink::new(args.events));
    let mut sinks: Sinks = [(SCREEN.to_owned(), LaneSettings::new(SCREEN, screen.clone(), SINK_RETRY))].into();
    let clients = assembly::clients(&config)?;
    let processors = Arc::<Processors>::default();
    let parts = SharedParts::new(ledgers, processors.clone(), Metrics::default(), Traces::default());
    if let Some(table) = config.sinks.get(TABLE) {
        let sink = table.settings.build(TABLE, &parts.open_files, &parts.metrics)?;
        sinks.insert(TABLE.to_owned(), LaneSettings::new(TABLE, sink, SINK_RETRY));
    }
    let channels = assembly::channels(&config, &clients, &sinks, &parts);
    let feed = FeedService::start(&config, &sinks, &parts.metrics).await?;
    if let Some(socket) = &socket {
        say(&about_feed(socket, &file))?;
    }

    let handle = parts.handles.of(config.channels[0].channel.id);
    let began = Instant::now();
    let stop = CancellationToken::new();
    let last_answers = feed.as_ref().map(FeedService::last_answers);
    let mut serving_feed = pin!(assembly::serve_feed(feed, stop.clone()));
    let mut supervisor = Supervisor::new(&stop);
    supervisor.follow(&channels, config.shutdown_grace);
    let outcome = tokio::select! {
        outcome = supervisor.ended() => outcome,
        () = publish(&simulator) => supervisor.ended().await,
        () = show_set_aside(&handle, &screen) => supervisor.ended().await,
        never = &mut serving_feed => match never {},
        never = in_a_browser(&config, &clients, &parts, processors, (&*screen, args.open)), if args.console => match never? {},
        _ = signals.next() => {
            stop.cancel();
            supervisor.ended().await
        }
    };
    stop.cancel();
    if let Some(last_answers) = last_answers {
        tokio::select! {
            never = serving_feed => match never {},
            () = last_answers => {}
        }
    }
    let ledger = handle.board().ledger.clone();
    let quarantined = |ledger: &Mutex<Ledger>| lock(ledger).quarantined().len();
    let rejected = ledger.as_deref().map_or(0, quarantined);
    say(&summary(&lock(&screen.shown), rejected, began.elapsed()))?;
    Ok(if matches!(outcome, EndReason::Drained | EndReason::SinkClosed) { Exit::Done } else { Exit::Failed })
}

/// Serves the console, and the control socket that the console uses. Returns only after an error.
async fn in_a_browser(
    config: &Config,
    clients: &Clients,
    parts: &SharedParts,
    processors: Arc<Processors>,
    (screen, open): (&ScreenSink, bool),
) -> Result<Infallible, StartError> {
    // The configuration of the demonstration never changes, so nothing receives reload requests.
    let (asks, _) = mpsc::channel(1);
    let discovery = watch::Sender::new(Discovery::default()).subscribe();
    let operations = watch::Sender::new(Arc::new(assembly::operations(config, clients, parts, asks, discovery, None)));
    let clients = watch::Sender::new(names::counted(clients, &parts.handles));
    let liveness = Liveness::new(processors, parts.ledgers.writes.clone());
    let sources =
        Sources { liveness: liveness.clone(), operations: operations.subscribe(), metrics: parts.metrics.clone() };
    let socket = Socket::listen(&config.state.path)?;
    // The file exists until the demonstration ends.
    let page = OnceLock::new();
    let announce = |address: &str| {
        let text = format!("Open this address in a browser (it works once):\n  {address}\n");
        say(&format!("{text}\n")).map_err(CommandError::output)?;
        screen.keep_visible(&text);
        if open {
            page.get_or_init(|| console::open_browser(address));
        }
        Ok(())
    };
    tokio::select! {
        served = console::serve(config, None, Some(TABLE), false, announce) => Ok(served?),
        never = socket.serve(sources) => match never {},
        ((), (), ()) = async {
            let watchers = names::watchers(clients.subscribe(), operations.subscribe());
            tokio::join!(operator::note_minutes(operations.subscribe()), liveness.beat(), watchers)
        } => std::future::pending().await,
    }
}

/// Publishes a backlog that contains a late proof and a forgery, then one event after another. Never returns.
async fn publish(simulator: &Simulator) {
    simulator.publish(0, 5);
    let late = simulator.publish_one(0, EventSpec::Late(Kind::WatcherEvent));
    simulator.publish(0, 3);
    simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
    simulator.publish(0, 2);
    simulator.publish_one(0, EventSpec::Honest(Kind::WalletStatus));
    for published in 1_u64.. {
        tokio::time::sleep(BETWEEN_EVENTS).await;
        simulator.publish(0, 1);
        if published == PROOF_AFTER {
            simulator.prove(0, late);
        }
    }
}

/// Shows each event that is pending or rejected, once. Never returns.
async fn show_set_aside(handle: &Handle, screen: &ScreenSink) {
    let mut shown = BTreeSet::new();
    loop {
        tokio::time::sleep(BETWEEN_EVENTS / 4).await;
        let Some(ledger) = handle.board().ledger.clone() else { continue };
        let (pending, rejected) = {
            let ledger = lock(&ledger);
            let pending: Vec<_> = ledger.late().iter().map(|(key, event)| (key.offset, event.first_seen)).collect();
            (pending, ledger.quarantined().values().cloned().collect::<Vec<_>>())
        };
        for (offset, at) in pending {
            if shown.insert((offset, "pending")) {
                screen.show_set_aside("pending", offset, at, EXPLAINS_PENDING);
            }
        }
        for Quarantined { offset, at, reason, .. } in rejected {
            if shown.insert((offset, "rejected")) {
                screen.show_set_aside("rejected", offset, at, &reason);
            }
        }
    }
}

/// The socket of the feed. `None` without a feed.
fn feed_socket(directory: &Path) -> Option<PathBuf> {
    let socket = directory.join("feed.sock");
    (is_built_in("sqlite") && socket.as_os_str().len() <= MAX_SOCKET_PATH).then_some(socket)
}

/// The address of the feed, and commands that read it, for another terminal. The configuration in `file` has the signers.
fn about_feed(socket: &Path, file: &Path) -> String {
    let (address, file) = (format!("unix:{}", socket.display()), shell_word(&file.display().to_string()));
    let (feed, socket) = (shell_word(&address), shell_word(&socket.display().to_string()));
    format!(
        "A feed serves the verified events at\n  {address}\n\
         In another terminal, read them:\n  \
         curl -N --unix-socket {socket} http://feed/v1/channels/{CHANNEL}/stream\n\
         or, to verify them again:\n  \
         channeld tail --feed {feed} --config {file} --after 0\n\n"
    )
}

fn configuration(service: &Announcement, directory: &Path, with_console: bool, feed: Option<&Path>) -> String {
    let signers: Vec<_> = service.valid_signers.iter().map(ToString::to_string).collect();
    let names: Vec<_> =
        (1..).zip(&signers).map(|(number, signer)| format!("{signer:?} = \"Oracle {number}\"")).collect();
    let path = directory.join("events.db");
    let table = format!("\n[sinks.{TABLE}]\ntype = \"sqlite\"\npath = {:?}\nsearch = \"words\"\n", path.display());
    let with_table = with_console || feed.is_some();
    let (sinks, table) = if with_table { (vec![SCREEN, TABLE], table) } else { (vec![SCREEN], String::new()) };
    let feed = feed.map(|socket| format!("unix:{}", socket.display()));
    let feed = feed.map(|listen| format!("\n[feed]\nlisten = {listen:?}\nsink = {TABLE:?}\n")).unwrap_or_default();
    format!(
        "[api]\nbase_url = {:?}\napi_key = {:?}\nidle_wait = \"500ms\"\n\n\
         [verification]\norg_id = {:?}\nvalid_signers = {signers:?}\nmin_required_signatures = {}\n\n\
         [verification.signer_names]\n{}\n\n\
         [state]\npath = {:?}\n\n\
         [admin]\nlisten = \"\"\n\n[log]\nlevel = {LOG:?}\n\n\
         [channels.{CHANNEL}]\nid = \"{}\"\nsinks = {sinks:?}\n\n\
         [sinks.{SCREEN}]\ntype = \"stdout\"\n{table}{feed}",
        service.base_url,
        service.api_key,
        service.org_id,
        service.min_required_signatures,
        names.join("\n"),
        directory.join("state").display(),
        service.channels[0],
    )
}

/// Writes to standard output. A closed pipe is not an error: the reader of the output needs no more.
fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// The summary at the end of the demonstration, in lines of less than 80 columns.
fn summary(shown: &ScreenState, rejected: usize, took: Duration) -> String {
    let ScreenState { verified, unsigned, late, .. } = shown;
    format!(
        "
{} events delivered in {:.1} s:
  {verified} proved by the oracle network's signatures, {late} of them late;
  {unsigned} unsigned: notices, which the network never signs, marked as such.
{rejected} rejected: kept as evidence, not delivered.

To read a channel of your own: `channeld init`.
",
        verified + unsigned,
        took.as_secs_f64(),
    )
}
