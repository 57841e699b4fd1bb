//! An endpoint that closes connections without notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Receiver, service, webhook_only};

/// When the endpoint closes a connection. It closes each one after one answer, without announcing that in the answer.
#[derive(Clone, Copy, Debug)]
enum Closing {
    AtOnce,
    /// As if the request and the close had crossed on the network.
    AtTheNextRequest,
}

/// Reads one request and answers 204.
async fn answer_one(connection: &mut BufReader<TcpStream>) {
    let mut length = 0;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await.unwrap();
        match line.to_ascii_lowercase().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().unwrap(),
            _ if line == "\r\n" => break,
            _ => {}
        }
    }
    connection.read_exact(&mut vec![0; length]).await.unwrap();
    connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
}

/// Starts an endpoint. Returns its URL and the number of events that it has accepted.
async fn endpoint(closing: Closing) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let taken = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut connection = BufReader::new(connection);
                answer_one(&mut connection).await;
                counted.fetch_add(1, Ordering::Relaxed);
                if let Closing::AtTheNextRequest = closing {
                    let _ = connection.fill_buf().await;
                }
            });
        }
    });
    (url, taken)
}

#[tokio::test]
async fn a_connection_closed_while_idle_causes_no_wait() {
    for closing in [Closing::AtOnce, Closing::AtTheNextRequest] {
        let simulator = service(60).await;
        let (url, taken) = endpoint(closing).await;
        // This receiver is not used. `webhook_only` sets the keys of the sink; the URL is replaced.
        let setup = webhook_only(&simulator, &Receiver::start().await)
            .with("sinks.hook.url", url)
            .with("sinks.hook.retry_wait", "1h")
            .with("sinks.hook.retry_wait_max", "1h");
        let began = Instant::now();
        let mut daemon = setup.start();
        daemon.until(&format!("all arrive: {closing:?}"), |_| taken.load(Ordering::Relaxed) >= 60).await;
        let log = daemon.stop().await;
        println!("{closing:?}: 60 events in {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(60), "{closing:?}");
        assert_eq!(taken.load(Ordering::Relaxed), 60, "each once: {closing:?}");
        assert!(log.lines("sink refused: its events wait and will be offered again").is_empty(), "{closing:?}");
    }
}
