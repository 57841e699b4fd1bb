//! The feed: its address, one consumer, and the file with the token of this consumer.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::prompt::{self, Stop};
use super::sink::{Sink, is_table};
use crate::cli::context::CommandError;
use crate::cli::terminal::{failure_for_stderr, shell_word};

/// The address of the feed, if no other address is given.
pub(super) const LISTEN: &str = "127.0.0.1:9465";

/// The port of [`LISTEN`].
pub(super) const LISTEN_PORT: u16 = 9465;

/// The type of the sink, if a feed is wanted and no type is given.
pub(super) const SINK: &str = "sqlite";

/// The name of the consumer.
const CONSUMER: &str = "app";

#[derive(Clone, Debug)]
pub(super) struct Feed {
    listen: String,
    token_file: PathBuf,
}

/// Checks that a feed can serve the events of a sink of this type.
pub(super) fn check_sink(kind: &str) -> Result<(), CommandError> {
    if is_table(kind) {
        return Ok(());
    }
    Err(CommandError::usage(format!("a feed reads a table, and {kind} has none: use --sink sqlite or --sink postgres")))
}

/// Refuses the address of a feed that was written as the file, as in `--feed 127.0.0.1:9465`.
pub(super) fn check_file(file: &Path) -> Result<(), CommandError> {
    let text = file.to_string_lossy();
    if text.starts_with("unix:") || text.parse::<SocketAddr>().is_ok() {
        return Err(CommandError::usage(format!("{text} is the address of a feed, not a file: write --feed={text}")));
    }
    Ok(())
}

/// A token that cannot be guessed: 244 random bits.
pub(super) fn new_token() -> String {
    [Uuid::new_v4(), Uuid::new_v4()].map(|random| random.simple().to_string()).concat()
}

impl Feed {
    /// The feed at this address. Without an address, asks for one, if the sink is a table.
    pub(super) fn of(listen: Option<String>, sink: &Sink, directory: &Path) -> Result<Option<Self>, Stop> {
        let listen = match listen {
            None if sink.is_table() => ask()?,
            listen => listen,
        };
        Ok(listen.map(|listen| Self { listen, token_file: directory.join("feed-token") }))
    }

    pub(super) fn listen(&self) -> &str {
        &self.listen
    }

    /// The file of the token, if it does not exist yet.
    pub(super) fn missing_token(&self) -> Option<&Path> {
        Some(&*self.token_file).filter(|file| !file.exists())
    }

    /// The tables of the configuration. `channels` contains names and ids.
    pub(super) fn text(&self, channels: &[(String, String)]) -> String {
        let quoted = |text: &str| toml_edit::Value::from(text).to_string();
        let names: Vec<_> = channels.iter().map(|(name, _)| quoted(name)).collect();
        let (listen, file) = (quoted(&self.listen), quoted(&self.token_file.display().to_string()));
        format!(
            "\n# Applications read the events over HTTP. `channeld schema feed` describes the calls.\n\
             [feed]\nlisten = {listen}\nsink = \"events\"\n\n\
             # An application. Each application has its own name, token and channels.\n\
             [feed.consumers.{CONSUMER}]\ntoken_file = {file}\nchannels = [{}]\n",
            names.join(", ")
        )
    }

    /// A command that reads the first events of a channel. The token is not among the arguments of a program, because every user
    /// of the machine can read them.
    pub(super) fn look(&self, channel: &str) -> String {
        let path = format!("/v1/channels/{channel}/events?limit=3&wait=30s");
        if let Some(socket) = self.listen.strip_prefix("unix:") {
            return format!("curl --unix-socket {} 'http://feed{path}'", shell_word(socket));
        }
        let (file, listen) = (shell_word(&self.token_file.display().to_string()), &self.listen);
        format!("echo \"Authorization: Bearer $(cat {file})\" | curl -H @- 'http://{listen}{path}'")
    }
}

/// Asks whether a feed is wanted, and returns its address. Without a terminal, no feed is wanted.
fn ask() -> Result<Option<String>, Stop> {
    loop {
        let answer = prompt::ask_or("Let applications read the events over HTTP, from a feed: yes, no", "no")?;
        let listen = match &*answer.to_lowercase() {
            "no" | "n" => return Ok(None),
            "yes" | "y" => LISTEN,
            _ => &answer,
        };
        match check_address(listen) {
            Ok(()) => return Ok(Some(listen.to_owned())),
            Err(failure) => anstream::eprintln!("{}", failure_for_stderr("", &failure)),
        }
    }
}

/// Checks that a feed could listen on this address. The address of a socket is checked later.
fn check_address(listen: &str) -> Result<(), String> {
    if listen.starts_with("unix:/") {
        return Ok(());
    }
    let address: SocketAddr =
        listen.parse().map_err(|_| format!("answer yes, no, or an address such as {LISTEN} or unix:/run/feed.sock"))?;
    TcpListener::bind(address)
        .map(drop)
        .map_err(|error| format!("cannot listen on {address}: {error}; answer with another address, or no"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_another_one() {
        let (one, other) = (new_token(), new_token());
        assert_ne!(one, other);
        assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    }

    #[test]
    fn the_token_is_no_argument_of_the_printed_command() {
        let feed = |listen: &str| Feed { listen: listen.to_owned(), token_file: "/etc/feed-token".into() };
        let command = feed(LISTEN).look("settlements");
        let (token, curl) = command.split_once(" | ").unwrap();
        assert_eq!(token, "echo \"Authorization: Bearer $(cat /etc/feed-token)\"");
        assert_eq!(curl, "curl -H @- 'http://127.0.0.1:9465/v1/channels/settlements/events?limit=3&wait=30s'");
        let spaced = Feed { listen: LISTEN.to_owned(), token_file: "/my files/feed-token".into() }.look("c0");
        assert!(spaced.contains("$(cat '/my files/feed-token')"), "{spaced}");
        let local = feed("unix:/my files/feed.sock").look("c0");
        assert!(local.starts_with("curl --unix-socket '/my files/feed.sock' 'http://feed/v1/"), "{local}");
        let local = feed("unix:/run/channeld/feed.sock").look("settlements");
        assert!(local.starts_with("curl --unix-socket /run/channeld/feed.sock 'http://feed/v1/"), "{local}");
    }

    #[test]
    fn the_address_of_a_feed_is_not_a_file() {
        for address in ["127.0.0.1:19466", "[::1]:9465", "unix:/run/feed.sock"] {
            let refused = check_file(Path::new(address)).unwrap_err().to_string();
            assert!(refused.contains(&format!("write --feed={address}")), "{refused}");
        }
        for file in ["channeld.toml", "/etc/channeld/channeld.toml", "9465"] {
            assert!(check_file(Path::new(file)).is_ok(), "{file}");
        }
    }

    #[test]
    fn an_address_that_is_in_use_is_noticed_at_once() {
        let used = TcpListener::bind("127.0.0.1:0").unwrap();
        let used = used.local_addr().unwrap().to_string();
        assert!(check_address(&used).unwrap_err().contains(&format!("cannot listen on {used}: ")));
        assert!(check_address("perhaps").unwrap_err().starts_with("answer yes, no, or an address"));
        assert!(check_address("127.0.0.1:0").is_ok() && check_address("unix:/run/channeld/feed.sock").is_ok());
    }

    #[test]
    fn only_a_table_has_a_feed() {
        for kind in ["sqlite", "postgres"] {
            assert!(check_sink(kind).is_ok());
        }
        for kind in ["file", "stdout", "webhook", "nats", "kafka"] {
            assert!(check_sink(kind).unwrap_err().to_string().contains("use --sink sqlite"), "{kind}");
        }
    }
}
