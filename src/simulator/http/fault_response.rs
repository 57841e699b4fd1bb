//! The answers that do not depend on the request.

use std::convert::Infallible;
use std::io::Write;
use std::sync::LazyLock;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;

use super::envelope::RequestError;
use crate::fault::Fault;

/// The interval between two bytes of a deliberately slow answer.
pub(crate) const BETWEEN_BYTES: Duration = Duration::from_secs(1);

const HTML: &str = "<html><head><title>Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>";
const WRONG_SHAPE: &str = r#"{"events":{"first":1},"has_more":"perhaps"}"#;
const EMPTY_PAGE: &str = r#"{"events":[],"has_more":true}"#;

/// The beginning of a page that never continues: only white space follows.
const NO_PAGE: &str = r#"{"events":["#;

const MIB: usize = 1 << 20;

/// White space that is sent repeatedly.
static WHITE_SPACE: [u8; 64 * 1024] = [b' '; 64 * 1024];

static LARGE_ERROR: LazyLock<Bytes> =
    LazyLock::new(|| format!(r#"{{"type":"INTERNAL_ERROR","message":"{}"}}"#, "x".repeat(10_000_000)).into());

/// 1 GiB of white space without an end. No client should read this much.
static GZIP_BOMB: LazyLock<Bytes> = LazyLock::new(|| {
    const WHOLE: &str = "writing to memory does not fail";
    let mut encoder = GzEncoder::new(NO_PAGE.as_bytes().to_vec(), Compression::best());
    encoder.get_mut().clear();
    let mut compressed = |bytes: &[u8]| {
        let before = encoder.get_ref().len();
        encoder.write_all(bytes).expect(WHOLE);
        encoder.flush().expect(WHOLE);
        encoder.get_ref()[before..].to_vec()
    };
    let mebibyte = vec![b' '; MIB];
    let begin = [compressed(NO_PAGE.as_bytes()), compressed(&mebibyte)].concat();
    // From here on every mebibyte is compressed to the same bytes, because the data before it is the same.
    [begin, compressed(&mebibyte).repeat(1023)].concat().into()
});

/// Returns the answer, if the fault consists of an answer alone.
pub(crate) fn instead(fault: &Fault) -> Option<Response> {
    let json = [(header::CONTENT_TYPE, "application/json")];
    Some(match fault {
        Fault::RateLimited { retry_after } => rate_limited(retry_after.as_deref()),
        Fault::Status(status) => RequestError::of(code(*status)).into_response(),
        Fault::Html(status) => (code(*status), [(header::CONTENT_TYPE, "text/html")], HTML).into_response(),
        Fault::EmptyBody => (json, "").into_response(),
        Fault::WrongShape => (json, WRONG_SHAPE).into_response(),
        Fault::EmptyPage => (json, EMPTY_PAGE).into_response(),
        Fault::LargeError => (StatusCode::INTERNAL_SERVER_ERROR, json, LARGE_ERROR.clone()).into_response(),
        Fault::GzipBomb => (json, [(header::CONTENT_ENCODING, "gzip")], GZIP_BOMB.clone()).into_response(),
        Fault::EndlessBody => (json, endless()).into_response(),
        Fault::SlowBody => (json, slow()).into_response(),
        _ => return None,
    })
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn rate_limited(retry_after: Option<&str>) -> Response {
    let mut answer = RequestError::of(StatusCode::TOO_MANY_REQUESTS).into_response();
    if let Some(value) = retry_after.and_then(|value| HeaderValue::from_str(value).ok()) {
        answer.headers_mut().insert(header::RETRY_AFTER, value);
    }
    answer
}

/// Returns a body without an end, sent as fast as the client reads it.
fn endless() -> Body {
    let page = [NO_PAGE.as_bytes()].into_iter().chain(std::iter::repeat(&WHITE_SPACE[..]));
    Body::from_stream(stream::iter(page.map(|part| Ok::<_, Infallible>(Bytes::from_static(part)))))
}

fn slow() -> Body {
    let bytes = NO_PAGE.bytes().chain(std::iter::repeat(b' '));
    Body::from_stream(stream::unfold(bytes, async |mut bytes| {
        tokio::time::sleep(BETWEEN_BYTES).await;
        let byte = Bytes::from(vec![bytes.next()?]);
        Some((Ok::<_, Infallible>(byte), bytes))
    }))
}
