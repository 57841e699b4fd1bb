//! A client of the NATS protocol, written for the tests. It does not depend on the library that the daemon uses.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Message;

/// The longest wait for an answer. A server that is starting accepts requests that it never answers.
const ANSWER: Duration = Duration::from_secs(2);

const INBOX: &str = "_INBOX.tests";

/// A connection.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr, login: &Value) -> io::Result<Self> {
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        let mut greeting = String::new();
        stream.read_line(&mut greeting).await?;
        let mut options = json!({"verbose": false, "pedantic": false, "headers": true, "no_responders": true,
            "lang": "tests", "version": "1", "protocol": 1});
        options.as_object_mut().unwrap().extend(login.as_object().unwrap().clone());
        stream.write_all(format!("CONNECT {options}\r\nSUB {INBOX} 1\r\nPING\r\n").as_bytes()).await?;
        let mut client = Self { stream };
        while client.line().await? != "PONG" {}
        Ok(client)
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if line.starts_with("-ERR") {
            return Err(io::Error::other(line));
        }
        Ok(line.trim_end().to_owned())
    }

    /// The body of the answer. `None` without an answer.
    pub(super) async fn request(&mut self, subject: &str, body: &str) -> Option<Vec<u8>> {
        timeout(ANSWER, self.answer(subject, body)).await.ok()?.ok().filter(|body| !body.is_empty())
    }

    /// The answer to a message with headers.
    pub(super) async fn publish(
        &mut self,
        subject: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let lines: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = format!("NATS/1.0\r\n{}\r\n", lines.concat());
        let sizes = format!("{} {}", headers.len(), headers.len() + body.len());
        let message = [format!("HPUB {subject} {INBOX} {sizes}\r\n{headers}").as_bytes(), body, b"\r\n"].concat();
        timeout(ANSWER, self.answer_to(&message)).await.ok()?.ok()
    }

    async fn answer(&mut self, subject: &str, body: &str) -> io::Result<Vec<u8>> {
        self.answer_to(format!("PUB {subject} {INBOX} {}\r\n{body}\r\n", body.len()).as_bytes()).await
    }

    async fn answer_to(&mut self, message: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(message).await?;
        loop {
            let line = self.line().await?;
            let words: Vec<_> = line.split(' ').collect();
            let sizes: Vec<usize> = words.iter().rev().map_while(|word| word.parse().ok()).collect();
            // The line is `MSG subject id [reply] size`. `HMSG` has the size of the headers before the total size.
            let (all, headers) = match words[0] {
                "MSG" => (sizes[0], 0),
                "HMSG" => (sizes[0], sizes[1]),
                "PING" => {
                    self.stream.write_all(b"PONG\r\n").await?;
                    continue;
                }
                _ => continue,
            };
            let mut bytes = vec![0; all + 2];
            self.stream.read_exact(&mut bytes).await?;
            return Ok(bytes[headers..all].to_vec());
        }
    }
}

/// A message as the API returns it.
pub(super) fn message(message: &Value) -> Message {
    let bytes = |name: &str| STANDARD.decode(message[name].as_str().unwrap_or_default()).unwrap();
    let headers = String::from_utf8(bytes("hdrs")).unwrap();
    let headers = headers.lines().skip(1).filter_map(|line| line.split_once(": "));
    Message {
        subject: message["subject"].as_str().unwrap().to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        body: bytes("data"),
    }
}
