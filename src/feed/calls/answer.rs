//! Writes events into responses. A record is copied as it is, and not parsed.

use std::mem;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;

use crate::state::EventPage;
use crate::state::limits::ReservedMemory;
use crate::table::FeedEvent;

/// A part of a response is sent when it has at least this size. The client must read it within `BOUNDS.each_step`.
const PART: usize = 256 << 10;

/// The JSON object of an event: its record, with the position as the first member.
pub(crate) fn write_event(text: &mut String, event: &FeedEvent) {
    let record = event.record.trim();
    let members = record.strip_prefix('{').unwrap_or(record).trim_start();
    text.push_str("{\"position\":");
    text.push_str(&event.position.to_string());
    if members != "}" {
        text.push(',');
    }
    text.push_str(members);
}

/// A response that is a JSON object with a list of events: `{first "events":[…] last}`. Its memory is freed after it was sent.
pub(crate) fn events(first: &str, page: EventPage, last: &str) -> Response {
    let answer = EventsAnswer {
        text: format!("{{{first}\"events\":["),
        is_first: true,
        events: page.events.into_iter(),
        end: format!("]{last}}}"),
        _memory: page.memory,
    };
    let parts =
        stream::unfold(answer, |mut answer| async move { Some((Ok::<_, std::io::Error>(answer.part()?), answer)) });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response()
}

struct EventsAnswer {
    text: String,
    is_first: bool,
    events: std::vec::IntoIter<FeedEvent>,
    end: String,
    _memory: ReservedMemory,
}

impl EventsAnswer {
    /// The next part of the response. `None` after the last one.
    fn part(&mut self) -> Option<Bytes> {
        while self.text.len() < PART {
            let Some(event) = self.events.next() else {
                self.text.push_str(&mem::take(&mut self.end));
                break;
            };
            if !mem::take(&mut self.is_first) {
                self.text.push(',');
            }
            write_event(&mut self.text, &event);
        }
        Some(mem::take(&mut self.text)).filter(|text| !text.is_empty()).map(Bytes::from)
    }
}

/// The message of a stream for an event. A record can contain line breaks between its members, so each line gets its own `data:`
/// prefix, and the client joins the lines.
pub(crate) fn write_message(text: &mut String, event: &FeedEvent) {
    let mut data = String::with_capacity(event.record.len() + 32);
    write_event(&mut data, event);
    text.push_str("id: ");
    text.push_str(&event.position.to_string());
    text.push('\n');
    for line in data.split(['\r', '\n']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
}

/// The message of a stream for a problem, after which the stream ends.
pub(crate) fn problem_message(problem: &Value) -> String {
    format!("event: problem\ndata: {problem}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(record: &str) -> FeedEvent {
        FeedEvent { position: 7, record: record.into() }
    }

    #[test]
    fn the_position_is_the_first_member_of_an_unchanged_record() {
        for (record, expected) in [
            (r#"{"offset":1.50,"x":{"y":"\u00e9"}}"#, r#"{"position":7,"offset":1.50,"x":{"y":"\u00e9"}}"#),
            ("{}", r#"{"position":7}"#),
            (" {\n } ", r#"{"position":7}"#),
            ("{\n  \"a\": 1\n}\n", "{\"position\":7,\"a\": 1\n}"),
        ] {
            let mut text = String::new();
            write_event(&mut text, &event(record));
            assert_eq!(text, expected);
            serde_json::from_str::<Value>(&text).expect("it is JSON");
        }
    }

    #[test]
    fn each_line_of_a_message_has_a_prefix() {
        let mut text = String::new();
        write_message(&mut text, &event("{\"a\":\r\n1,\r\"b\":2}"));
        assert_eq!(text, "id: 7\ndata: {\"position\":7,\"a\":\ndata: \ndata: 1,\ndata: \"b\":2}\n\n");
    }
}
