//! Responses whose head the HTTP library refuses.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A server that sends the same bytes as the response to every request, and leaves the connection open.
struct RawServer {
    url: Url,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl RawServer {
    async fn answering(first: Option<&'static str>, response: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (connections.clone(), requests.clone());
        let serving = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                counts.0.fetch_add(1, Ordering::Relaxed);
                let (requests, response) = (counts.1.clone(), response.clone());
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while client.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
                        if request.ends_with(b"}") {
                            request.clear();
                            let earlier = requests.fetch_add(1, Ordering::Relaxed);
                            let response = first.filter(|_| earlier == 0).unwrap_or(&response);
                            // The client may close the connection before it has read everything.
                            let _ = client.write_all(response.as_bytes()).await;
                        }
                    }
                });
            }
        });
        Self { url, connections, requests, serving }
    }

    fn counts(&self) -> (usize, usize) {
        (self.connections.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The rest of a head, after the status line.
fn unreadable() -> Vec<(&'static str, String)> {
    let many: Vec<_> = (0..1_500).map(|number| format!("x-{number}: 1\r\n")).collect();
    let many = many.concat();
    let long = format!("x-long: {}\r\n", "x".repeat(1_000_000));
    vec![
        ("an invalid length", "content-length: two\r\n\r\nok".to_owned()),
        ("a negative length", "content-length: -1\r\n\r\n".to_owned()),
        ("two lengths", "content-length: 2\r\ncontent-length: 3\r\n\r\nok".to_owned()),
        ("two lengths in a header", "content-length: 2, 3\r\n\r\nok".to_owned()),
        ("more headers than the limit", format!("{many}content-length: 0\r\n\r\n")),
        ("a header longer than the buffer", format!("{long}content-length: 0\r\n\r\n")),
    ]
}

#[tokio::test]
async fn a_success_whose_other_headers_cannot_be_read_is_a_success() {
    for (what, rest) in unreadable() {
        for status_line in ["HTTP/1.1 200 OK", "HTTP/1.0 202 Accepted", "HTTP/1.1 201", "\r\nHTTP/1.1 200 OK"] {
            let server = RawServer::answering(None, format!("{status_line}\r\n{rest}")).await;
            let webhook = made(settings(&server.url)).unwrap();
            let delivered = deliver(&webhook, &channel(1), &records(&channel(1), 1..4)).await;
            assert!(delivered.is_ok(), "{what}, {status_line:?}: {delivered:?}");
            assert_eq!(server.counts(), (3, 3), "{what}: each event is posted once, and no connection is used again");
        }
    }
}

#[tokio::test]
async fn a_refusal_whose_other_headers_cannot_be_read_has_its_status() {
    for (what, rest) in unreadable() {
        let server = RawServer::answering(None, format!("HTTP/1.1 500 No\r\n{rest}")).await;
        let webhook = made(settings(&server.url)).unwrap();
        let refused = deliver(&webhook, &channel(1), &records(&channel(1), 1..4)).await.unwrap_err();
        assert_eq!(refusal(&refused), (0, "answered 500", None), "{what}");
        assert_eq!(server.counts(), (1, 1), "{what}");
    }
}

#[tokio::test]
async fn a_success_whose_head_never_ends_is_a_success() {
    let server = RawServer::answering(None, "HTTP/1.1 200 OK\r\ncontent-le".to_owned()).await;
    let timeout = Duration::from_millis(200);
    let webhook = made(WebhookSettings { timeout, ..settings(&server.url) }).unwrap();
    deliver(&webhook, &channel(1), &records(&channel(1), 1..3)).await.unwrap();
    assert_eq!(server.counts(), (2, 2));
}

#[tokio::test]
async fn an_answer_without_a_valid_status_line_is_no_success_and_the_event_is_not_posted_again_at_once() {
    for answer in ["HTTP/1.1 200OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "200 OK\r\n\r\n", "<html>200</html>\r\n\r\n"] {
        let server = RawServer::answering(Some("HTTP/1.1 204 \r\n\r\n"), answer.to_owned()).await;
        let webhook = made(settings(&server.url)).unwrap();
        let refused = deliver(&webhook, &channel(1), &records(&channel(1), 1..4)).await.unwrap_err();
        let (delivered, message, _) = refusal(&refused);
        assert!(
            delivered == 1 && message.starts_with("could not send the event: invalid HTTP"),
            "{answer:?}: {message}"
        );
        assert_eq!(server.counts().1, 2, "{answer:?}: the second event is posted once");
    }
}
