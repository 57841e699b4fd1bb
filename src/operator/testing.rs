//! Requests to a daemon that reads nothing, for the fuzzer.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, header};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Operations;
use crate::serve::routes::{self, ALL, RequestSender};
use ledger::Ledgers;
use ledger::store::Sled;

/// A request that waits, such as one for new deliveries, is dropped after this time.
const PATIENCE: Duration = Duration::from_millis(20);

/// The status of a request that was dropped, because it waited.
pub const WAITED: u16 = 408;

static DAEMON: LazyLock<(Runtime, Router)> = LazyLock::new(|| {
    let state = tempfile::tempdir().unwrap().keep().join("state");
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let operations = Operations {
        version: String::new(),
        ledgers: Arc::new(Ledgers::over(Arc::new(Sled::open(&state).unwrap()))),
        handles: Arc::default(),
        recent: Arc::default(),
        daemon: None,
        log: None,
        api_keys: Vec::new(),
        discovery: None,
        feed: None,
        rejected_config: None,
        cluster: None,
        channels: Arc::default(),
    };
    let operations = watch::Sender::new(Arc::new(operations)).subscribe();
    let router = routes::routes(operations, RequestSender::Operator);
    drop(_entered);
    (runtime, router)
});

/// Sends a request of the control socket and returns the status of its answer. `content` is the query of a request that
/// reads, and the body of a request that changes something.
pub fn request(route: usize, content: &[u8]) -> u16 {
    let (method, path) = &ALL[route % ALL.len()];
    let (runtime, router) = &*DAEMON;
    let query = String::from_utf8_lossy(content);
    let address = if *method == Method::GET { format!("{path}?{query}") } else { (*path).to_owned() };
    let request = Request::builder().method(method).uri(address).header(header::CONTENT_TYPE, "application/json");
    // A query that no address can contain never reaches the daemon.
    let Ok(request) = request.body(Body::from(content.to_vec())) else { return WAITED };
    let answer = TowerToHyperService::new(router.clone()).call(request);
    runtime.block_on(async {
        let Ok(answer) = timeout(PATIENCE, answer).await else { return WAITED };
        let answer = answer.unwrap();
        let status = answer.status().as_u16();
        let _ = timeout(PATIENCE, axum::body::to_bytes(answer.into_body(), usize::MAX)).await;
        status
    })
}
