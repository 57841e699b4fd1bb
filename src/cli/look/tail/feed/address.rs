//! The address of a feed.

use std::fmt;
use std::path::PathBuf;

use url::{Host, Url};

const EXAMPLES: &str = "must be the address of a feed, such as http://127.0.0.1:9465, https://events.internal:9465 or \
                        unix:/run/channeld/feed.sock";

/// The address of a feed: a URL, or the path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::look::tail) struct FeedAddress {
    /// The URL before `/v1`.
    url: Url,
    socket: Option<PathBuf>,
}

impl FeedAddress {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            // The server has no use for the name of the host.
            let url = "http://feed".parse().expect("it is a URL");
            return if path.starts_with('/') {
                Ok(Self { url, socket: Some(path.into()) })
            } else {
                Err("must have an absolute path after unix:, such as unix:/run/channeld/feed.sock".to_owned())
            };
        }
        let url: Url = text.parse().map_err(|_| EXAMPLES)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(EXAMPLES.to_owned());
        }
        let is_plain = url.username().is_empty() && url.password().is_none();
        if !is_plain || url.query().is_some() || url.fragment().is_some() {
            return Err(
                "must have no user, no password and no query; the token is in the file of --token-file".to_owned()
            );
        }
        Ok(Self { url, socket: None })
    }

    /// The URL of a path, which is given by its parts.
    pub(super) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.url.clone();
        url.path_segments_mut().expect("an http address has a path").pop_if_empty().push("v1").extend(path);
        url
    }

    pub(super) fn socket(&self) -> Option<&PathBuf> {
        self.socket.as_ref()
    }

    /// Whether nothing leaves this machine.
    pub(super) fn is_local(&self) -> bool {
        self.socket.is_some()
            || match self.url.host() {
                Some(Host::Ipv4(address)) => address.is_loopback(),
                Some(Host::Ipv6(address)) => address.is_loopback(),
                Some(Host::Domain(name)) => name == "localhost",
                None => false,
            }
    }

    /// Whether another machine could read a request on its way.
    pub(super) fn is_readable_in_transit(&self) -> bool {
        self.url.scheme() == "http" && !self.is_local()
    }
}

impl fmt::Display for FeedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "unix:{}", path.display()),
            None => f.write_str(self.url.as_str().trim_end_matches('/')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_a_socket() {
        for (text, channels, is_local, is_readable) in [
            ("http://127.0.0.1:9465", "http://127.0.0.1:9465/v1/channels", true, false),
            ("http://[::1]:9465/", "http://[::1]:9465/v1/channels", true, false),
            ("http://localhost:9465", "http://localhost:9465/v1/channels", true, false),
            ("http://events.internal", "http://events.internal/v1/channels", false, true),
            ("https://events.internal/feed/", "https://events.internal/feed/v1/channels", false, false),
            ("unix:/run/channeld/feed.sock", "http://feed/v1/channels", true, false),
        ] {
            let address = FeedAddress::parse(text).unwrap();
            assert_eq!(address.url(&["channels"]).as_str(), channels);
            assert_eq!((address.is_local(), address.is_readable_in_transit()), (is_local, is_readable), "{text}");
            assert_eq!(address.to_string(), text.trim_end_matches('/'));
        }
        let odd = FeedAddress::parse("http://127.0.0.1").unwrap().url(&["channels", "a/b?c", "events"]);
        assert_eq!(odd.as_str(), "http://127.0.0.1/v1/channels/a%2Fb%3Fc/events");
    }

    #[test]
    fn an_address_with_a_secret_and_other_texts_are_refused() {
        for (text, why) in [
            ("127.0.0.1:9465", "must be the address of a feed"),
            ("ftp://127.0.0.1", "must be the address of a feed"),
            ("", "must be the address of a feed"),
            ("unix:feed.sock", "absolute path"),
            ("http://user:secret@127.0.0.1", "--token-file"),
            ("http://127.0.0.1/?token=secret", "--token-file"),
        ] {
            let error = FeedAddress::parse(text).unwrap_err();
            assert!(error.contains(why) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
