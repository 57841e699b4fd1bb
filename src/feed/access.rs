//! Decides who sent a request, and which channels and consumers the client may use.
//!
//! # Invariants
//!
//! * **Every request needs a token,** except on a Unix socket, to which only its owner can connect.
//! * **A token is checked for every request and after every wait,** with the current settings. A token that was removed
//!   therefore ends the streams that use it.
//! * **No token is stored or logged.** Only hashes are compared.

use std::sync::Arc;

use axum::http::{HeaderMap, header};

use crate::problem::{Problem, ProblemKind};
use crate::settings::{Consumer, FeedChannel, FeedSettings, TokenHash};

/// The client that sent a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Visitor {
    /// A client with a token.
    Token(TokenHash),
    /// A client without a token, on the Unix socket.
    Local,
}

impl Visitor {
    /// Reads the token of a request. Does not check it.
    pub(crate) fn of(headers: &HeaderMap, is_local: bool) -> Result<Self, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let value = match (values.next(), values.next()) {
            (None, _) if is_local => return Ok(Self::Local),
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        };
        let token =
            value.and_then(|value| value.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        token.map(|(_, token)| Self::Token(TokenHash::of(token.trim_matches(' ')))).ok_or_else(no_token)
    }

    /// The consumer to whom the token belongs. `None` without a token.
    pub(crate) fn consumer<'s>(&self, settings: &'s FeedSettings) -> Result<Option<&'s Consumer>, Problem> {
        match self {
            Self::Token(token) => settings.consumer_of(token).map(Some).ok_or_else(no_token),
            Self::Local => Ok(None),
        }
    }

    /// Returns the channel with this name, if the client may read it.
    pub(crate) fn channel<'s>(&self, settings: &'s FeedSettings, name: &str) -> Result<&'s FeedChannel, Problem> {
        let consumer = self.consumer(settings)?;
        let unknown =
            || Problem::new(ProblemKind::NotFound, "the feed has no channel with this name: see /v1/channels");
        let channel = settings.channel(name).ok_or_else(unknown)?;
        if consumer.is_none_or(|consumer| consumer.channels.contains(&channel.name)) {
            return Ok(channel);
        }
        Err(Problem::new(ProblemKind::NotAllowed, "the token may not read this channel: see /v1/channels"))
    }

    /// Checks that a client may still read a channel, after a wait. A reload can give the name to another channel, whose positions
    /// are different.
    pub(crate) fn check(&self, settings: &FeedSettings, channel: &FeedChannel) -> Result<(), Problem> {
        if self.channel(settings, &channel.name)?.id == channel.id {
            return Ok(());
        }
        Err(Problem::invalid(
            "after a reload of the configuration, this name belongs to another channel, which has other positions: read it from its beginning",
        ))
    }

    /// Returns all channels that the client may read.
    pub(crate) fn channels(&self, settings: &FeedSettings) -> Result<Vec<FeedChannel>, Problem> {
        let consumer = self.consumer(settings)?;
        let may_read =
            |channel: &&FeedChannel| consumer.is_none_or(|consumer| consumer.channels.contains(&channel.name));
        Ok(settings.channels.iter().filter(may_read).cloned().collect())
    }

    /// Returns the name of a consumer whose cursor the client may use: its own, or any on the Unix socket.
    pub(crate) fn acts_as(&self, settings: &FeedSettings, name: &str) -> Result<Arc<str>, Problem> {
        match self.consumer(settings)? {
            Some(own) if &*own.name == name => Ok(own.name.clone()),
            Some(_) => Err(Problem::new(ProblemKind::NotAllowed, "the token belongs to another consumer")),
            None => {
                let found = settings.consumers.iter().find(|consumer| &*consumer.name == name);
                let unknown = || Problem::new(ProblemKind::NotFound, "no consumer with this name is configured");
                Ok(found.ok_or_else(unknown)?.name.clone())
            }
        }
    }
}

fn no_token() -> Problem {
    Problem::new(ProblemKind::NoToken, "send a valid token of a consumer, as in: Authorization: Bearer TOKEN")
}
