//! The files that pages load. They are compiled in, and are served without a cookie because they contain no data.

use axum::Router;
use axum::http::header;
use axum::routing::get;

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/icon.svg");

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let serve =
        |kind: &'static str, text: &'static str| get(move || async move { ([(header::CONTENT_TYPE, kind)], text) });
    Router::new()
        .route("/console.css", serve("text/css; charset=utf-8", STYLE))
        .route("/console.js", serve("text/javascript; charset=utf-8", SCRIPT))
        .route("/icon.svg", serve("image/svg+xml", ICON))
}
