//! `channeld health`: queries a running daemon over its admin listener. Containers may have no other program for this.
//!
//! # Invariants
//!
//! * **Only the address is read from the configuration.** A mistake in the file after the daemon has read it must not make a
//!   healthy daemon look unhealthy: a service manager would restart the daemon, and the daemon would then read the mistake.
//! * **Bounded:** see [`MAX_WAIT`] and [`ANSWER_BYTES`].

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::Response;
use url::Url;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::verdict_line::printable;
use crate::config::load_listen;
use net::Chain;
use net::http;

/// How long the answer may take: slightly longer than the daemon's own time limit for a report.
const MAX_WAIT: Duration = Duration::from_secs(12);

/// How many bytes of an answer are read. A longer list of reasons is cut off, which does not change the exit code.
const ANSWER_BYTES: usize = 64 * 1024;

/// Check whether the running daemon makes progress.
///
/// Requests /livez from the daemon's admin listener (`admin.listen` in the configuration) and prints the answer. Exits
/// with 0 if the daemon is healthy, and with 1 if it is not or does not answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check whether the daemon is ready (/readyz) instead. Do not restart the daemon because of this check: the cause
    /// may be another system.
    #[arg(long)]
    ready: bool,
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let listen = load_listen(cx.file)?;
    let path = if args.ready { "/readyz" } else { "/livez" };
    let (good, text) = ask(&url(listen, path)?, MAX_WAIT).await?;
    cx.say_lines(text.lines().map(printable))?;
    Ok(if good { Exit::Done } else { Exit::Failed })
}

fn url(listen: Option<SocketAddr>, path: &str) -> Result<Url, CommandError> {
    let Some(mut address) = listen else {
        return Err(CommandError::failed("admin.listen is \"\": the daemon serves no health endpoint"));
    };
    if address.port() == 0 {
        let message = "admin.listen lets the system choose the port: set a fixed one for this command";
        return Err(CommandError::failed(message));
    }
    // A daemon that listens on every address also listens on the loopback address.
    if address.ip().is_unspecified() {
        let is_v4 = address.is_ipv4();
        address.set_ip(if is_v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    Ok(format!("http://{address}{path}").parse().expect("an address and a path are a URL"))
}

async fn ask(url: &Url, max_wait: Duration) -> Result<(bool, String), CommandError> {
    let failed =
        |error: reqwest::Error| CommandError::failed(format!("no answer from {url}: {}", Chain(&error.without_url())));
    let client = http::client_for(url).map_err(|error| CommandError::by(&*error))?;
    let client = client.no_proxy().timeout(max_wait).build().map_err(failed)?;
    let answer = client.get(url.clone()).send().await.map_err(failed)?;
    let good = answer.status().is_success();
    Ok((good, text(answer).await.map_err(failed)?))
}

async fn text(mut answer: Response) -> reqwest::Result<String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= ANSWER_BYTES {
            bytes.truncate(ANSWER_BYTES);
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_daemon_listening_on_all_addresses_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:9464", "http://127.0.0.1:9464/livez"),
            ("[::]:9464", "http://[::1]:9464/livez"),
            ("10.1.2.3:80", "http://10.1.2.3/livez"),
        ] {
            assert_eq!(url(Some(listen.parse().unwrap()), "/livez").unwrap().as_str(), asked);
        }
        for listen in [None, Some("127.0.0.1:0".parse().unwrap())] {
            assert_eq!(url(listen, "/livez").unwrap_err().0, Exit::Failed);
        }
    }

    #[tokio::test]
    async fn a_daemon_that_does_not_answer_times_out() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url(Some(silent.local_addr().unwrap()), "/livez").unwrap();
        let failure = ask(&url, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(failure.0, Exit::Failed);
        assert!(failure.to_string().contains("timed out"), "{failure}");
    }
}
