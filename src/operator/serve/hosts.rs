//! Checks the host names of requests to the admin listener.
//!
//! The owner of a foreign web page can point the page's own name at this listener (DNS rebinding). The reader's browser then
//! treats the answers as part of that page. The browser sends the name of the page as `Host`, so requests with an unknown
//! name are refused. IP addresses are not names and are accepted: probes and Prometheus send them.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

const REFUSED: &str = "channeld does not answer to this name: use an address, or add the name to admin.hosts\n";

/// The names in `admin.hosts`. `localhost` is accepted in addition.
pub(super) type Hosts = Arc<[String]>;

/// Refuses requests for an unknown host.
pub(super) async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if is_known(request.headers(), &hosts) {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, REFUSED).into_response()
}

/// Browsers always send a host. A client that sends none is not a browser.
fn is_known(headers: &HeaderMap, hosts: &[String]) -> bool {
    let known = |host: &str| {
        let name = name(host);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        is("localhost") || hosts.iter().any(|known| is(known)) || name.parse::<IpAddr>().is_ok()
    };
    headers.get_all(header::HOST).iter().all(|host| host.to_str().is_ok_and(known))
}

/// Removes the port, the brackets of an IPv6 address, and the final dot of a fully qualified name.
fn name(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_that_are_configured_are_known_and_no_other() {
        let hosts = ["channeld".to_owned(), "app1.internal".to_owned()];
        let known = |host: &str| is_known(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]), &hosts);
        for host in [
            "127.0.0.1",
            "10.1.2.3:9464",
            "[::1]:9464",
            "[fd00::7]",
            "localhost:9464",
            "LOCALHOST",
            "channeld:9464",
            "App1.internal.",
        ] {
            assert!(known(host), "{host}");
        }
        for host in [
            "",
            ":9464",
            "evil.example",
            "127.0.0.1.evil.example:9464",
            "localhost.evil.example",
            "[evil]:1",
            "app1",
            "1:2:3",
        ] {
            assert!(!known(host), "{host}");
        }
        assert!(is_known(&HeaderMap::new(), &hosts));
    }
}
