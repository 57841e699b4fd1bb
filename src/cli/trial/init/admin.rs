//! The address for health and metrics. Another program, such as a second channeld, may already use the default address on this
//! machine, and the new daemon would then not start.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use super::answers::{ConfigAnswers, load};
use crate::cli::context::CommandError;

/// The number of ports that are tried.
const TRIED: u16 = 100;

impl ConfigAnswers {
    /// Chooses another address for the admin listener if the default address is in use on this machine. Returns a sentence for
    /// the operator about a used address. If the file exists, the daemon that it configures can be the user of the address, so
    /// nothing is changed.
    pub(super) fn avoid_used_address(&mut self, file: &Path) -> Result<Option<String>, CommandError> {
        // The environment can set another address, or turn the listener off.
        let configured = |answers: &Self| load(file, &answers.text_to_check()).map(|config| config.listen);
        let Some(used) = configured(self)?.filter(|address| !file.exists() && is_used(*address)) else {
            return Ok(None);
        };
        let feed = self.feed.as_ref().and_then(|feed| feed.listen().parse().ok());
        self.admin = next_free(used, feed);
        Ok(Some(match self.admin {
            Some(chosen) if configured(self)? == Some(chosen) => format!(
                "{used} is in use on this machine, perhaps by another channeld. Health and metrics get the address {chosen} (admin.listen)."
            ),
            _ => {
                self.admin = None;
                format!("{used} is in use on this machine. Set another admin.listen before you run channeld.")
            }
        }))
    }
}

fn is_used(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

/// The first free address with a higher port, except the address of the feed.
fn next_free(used: SocketAddr, feed: Option<SocketAddr>) -> Option<SocketAddr> {
    let ports = (used.port()..=u16::MAX).skip(1).take(usize::from(TRIED));
    let mut addresses = ports.map(|port| SocketAddr::new(used.ip(), port));
    addresses.find(|address| {
        let is_default_of_feed = address.port() == super::feed::LISTEN_PORT;
        !is_default_of_feed
            && feed.is_none_or(|feed| feed.port() != address.port())
            && TcpListener::bind(address).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_address_is_free_and_not_the_address_of_the_feed() {
        let used = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = used.local_addr().unwrap();
        assert!(is_used(address));
        // Another test can use any port.
        if let Some(next) = next_free(address, None) {
            assert!(next.port() > address.port() && next.ip() == address.ip());
            assert_ne!(next_free(address, Some(next)), Some(next));
        }
        assert_eq!(next_free(SocketAddr::new(address.ip(), u16::MAX), None), None);
    }
}
