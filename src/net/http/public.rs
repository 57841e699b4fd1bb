//! Public addresses, and a name lookup that refuses all other addresses.
//!
//! # Invariants
//!
//! * **The client connects to the checked addresses.** If a name resolves to another address a moment later, that
//!   address is not used.
//! * **One private address is enough.** A name is refused if any of its addresses is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use std::vec;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::SetupError;

/// An address that must not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is not a public address, and allow_private is false")]
pub struct NotPublic {
    address: IpAddr,
}

/// Multicast, and all networks that are not globally reachable according to IANA's registries of special-purpose addresses
/// (RFC 6890).
static PRIVATE: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    let nets = [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        // Azure's metadata service, which looks public. Other networks in this list cover the metadata services of other
        // clouds.
        "168.63.129.16/32",
        // Unspecified, loopback, and the deprecated IPv4-compatible addresses (RFC 4291).
        "::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/9",
        "ff00::/8",
    ];
    nets.map(|net| net.parse().expect("these are networks")).into()
});

fn check(address: IpAddr) -> Result<(), NotPublic> {
    let end = match address {
        IpAddr::V6(address) => inner_v4(address).map_or(address.into(), IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    if PRIVATE.iter().any(|net| net.contains(&end)) { Err(NotPublic { address }) } else { Ok(()) }
}

/// The IPv4 address at which packets to an IPv6 address arrive, if any.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        // Translated to IPv4 on the way (RFC 6052), or tunneled to an IPv4 address (RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => address.to_ipv4_mapped(),
    }
}

/// Checks a URL that contains an address instead of a name. These URLs need no lookup, so the resolver never sees them.
///
/// # Errors
/// [`NotPublic`] if the address is not public.
pub fn check_public(url: &Url) -> Result<(), NotPublic> {
    match url.host() {
        Some(Host::Ipv4(address)) => check(address.into()),
        Some(Host::Ipv6(address)) => check(address.into()),
        Some(Host::Domain(_)) | None => Ok(()),
    }
}

#[derive(Debug)]
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move { Ok(Box::new(lookup(name.as_str()).await?) as Addrs) })
    }
}

/// Looks up the addresses of a name.
///
/// # Errors
/// If the lookup fails, or if an address is not public.
pub(super) async fn lookup(name: &str) -> Result<vec::IntoIter<SocketAddr>, SetupError> {
    let found: Vec<_> = tokio::net::lookup_host((name, 0)).await?.collect();
    found.iter().try_for_each(|found| check(found.ip()))?;
    Ok(found.into_iter())
}

#[cfg(test)]
mod tests;
