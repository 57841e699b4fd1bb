//! `channeld check --connect` and the daemon agree: the daemon delivers in an environment if and only if the check accepts it.
//! The environments here need no database server.
//!
//! An environment works if the daemon delivers. It does not if the daemon ends, or reports a problem of a sink or of the
//! control socket.

use std::any::Any;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{StatusCode, header};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use simulator::{Options, Simulator};
use tokio_util::task::AbortOnDropHandle;

use super::check::connect;
use crate::support::{Admin, Authority, Daemon, LONGEST_WAIT, LOOK_AGAIN, Mount, Receiver, Setup, fill, run};

mod local_sinks;
mod machine;
mod streams;
#[cfg(feature = "kafka")]
mod topics;

use local_sinks::{database, databases, files};
use machine::machine;

/// How many environments are tried at the same time.
const AT_ONCE: usize = 6;

/// The longest time for all environments of the local table.
const ALL: Duration = Duration::from_secs(60);

/// Anything that must exist while an environment is tried.
type Kept = Box<dyn Any>;

/// Prepares an environment. Returns the setup, and a value to keep while the environment is tried.
type Prepare<'a> = Box<dyn Fn(Setup) -> (Setup, Kept) + 'a>;

struct Environment<'a> {
    name: &'static str,
    /// `None` if the environment works. Otherwise a part of the problem that the check reports.
    problem: Option<&'static str>,
    prepare: Prepare<'a>,
}

fn works<'a>(name: &'static str, prepare: impl Fn(Setup) -> Setup + 'a) -> Environment<'a> {
    Environment { name, problem: None, prepare: Box::new(move |setup| (prepare(setup), Box::new(()))) }
}

fn fails<'a>(name: &'static str, problem: &'static str, prepare: impl Fn(Setup) -> Setup + 'a) -> Environment<'a> {
    Environment { problem: Some(problem), ..works(name, prepare) }
}

/// An environment that fails while the second value that `prepare` returns is kept.
fn fails_with<'a, K: 'static>(
    name: &'static str,
    problem: &'static str,
    prepare: impl Fn(Setup) -> (Setup, K) + 'a,
) -> Environment<'a> {
    let prepare = move |setup| {
        let (setup, kept) = prepare(setup);
        (setup, Box::new(kept) as Kept)
    };
    Environment { name, problem: Some(problem), prepare: Box::new(prepare) }
}

/// Whether the daemon delivers in this environment.
async fn delivers(name: &str, daemon: &mut Daemon) -> bool {
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        let has_ended = daemon.has_ended();
        let log = daemon.log();
        let problems = [log.at("WARN"), log.at("ERROR")].concat();
        let is_problem = |line: &Value| {
            line["sink"].is_string()
                || line["message"].as_str().is_some_and(|said| said.starts_with("no control socket"))
        };
        if has_ended || problems.iter().any(is_problem) {
            return false;
        }
        if !log.lines("batch recorded").is_empty() {
            return true;
        }
        assert!(Instant::now() < deadline, "{name}: the daemon neither delivers nor reports a problem: {}", log.tail());
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether the check succeeds, and its output.
async fn checked(setup: &Setup) -> (bool, String) {
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    (told.code == Some(0), format!("{}{}", String::from_utf8_lossy(&told.out), told.errors))
}

/// Returns a description of each disagreement, and the number of environments.
async fn disagreements(simulator: &Simulator, environments: Vec<Environment<'_>>) -> (Vec<String>, usize) {
    let count = environments.len();
    let tried = stream::iter(environments).map(async |Environment { name, problem, prepare }| {
        let (setup, _kept) = prepare(Setup::reading(simulator));
        let (is_accepted, said) = checked(&setup).await;
        let mut daemon = setup.start();
        let is_delivered = delivers(name, &mut daemon).await;
        // This kills a daemon that still runs.
        drop(daemon);
        let is_named = problem.is_none_or(|problem| said.contains(problem));
        let is_expected = is_accepted == problem.is_none() && is_delivered == is_accepted && is_named;
        (!is_expected).then(|| {
            format!("{name}: expected {problem:?}; accepted: {is_accepted}, delivered: {is_delivered}; the check said:\n{said}")
        })
    });
    let tried: Vec<_> = tried.buffer_unordered(AT_ONCE).collect().await;
    (tried.into_iter().flatten().collect(), count)
}

async fn service() -> Simulator {
    Simulator::start(Options { events: 3, ..Options::default() }).await.unwrap()
}

fn mkfifo(path: &Path) {
    run(Command::new("mkfifo").arg(path));
}

/// An endpoint that answers every request with this status.
async fn endpoint(status: StatusCode) -> (String, AbortOnDropHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let answer = move || async move { (status, [(header::LOCATION, "http://127.0.0.1:9/other")]) };
    let serving = tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
    (url, AbortOnDropHandle::new(serving))
}

/// The only sink is a webhook at this address.
fn webhook(setup: Setup, receiver: &Receiver, url: String) -> Setup {
    let mut setup = setup.with_webhook("hook", receiver).with("sinks.hook.url", url);
    setup.set("channels.c0.sinks", vec!["hook"]);
    setup.remove("sinks.file");
    setup
}

#[tokio::test]
async fn check_and_daemon_agree_about_files_databases_endpoints_and_the_machine() {
    let (simulator, receiver) = (service().await, Receiver::start().await);
    let private = Receiver::start_asking(&Authority::new("an authority that nobody knows")).await;
    let statuses = [StatusCode::UNAUTHORIZED, StatusCode::PERMANENT_REDIRECT, StatusCode::GONE];
    let [strict, moved, gone] = statuses.map(endpoint);
    let ((strict, _strict), (moved, _moved), (gone, _gone)) = tokio::join!(strict, moved, gone);
    let receiver = &receiver;
    let to = |url: &str| {
        let url = url.to_owned();
        move |setup: Setup| webhook(setup, receiver, url.clone())
    };
    let endpoints = vec![
        works("an endpoint", to(&receiver.url())),
        fails("an endpoint that wants other credentials", "are the credentials correct?", to(&strict)),
        fails("an endpoint that redirects", "name the final URL", to(&moved)),
        fails("an endpoint that is gone", "accepts no more events", to(&gone)),
        fails("an endpoint where nothing listens", "refused", to("http://127.0.0.1:9/")),
        fails("an endpoint with an unknown authority", "sink hook", to(&private.url())),
        fails("an endpoint without TLS", "sink hook", to(&receiver.url().replace("http:", "https:"))),
        fails("an address with a byte order mark", "byte order mark", |setup: Setup| {
            let path = setup.path("url");
            fs::write(&path, format!("\u{feff}{}", receiver.url())).unwrap();
            let mut setup = webhook(setup, receiver, String::new());
            setup.remove("sinks.hook.url");
            setup.with("sinks.hook.url_file", path.display().to_string())
        }),
    ];
    let all = [files(), databases(), machine(), endpoints].into_iter().flatten().collect();
    let began = Instant::now();
    let (disagreements, count) = disagreements(&simulator, all).await;
    assert!(disagreements.is_empty(), "{} of {count}:\n{}", disagreements.len(), disagreements.join("\n"));
    assert!(count >= 50 && began.elapsed() < ALL, "{count} environments took {:?}", began.elapsed());
}

#[tokio::test]
async fn check_and_daemon_agree_about_small_and_read_only_file_systems() {
    let mounts = tempfile::tempdir().unwrap();
    let mount = |name: &str| Mount::new(mounts.path().join(name), "8m");
    let (Some(empty), Some(full), Some(fixed)) = (mount("empty"), mount("full"), mount("fixed")) else { return };
    fill(&full.at);
    fs::write(fixed.at.join("present.db"), "").unwrap();
    fixed.remount("ro");
    let on = |mount: &Mount, file: &str, kind: &'static str| {
        let path = mount.at.join(file).display().to_string();
        move |setup: Setup| setup.with("sinks.file.type", kind).with("sinks.file.path", path.clone())
    };
    let simulator = service().await;
    let environments = vec![
        works("a file in memory", on(&empty, "events.jsonl", "file")),
        works("a database in memory", on(&empty, "events.db", "sqlite")),
        fails("a file on a full file system", "No space left", on(&full, "events.jsonl", "file")),
        fails("a file on a read-only file system", "Read-only", on(&fixed, "events.jsonl", "file")),
        fails("a database on a read-only file system", "Read-only", on(&fixed, "events.db", "sqlite")),
        fails("a present database on a read-only file system", "Read-only", on(&fixed, "present.db", "sqlite")),
    ];
    let (disagreements, _) = disagreements(&simulator, environments).await;
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));

    // A sink that acknowledges before its disk is named by the check and by the status.
    for kind in ["file", "sqlite"] {
        let file = format!("named.{kind}");
        let setup = on(&empty, &file, kind)(Setup::reading(&simulator));
        let (is_accepted, said) = checked(&setup).await;
        assert!(is_accepted && said.contains("is in memory (tmpfs)"), "{said}");
        let mut daemon = setup.start();
        assert!(delivers(kind, &mut daemon).await);
        let told = setup.tell(&["status"]).await;
        let said = String::from_utf8_lossy(&told.out).into_owned();
        assert!(said.contains("acknowledges early") && said.contains("is in memory (tmpfs)"), "{said}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_check_beside_its_own_daemon_succeeds_and_beside_another_daemon_fails() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until_logged("batch recorded").await;
    setup.set("admin.listen", admin.address.to_string());
    let (code, asked) = connect(&setup).await;
    assert!(code == Some(0), "{asked:?}");

    setup.set("channels.c0.id", "7c9e6679-7425-40de-944b-e07fc1f90ae7");
    let (code, asked) = connect(&setup).await;
    let fails = |what: &str, why: &str| {
        asked.iter().any(|(name, ok, said)| name.starts_with(what) && !ok && said.contains(why))
    };
    assert!(code == Some(69) && fails("state ", "is in use by another channeld"), "{asked:?}");
    assert!(fails("admin listener ", "cannot listen on"), "{asked:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_check_changes_neither_a_database_nor_its_log() {
    let simulator = service().await;
    let setup = database(Setup::reading(&simulator), "");
    let scratch = tempfile::tempdir().unwrap();
    let [original, copy] = [scratch.path().join("events.db"), setup.path("events.db")];
    let writer = rusqlite::Connection::open(&original).unwrap();
    writer.execute_batch("pragma journal_mode = wal; create table other (a); insert into other values (1)").unwrap();
    // A copy of an open database is like a database after a crash.
    for suffix in ["", "-wal"] {
        let [from, to] = [&original, &copy].map(|path| format!("{}{suffix}", path.display()));
        fs::copy(from, to).unwrap();
    }
    let read = |suffix: &str| fs::read(setup.path(&format!("events.db{suffix}"))).unwrap();
    let (before, log) = (read(""), read("-wal"));
    assert!(!log.is_empty());
    let (is_accepted, said) = checked(&setup).await;
    assert!(is_accepted && said.contains("table events will be created"), "{said}");
    assert!(read("") == before && read("-wal") == log);
}
