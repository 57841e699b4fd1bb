//! A service whose answers come from the test, for behavior that the simulator does not support.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) offset: Option<i64>,
    pub(crate) limit: Option<usize>,
    /// The id in a request for one event.
    pub(crate) event: Option<String>,
}

/// A running service. It ends when it is dropped.
pub(crate) struct Scripted {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    networks: Arc<Mutex<Option<&'static str>>>,
    _serving: JoinSet<()>,
}

impl Scripted {
    pub(crate) async fn answering(answer: impl Fn(&Asked) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (book, answer) = (Arc::clone(&asked), Arc::new(answer));
        let networks = Arc::<Mutex<Option<&'static str>>>::default();
        let listed = Arc::clone(&networks);
        let list = move || {
            let list = *listed.lock().unwrap_or_else(PoisonError::into_inner);
            async move { list.ok_or(StatusCode::NOT_FOUND) }
        };
        let nothing = || async { StatusCode::NOT_FOUND };
        let routes = Router::new().fallback(move |uri: Uri| {
            let asked = Asked::of(&uri);
            book.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
            let answer = Arc::clone(&answer);
            async move { answer(&asked) }
        });
        // The daemon requests these in the background, at any time.
        let routes =
            routes.route("/v1/networks", get(list)).route("/v1/channels/{id}/watchers/{watcher}", get(nothing));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, asked, networks, _serving: serving }
    }

    /// Answers requests for the list of networks with this list. Without it, the service has no list.
    pub(crate) fn list_networks(&self, list: &'static str) {
        *self.networks.lock().unwrap_or_else(PoisonError::into_inner) = Some(list);
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The number of requests.
    pub(crate) fn requests(&self) -> usize {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Asked {
    fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        Self {
            offset: value("offset").map(|offset| offset.parse().unwrap()),
            limit: value("limit").map(|limit| limit.parse().unwrap()),
            event: uri.path().split_once("/events/search/").map(|(_, id)| id.to_owned()),
        }
    }
}
