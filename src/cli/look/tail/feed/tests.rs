use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::cli::prove::verify::tests::{recorded, verifier as recorded_verifier};
use proof::event::ChannelId;
use uuid::Uuid;

const FIRST_TOKEN: &str = "the-first-token-of-ledger";

const NEXT_TOKEN: &str = "the-next-token-of-ledger";

/// A server that gives one answer to each request, and a client with a token.
struct ScriptedFeed {
    listener: TcpListener,
    client: FeedClient,
    directory: TempDir,
}

impl ScriptedFeed {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let address = FeedAddress::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let token_file = Some(directory.path().join("token").display().to_string());
        let args = FeedArgs { feed: Some(address.clone()), token_file, ca_file: None, after: None };
        let feed = Self { client: FeedClient::of(&address, &args).unwrap(), listener, directory };
        feed.write_token(FIRST_TOKEN);
        feed
    }

    fn write_token(&self, token: &str) {
        fs::write(self.directory.path().join("token"), format!("{token}\n")).unwrap();
    }

    /// Answers the next request with this status and JSON. Returns the head of the request.
    async fn answer(&self, status: u16, body: &Value) -> String {
        let (mut client, _) = self.listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        let kind = if status == 200 { "application/json" } else { "application/problem+json" };
        let body = body.to_string();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} Answer\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        client.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap()
    }

    /// Reads the next events while the server gives these answers. Returns the heads of the requests too.
    async fn read(
        &self,
        channel: FollowedChannel,
        answers: &[(u16, Value)],
    ) -> (Result<(FollowedChannel, Vec<ReceivedEvent>), CommandError>, Vec<String>) {
        let answering = async {
            let mut heads = Vec::new();
            for (status, body) in answers {
                heads.push(self.answer(*status, body).await);
            }
            heads
        };
        tokio::join!(channel.read(&self.client), answering)
    }
}

/// A channel that was read up to position 2.
fn channel(is_chosen: bool) -> FollowedChannel {
    FollowedChannel {
        channel: ChannelRef { name: "settlements".into(), id: ChannelId(Uuid::from_u128(7)) },
        verifier: recorded_verifier(),
        after: 2,
        is_chosen,
        highest: None,
        complaint: None,
    }
}

fn events(positions: &[i64]) -> (u16, Value) {
    let events: Vec<_> = positions.iter().map(|position| json!({ "position": position })).collect();
    (200, json!({ "events": events, "next": 0 }))
}

#[tokio::test]
async fn reading_continues_after_the_last_position_and_empty_answers_are_no_end() {
    let feed = ScriptedFeed::start().await;
    let (read, heads) = feed.read(channel(true), &[events(&[]), events(&[3, 4])]).await;
    let (read, received) = read.unwrap();
    assert_eq!((read.after, read.is_chosen, received.len()), (4, false, 2));
    for head in heads {
        assert!(head.starts_with("GET /v1/channels/settlements/events?after=2&wait=30s HTTP/1.1\r\n"), "{head}");
    }
}

#[tokio::test]
async fn deleted_events_are_an_error_only_at_a_chosen_position() {
    let feed = ScriptedFeed::start().await;
    let gone = (410, json!({ "detail": "gone", "oldest": 5 }));
    let (read, heads) = feed.read(channel(false), &[gone.clone(), events(&[5])]).await;
    assert_eq!(read.unwrap().0.after, 5);
    assert!(heads[1].contains("after=4&"), "{heads:?}");
    let (read, _) = feed.read(channel(true), &[gone]).await;
    let failure = read.unwrap_err();
    assert!(failure.0 == Exit::Failed && failure.to_string().contains("use --after 4"), "{failure}");
    // An answer that contradicts itself does not repeat the request forever.
    let (read, _) = feed.read(channel(false), &[(410, json!({ "detail": "gone", "oldest": 3 }))]).await;
    assert_eq!(read.unwrap_err().0, Exit::Failed);
}

#[tokio::test]
async fn positions_must_ascend_and_can_have_gaps() {
    let feed = ScriptedFeed::start().await;
    for positions in [&[2][..], &[3, 3], &[4, 3], &[-1]] {
        let (read, _) = feed.read(channel(false), &[events(positions)]).await;
        let failure = read.unwrap_err().to_string();
        assert!(failure.contains("do not ascend"), "{positions:?}: {failure}");
    }
    let (read, _) = feed.read(channel(false), &[events(&[4, 7])]).await;
    assert_eq!(read.unwrap().0.after, 7);
}

#[tokio::test]
async fn a_new_token_in_the_file_is_used_for_the_next_request() {
    let feed = ScriptedFeed::start().await;
    let (read, first) = feed.read(channel(false), &[events(&[3])]).await;
    feed.write_token(NEXT_TOKEN);
    let (_, next) = feed.read(read.unwrap().0, &[events(&[4])]).await;
    for (head, token) in [(&first[0], FIRST_TOKEN), (&next[0], NEXT_TOKEN)] {
        assert!(head.to_lowercase().contains(&format!("authorization: bearer {token}\r\n")), "{head}");
    }
}

#[test]
fn signers_are_lacking_if_no_event_is_verified_and_some_have_too_few_signatures() {
    let received = |object: &Value| {
        let object = RawValue::from_string(object.to_string()).unwrap();
        ReceivedEvent::of(&channel(false).channel, &recorded_verifier(), 3, &object)
    };
    let verified = || received(&recorded().event);
    let malformed = || received(&json!({}));
    let too_few = || ReceivedEvent { reason: Some(ReasonKind::TooFewSignatures.into()), ..malformed() };
    assert!(lack_signers(&[malformed(), too_few()]));
    assert!(!lack_signers(&[verified(), too_few()]));
    assert!(!lack_signers(&[malformed()]));
}

#[test]
fn a_channel_is_chosen_by_name_or_id_among_those_that_the_token_may_read() {
    let feed = FeedAddress::parse("unix:/run/feed.sock").unwrap();
    let listed = |number: u16| ListedChannel {
        name: format!("c{number}"),
        id: ChannelId(Uuid::from_u128(number.into())),
        position: 0,
    };
    let chosen = |number: u16, wanted: Option<&str>| {
        let chosen = chosen((0..number).map(listed).collect(), wanted, &feed);
        chosen.map(|chosen| chosen.into_iter().map(|listed| listed.name).collect::<Vec<_>>())
    };
    assert_eq!(chosen(2, None).unwrap(), ["c0", "c1"]);
    assert_eq!(chosen(2, Some("c1")).unwrap(), ["c1"]);
    assert_eq!(chosen(100, Some(&Uuid::from_u128(70).to_string())).unwrap(), ["c70"]);
    for (number, wanted, exit, message) in [
        (2, Some("c2"), Exit::Usage, "are: c0, c1"),
        (0, Some("c2"), Exit::Usage, "are: none"),
        (0, None, Exit::Failed, "may read no channel"),
        (65, None, Exit::Usage, "at most 64 can be watched at once"),
    ] {
        let failure = chosen(number, wanted).unwrap_err();
        assert!(failure.0 == exit && failure.to_string().contains(message), "{failure}");
    }
}
