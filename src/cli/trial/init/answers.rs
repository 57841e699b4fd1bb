//! All values of the written configuration, and its text.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::feed::Feed;
use super::sink::Sink;
use crate::cli::context::CommandError;
use crate::config::{Config, ConfigText};

/// The API key.
#[derive(Clone)]
pub(super) enum Key {
    /// It is in the file already.
    File,
    /// It will be written to the file at the end.
    New(String),
}

/// All values that the written configuration contains.
#[derive(Clone)]
pub(super) struct ConfigAnswers {
    pub(super) base_url: String,
    pub(super) key_file: PathBuf,
    pub(super) key: Key,
    /// The key that names the owner, and its value.
    pub(super) owner: (&'static str, String),
    pub(super) signers: Vec<String>,
    pub(super) required: Option<u64>,
    /// Names and ids.
    pub(super) channels: Vec<(String, String)>,
    pub(super) sink: Sink,
    pub(super) feed: Option<Feed>,
    /// The address of the admin listener, if it is not the default address.
    pub(super) admin: Option<SocketAddr>,
    pub(super) state: PathBuf,
}

/// Loads the configuration from this text and the environment, as if the file already existed.
pub(super) fn load(file: &Path, text: &str) -> Result<Config, CommandError> {
    let text = ConfigText::written(file, text.to_owned());
    Ok(Config::of(text, std::env::vars_os())?.config)
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

impl ConfigAnswers {
    /// The text for checks before the files are written. It contains a new API key itself, because the key's file does not exist
    /// yet. It contains no feed.
    pub(super) fn text_to_check(&self) -> String {
        match &self.key {
            Key::File => self.text_with(&self.key_file_line(), None),
            Key::New(key) => self.text_with(&format!("api_key = {}", quoted(key)), None),
        }
    }

    /// The text that is written.
    pub(super) fn text(&self) -> String {
        self.text_with(&self.key_file_line(), self.feed.as_ref())
    }

    fn key_file_line(&self) -> String {
        format!("api_key_file = {}", quoted(&self.key_file.display().to_string()))
    }

    fn text_with(&self, key: &str, feed: Option<&Feed>) -> String {
        let Self { base_url, owner: (owner_key, owner), signers, required, channels, sink, state, .. } = self;
        let mut text = format!(
            r"# Made by `channeld init`. Every other key has its default: see `man channeld.toml`.

[api]
base_url = {}
{key}

[verification]
# The owner of the events. Events of other owners are rejected.
{owner_key} = {}
",
            quoted(base_url),
            quoted(owner)
        );
        if !signers.is_empty() {
            let signers: Vec<_> = signers.iter().map(|signer| format!("    {},\n", quoted(signer))).collect();
            text.extend(["valid_signers = [\n", &signers.concat(), "]\n"]);
            text.extend(required.map(|required| format!("min_required_signatures = {required}\n")));
        }
        text += "\n[state]\n# The progress of every channel and sink. Keep it on a disk that survives a restart.\n";
        text.extend(["path = ", &quoted(&state.display().to_string()), "\n"]);
        if let Some(admin) = self.admin {
            text += "\n[admin]\n# Health and metrics. The default port was in use when this file was written.\n";
            text.extend(["listen = ", &quoted(&admin.to_string()), "\n"]);
        }
        for (name, id) in channels {
            text.extend(["\n[channels.", name, "]\nid = ", &quoted(id), "\nsinks = [\"events\"]\n"]);
            text += "# Used only while no cursor is recorded: \"earliest\", \"latest\", an offset, or a time such as \"7d\".\nstart = \"earliest\"\n";
        }
        let feed = feed.map(|feed| feed.text(channels)).unwrap_or_default();
        text + "\n[sinks.events]\n" + &sink.lines() + &feed
    }
}
