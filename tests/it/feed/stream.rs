//! Server-sent events.

use simulator::Options;

use super::{FeedClient, FeedEvent, Served, assert_positions, with_each_table};

with_each_table![a_stream_resumes_after_the_last_event_id_and_receives_new_events];

/// A stream as a browser reads it.
pub(super) struct EventStream {
    answer: reqwest::Response,
    text: String,
}

impl EventStream {
    pub(super) async fn open(client: &FeedClient, path: &str, last_event_id: Option<&str>) -> Self {
        let mut request = client.request(reqwest::Method::GET, path);
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["Content-Type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        Self { answer, text: String::new() }
    }

    /// The next event and its id.
    async fn next(&mut self) -> (String, FeedEvent) {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let message: String = self.text.drain(..end + 2).collect();
                let value = |name: &str| message.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                let found = value("id").map(|id| (id.to_owned(), value("data").expect("it has data").to_owned()));
                if let Some((id, data)) = found {
                    return (id, FeedEvent::of(&serde_json::from_str(&data).unwrap()));
                }
            }
            let chunk = tokio::time::timeout(crate::support::LONGEST_WAIT, self.answer.chunk()).await;
            let chunk = chunk.expect("a stream is never silent for long").unwrap().expect("a stream does not end");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    pub(super) async fn take(&mut self, events: usize) -> Vec<FeedEvent> {
        let mut taken = Vec::new();
        for _ in 0..events {
            let (id, event) = self.next().await;
            assert_eq!(id, event.position.to_string());
            taken.push(event);
        }
        taken
    }
}

async fn a_stream_resumes_after_the_last_event_id_and_receives_new_events(kind: &str) {
    let Some(Served { simulator, setup, database: _database, .. }) =
        Served::by(kind, Options { events: 50, forged: 0.1, ..Options::default() }).await
    else {
        return;
    };
    let expected = crate::support::deliverable(&simulator, 0).len();
    let newest = i64::try_from(expected).unwrap();
    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", expected).await;
    let read = client.read("c0", 0, 1_000).await;
    let begin = EventStream::open(&client, "/channels/c0/stream", None).await.take(20).await;
    let mut resumed = EventStream::open(&client, "/channels/c0/stream?after=3", Some("20")).await;
    let rest = resumed.take(expected - 20).await;
    assert_eq!([begin, rest].concat(), read);

    simulator.publish_one(0, simulator::EventSpec::Honest(simulator::Kind::OperationConfirmed));
    assert_positions(&resumed.take(1).await, [newest + 1]);

    // After a restart of the daemon, the client connects again.
    daemon.kill().await;
    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    let mut again = EventStream::open(&client, "/channels/c0/stream", Some(&newest.to_string())).await;
    assert_positions(&again.take(1).await, [newest + 1]);
    simulator.publish_one(0, simulator::EventSpec::Honest(simulator::Kind::OperationConfirmed));
    assert_positions(&again.take(1).await, [newest + 2]);
    drop(again);
    daemon.stop().await;
}
