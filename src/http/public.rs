//! Public addresses, and a look-up of names that refuses all others.
//!
//! # Invariants
//!
//! * **The checked addresses are connected to.** A name that resolves to another address a moment later gains nothing.
//! * **One is enough.** A name is refused where one of its addresses is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Which addresses may be connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All.
    #[default]
    Anything,
    /// Those of the public internet.
    PublicOnly,
}

/// An address that may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is no public address, and allow_private is false")]
pub struct NotPublic {
    address: IpAddr,
}

/// What is not globally reachable by IANA's registries of special-purpose addresses (RFC 6890), and multicast.
const PRIVATE_V4: [Ipv4Net; 16] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
    // Azure's metadata service, which looks public. Those of other clouds are above and below.
    v4([168, 63, 129, 16], 32),
];

const PRIVATE_V6: [Ipv6Net; 10] = [
    // Unspecified, loopback, and IPv4-compatible (RFC 4291), which is deprecated.
    v6([0, 0, 0], 96),
    v6([0x64, 0xff9b, 1], 48),
    v6([0x100, 0, 0], 64),
    v6([0x2001, 0, 0], 23),
    v6([0x2001, 0xdb8, 0], 32),
    v6([0x3fff, 0, 0], 20),
    v6([0x5f00, 0, 0], 16),
    v6([0xfc00, 0, 0], 7),
    v6([0xfe80, 0, 0], 9),
    v6([0xff00, 0, 0], 8),
];

/// Translated to IPv4 on the way (RFC 6052).
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0], 96);

/// Tunnelled to an IPv4 address (RFC 3056).
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0], 16);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(first: [u16; 3], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first[0], first[1], first[2], 0, 0, 0, 0, 0), prefix)
}

fn check(address: IpAddr) -> Result<(), NotPublic> {
    let public = match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    };
    if public { Ok(()) } else { Err(NotPublic { address }) }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !PRIVATE_V4.iter().any(|net| net.contains(&address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    match inner_v4(address) {
        Some(inner) => is_public_v4(inner),
        None => !PRIVATE_V6.iter().any(|net| net.contains(&address)),
    }
}

/// The IPv4 address that a packet ends at.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let from = |at: usize| Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]);
    if NAT64.contains(&address) {
        Some(from(12))
    } else if SIX_TO_FOUR.contains(&address) {
        Some(from(2))
    } else {
        address.to_ipv4_mapped()
    }
}

impl Reach {
    /// Checks a URL that has an address instead of a name: none is looked up for it.
    ///
    /// # Errors
    /// [`NotPublic`], where that address may not be reached.
    pub fn check(self, url: &Url) -> Result<(), NotPublic> {
        match (self, url.host()) {
            (Self::PublicOnly, Some(Host::Ipv4(address))) => check(address.into()),
            (Self::PublicOnly, Some(Host::Ipv6(address))) => check(address.into()),
            _ => Ok(()),
        }
    }
}

/// Looks names up, and refuses those that are not public.
#[derive(Debug)]
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            found.iter().try_for_each(|found| check(found.ip()))?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
