use axum::body::Body;
use axum::http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::*;
use crate::serve::routes::ALL;
use crate::{ConfiguredChannel, Refusal};
use ledger::Ledgers;
use ledger::store::Sled;

/// Returns the sources of a daemon that reads nothing.
pub(crate) fn sources(state: &std::path::Path) -> Sources {
    sources_of(state, [])
}

/// Returns the sources of a daemon with these channels.
pub(crate) fn sources_of<const N: usize>(state: &std::path::Path, channels: [ConfiguredChannel; N]) -> Sources {
    let ledgers = Arc::new(Ledgers::over(Arc::new(Sled::open(state).unwrap())));
    let liveness = Liveness::hasty(Arc::default(), ledgers.writes.clone());
    let (handles, recent) = (Arc::default(), Arc::default());
    let operations = Operations {
        version: String::new(),
        ledgers,
        handles,
        recent,
        daemon: None,
        log: None,
        api_keys: Vec::new(),
        discovery: None,
        feed: None,
        rejected_config: None,
        cluster: None,
        channels: channels.into(),
    };
    let operations = watch::Sender::new(Arc::new(operations)).subscribe();
    Sources { liveness, operations, metrics: Metrics::default() }
}

async fn ask(router: &Router, method: &Method, path: &str) -> StatusCode {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    let answer = TowerToHyperService::new(router.clone()).call(request.body(Body::from("{}")).unwrap()).await;
    answer.unwrap().status()
}

#[tokio::test]
async fn the_listener_serves_no_changes_and_no_events() {
    let directory = tempfile::tempdir().unwrap();
    let sources = sources(&directory.path().join("state"));
    let (listener, socket) = (reading(sources.clone()), complete(sources));
    for (method, path) in ALL {
        let refused = match *method {
            _ if ["/status", "/hour"].contains(path) => StatusCode::OK,
            Method::GET => StatusCode::NOT_FOUND,
            _ => StatusCode::METHOD_NOT_ALLOWED,
        };
        assert_eq!(ask(&listener, method, path).await, refused, "{method} {path}");
        let served = ask(&socket, method, path).await;
        assert!(!matches!(served.as_u16(), 404 | 405), "{method} {path}: {served}");
    }
}

#[tokio::test]
async fn the_status_code_tells_the_kind_of_refusal() {
    let says = [
        (Refusal::Usage(String::new()), StatusCode::BAD_REQUEST),
        (Refusal::NotFound(String::new()), StatusCode::NOT_FOUND),
        (Refusal::Config(String::new()), StatusCode::UNPROCESSABLE_ENTITY),
        (Refusal::Failed(String::new()), StatusCode::INTERNAL_SERVER_ERROR),
    ];
    for (refusal, status) in says {
        assert_eq!(refusal.into_response().status(), status);
    }
}
