//! The attacks.

use super::TOKEN;

/// A request, or several requests, of an attacker.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    /// The status of the answer if the attack is sent to the feed without a proxy. Empty if the connection is closed without an answer.
    pub(super) status: &'static str,
    /// Whether a part of the attack has the token of a consumer that may read the channel `c0`.
    pub(super) has_token: bool,
}

/// A request for the channel that the attacker must not read.
const CLOSED: &str = "GET /v1/channels/c1/events?after=0 HTTP/1.1\r\n";

/// A request for the channel that the attacker may read.
const OPEN: &str = "GET /v1/channels/c0/events?after=0 HTTP/1.1\r\n";

const COMMIT: &str = "POST /v1/consumers/ledger/c0/commit HTTP/1.1\r\n";

const LEASE: &str = "POST /v1/consumers/ledger/c0/lease HTTP/1.1\r\n";

/// The headers of the attacker.
fn own() -> String {
    format!("Host: feed\r\nAuthorization: Bearer {TOKEN}\r\n")
}

/// A complete request for the closed channel, with the token of the attacker.
fn hidden() -> String {
    format!("{CLOSED}{}\r\n", own())
}

/// The beginning of a request that the next request of another client would complete with its token.
fn incomplete() -> String {
    format!("{CLOSED}Host: feed\r\nX: ")
}

/// One chunk and the end of a chunked body.
fn chunked(content: &str) -> String {
    format!("{:x}\r\n{content}\r\n0\r\n\r\n", content.len())
}

pub(super) fn attacks() -> Vec<Attack> {
    [several(), conflicting(), chunks(), encodings(), lengths(), lines(), targets(), protocols(), floods()].concat()
}

impl Clone for Attack {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), ..*self }
    }
}

/// An attack with the token.
fn of(name: &'static str, status: &'static str, text: String) -> Attack {
    Attack { name, bytes: text.into_bytes(), status, has_token: true }
}

/// An attack without a token.
fn anonymous(name: &'static str, status: &'static str, text: String) -> Attack {
    Attack { has_token: false, ..of(name, status, text) }
}

/// Several requests in one write.
fn several() -> Vec<Attack> {
    let (own, hidden) = (own(), hidden());
    vec![
        of("two requests", "200", format!("{OPEN}{own}\r\n{hidden}")),
        of("a token only in the second request", "401", format!("{OPEN}Host: feed\r\n\r\n{OPEN}{own}\r\n")),
        anonymous("two requests without a token", "401", format!("{OPEN}Host: feed\r\n\r\n{CLOSED}Host: feed\r\n\r\n")),
        of("an incomplete second request", "200", format!("{OPEN}{own}\r\n{}", incomplete())),
        anonymous(
            "an incomplete second request without a token",
            "401",
            format!("{OPEN}Host: feed\r\n\r\n{}", incomplete()),
        ),
        of(
            "a request as the body of GET",
            "200",
            format!("{OPEN}{own}Content-Length: {}\r\n\r\n{hidden}", hidden.len()),
        ),
    ]
}

/// `Content-Length` with `Transfer-Encoding`.
fn conflicting() -> Vec<Attack> {
    let own = own();
    let mut attacks = Vec::new();
    for (second, names) in [
        (hidden(), ["CL.TE", "TE.CL", "CL.TE of GET"]),
        (incomplete(), ["CL.TE, incomplete", "TE.CL, incomplete", "CL.TE of GET, incomplete"]),
    ] {
        let body = format!("0\r\n\r\n{second}");
        let length = body.len();
        let both = |request: &str| {
            format!("{request}{own}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
        };
        let within = chunked(&second);
        let short = within.find('\n').unwrap() + 1;
        attacks.extend([
            of(names[0], "400", both(COMMIT)),
            of(
                names[1],
                "400",
                format!("{COMMIT}{own}Transfer-Encoding: chunked\r\nContent-Length: {short}\r\n\r\n{within}"),
            ),
            of(names[2], "200", both(OPEN)),
        ]);
    }
    attacks
}

/// Unusual chunks.
fn chunks() -> Vec<Attack> {
    let (own, hidden) = (own(), hidden());
    let with = |body: &str| format!("{COMMIT}{own}Transfer-Encoding: chunked\r\n\r\n{body}");
    vec![
        of("a chunk extension", "400", with(&format!("2;a=b\r\n{{}}\r\n0;c=\"d\"\r\n\r\n{hidden}"))),
        of(
            "a line feed in a chunk extension",
            "400",
            with(&format!("2;\nxx\r\n{:x}\r\n0\r\n\r\n{hidden}\r\n0\r\n\r\n", hidden.len())),
        ),
        of("a huge chunk extension", "400", with(&format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "a".repeat(64 << 10)))),
        of("a chunk size that overflows", "400", with(&format!("ffffffffffffffff1\r\n{hidden}"))),
        of("a negative chunk size", "400", with(&format!("-1\r\n{hidden}"))),
        of("a chunk size with a prefix", "400", with(&format!("0x2\r\n{{}}\r\n0\r\n\r\n{hidden}"))),
        of("line feeds between chunks", "400", with(&format!("2\n{{}}\n0\n\n{hidden}"))),
        of("a chunk that is longer than its size", "400", with(&format!("1\r\n{{}}\r\n0\r\n\r\n{hidden}"))),
        of("a trailer with a token", "400", with(&format!("0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n{hidden}"))),
        anonymous(
            "a token only in the trailer",
            "401",
            format!(
                "{LEASE}Host: feed\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n{CLOSED}Host: feed\r\n\r\n"
            ),
        ),
    ]
}

/// Values of `Transfer-Encoding` that one side may understand and another may not.
fn encodings() -> Vec<Attack> {
    let (own, body) = (own(), format!("0\r\n\r\n{}", hidden()));
    let length = body.len();
    let cases: [(&'static str, &'static str, &str); 11] = [
        ("an unknown encoding", "400", "Transfer-Encoding: xchunked"),
        ("a space before the colon", "400", "Transfer-Encoding : chunked"),
        ("a tab before the value", "400", "Transfer-Encoding:\tchunked"),
        ("a vertical tab before the value", "400", "Transfer-Encoding:\u{b}chunked"),
        ("two encodings", "400", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        ("two encodings in one header", "400", "Transfer-Encoding: chunked, identity"),
        ("chunked twice", "400", "Transfer-Encoding: chunked, chunked"),
        ("a quoted encoding", "400", "Transfer-Encoding: \"chunked\""),
        ("an encoding in upper case", "400", "TRANSFER-ENCODING: CHUNKED"),
        ("an encoding behind a line feed", "400", "X: y\nTransfer-Encoding: chunked"),
        ("an encoding in a folded header", "400", "Transfer-Encoding:\r\n chunked"),
    ];
    cases
        .into_iter()
        .map(|(name, status, header)| {
            of(name, status, format!("{COMMIT}{own}Content-Length: {length}\r\n{header}\r\n\r\n{body}"))
        })
        .collect()
}

/// Conflicting and unusual lengths.
fn lengths() -> Vec<Attack> {
    let (own, hidden) = (own(), hidden());
    let all = hidden.len() + 2;
    let cases: [(&'static str, String); 9] = [
        ("two different lengths", format!("Content-Length: 2\r\nContent-Length: {all}")),
        ("two different lengths in the other order", format!("Content-Length: {all}\r\nContent-Length: 2")),
        ("the same length twice", "Content-Length: 2\r\nContent-Length: 2".to_owned()),
        ("a list of lengths", format!("Content-Length: 2, {all}")),
        ("a length with a sign", "Content-Length: +2".to_owned()),
        ("a negative length", "Content-Length: -2".to_owned()),
        ("a hexadecimal length", "Content-Length: 0x2".to_owned()),
        ("a length that overflows", "Content-Length: 18446744073709551618".to_owned()),
        ("a space before the colon of the length", "Content-Length : 2".to_owned()),
    ];
    cases.map(|(name, header)| of(name, "400", format!("{COMMIT}{own}{header}\r\n\r\n{{}}{hidden}"))).into()
}

/// Unusual lines.
fn lines() -> Vec<Attack> {
    let (own, hidden) = (own(), hidden());
    let closed_then = |header: &str| format!("{CLOSED}{own}{header}\r\n\r\n");
    vec![
        of("line feeds only", "403", format!("{CLOSED}{own}\r\n").replace("\r\n", "\n")),
        of("carriage returns only", "400", format!("{CLOSED}{own}\r\n").replace("\r\n", "\r")),
        of("a folded header", "400", closed_then("X: a\r\n b")),
        of("a folded token", "400", format!("{OPEN}Host: feed\r\nAuthorization: Bearer\r\n {TOKEN}\r\n\r\n")),
        of("a header without a colon", "400", closed_then("X")),
        of("a zero byte in a header", "400", closed_then("X: a\0b")),
        of("a carriage return in a header", "400", closed_then("X: a\rY: b")),
        of("an end of the head in a header", "403", format!("{CLOSED}{own}X: a\r\n\r\n\r\n{hidden}")),
        of("empty lines before the request", "403", format!("\r\n\r\n{CLOSED}{own}\r\n")),
        of("two tokens", "401", format!("{OPEN}{own}Authorization: Bearer x\r\n\r\n")),
        of(
            "an unknown token before the token",
            "401",
            format!("{OPEN}Host: feed\r\nAuthorization: Bearer x\r\n{}\r\n", &own["Host: feed\r\n".len()..]),
        ),
        of("two hosts", "403", format!("{CLOSED}{own}Host: other\r\n\r\n")),
        of("no host", "403", format!("{CLOSED}Authorization: Bearer {TOKEN}\r\n\r\n")),
        of(
            "headers of proxies",
            "403",
            closed_then(
                "X-Forwarded-For: 127.0.0.1\r\nX-Original-URL: /v1/channels/c0/events\r\nX-HTTP-Method-Override: POST\r\nForwarded: for=127.0.0.1",
            ),
        ),
        of(
            "hop-by-hop headers",
            "401",
            format!("{OPEN}Host: feed\r\nConnection: close, Authorization\r\nX: {TOKEN}\r\n\r\n"),
        ),
    ]
}

/// Targets that another program may understand in another way.
fn targets() -> Vec<Attack> {
    let own = own();
    let cases: [(&'static str, &'static str, &str); 12] = [
        ("an absolute target", "403", "http://feed/v1/channels/c1/events"),
        ("an absolute target of another host", "403", "http://other.example/v1/channels/c1/events"),
        ("an absolute target with a user", "403", "http://ledger@feed/v1/channels/c1/events"),
        ("an absolute https target", "403", "https://feed/v1/channels/c1/events"),
        ("parent folders", "404", "/v1/channels/c0/../c1/events"),
        ("parent folders behind the path", "404", "/v1/channels/c0/events/../../c1/events"),
        ("encoded parent folders", "404", "/v1/channels/c0/%2e%2e/c1/events"),
        ("an encoded slash", "404", "/v1/channels/c0%2f..%2fc1/events"),
        ("an encoded letter", "403", "/v1/channels/%631/events"),
        ("a double slash", "404", "//v1/channels/c1/events"),
        ("an encoded line break", "400", "/v1/channels/c0/events?after=0%0d%0aX:%20y"),
        ("a fragment", "403", "/v1/channels/c1/events#/v1/channels/c0/events"),
    ];
    cases
        .into_iter()
        .map(|(name, status, target)| of(name, status, format!("GET {target} HTTP/1.1\r\n{own}\r\n")))
        .collect()
}

/// Other versions and protocols.
fn protocols() -> Vec<Attack> {
    let (own, hidden) = (own(), hidden());
    let upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    vec![
        anonymous("HTTP/0.9", "400", "GET /v1/channels/c1/events\r\n\r\n".to_owned()),
        of(
            "HTTP/1.0 that keeps the connection",
            "403",
            format!("{}Connection: keep-alive\r\n{own}\r\n{hidden}", CLOSED.replace("1.1", "1.0")),
        ),
        anonymous("HTTP/2", "", format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{hidden}")),
        of("HTTP/1.2", "400", format!("{}{own}\r\n", CLOSED.replace("1.1", "1.2"))),
        of("an upgrade to HTTP/2", "200", format!("{OPEN}{own}{upgrade}\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{hidden}")),
        of(
            "an upgrade to WebSocket",
            "200",
            format!(
                "{OPEN}{own}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n{hidden}"
            ),
        ),
        anonymous(
            "CONNECT",
            "401",
            format!("CONNECT feed:80 HTTP/1.1\r\nHost: feed\r\n\r\n{CLOSED}Host: feed\r\n\r\n"),
        ),
        of(
            "a body that waits for 100",
            "400",
            format!("{COMMIT}{own}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len()),
        ),
        of("TRACE", "405", format!("TRACE /v1/channels/c1/events HTTP/1.1\r\n{own}\r\n")),
        of("an unknown method", "405", format!("GETX /v1/channels/c1/events HTTP/1.1\r\n{own}\r\n")),
        of("a method with a line break", "400", format!("GET\r\n /v1/channels/c1/events HTTP/1.1\r\n{own}\r\n")),
    ]
}

/// Heads that are too large, and heads that never end.
fn floods() -> Vec<Attack> {
    let own = own();
    let large = |bytes: usize| format!("{CLOSED}{own}X: {}\r\n\r\n", "x".repeat(bytes));
    vec![
        of("a header of 8 KiB", "403", large(8 << 10)),
        of("a header of 20 KiB", "431", large(20 << 10)),
        of("90 headers", "403", format!("{CLOSED}{own}{}\r\n", "X: x\r\n".repeat(90))),
        of("200 headers", "431", format!("{CLOSED}{own}{}\r\n", "X: x\r\n".repeat(200))),
        of(
            "a target of 20 KiB",
            "431",
            format!("GET /v1/channels/c1/events?after={} HTTP/1.1\r\n{own}\r\n", "0".repeat(20 << 10)),
        ),
        of("a head without an end", "", format!("{CLOSED}{own}X: x")),
    ]
}
