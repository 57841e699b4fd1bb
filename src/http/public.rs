//! Which addresses are public, and a look-up of names that gives no others.
//!
//! # Invariants
//!
//! * **What is checked is what is connected to.** The addresses of one look-up are checked and handed to the connection:
//!   a name that means another address a moment later gains nothing.
//! * **One is enough.** A name of which a single address is not public is refused altogether.

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
    // Looks public: where a cloud tells a machine its own secrets. Those of the others are above, and below.
    v4([168, 63, 129, 16], 32),
];

const PRIVATE_V6: [Ipv6Net; 10] = [
    // Unspecified, loopback, and IPv4-compatible (RFC 4291), which nothing has a right to.
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
mod tests {
    use super::*;

    const PRIVATE: [&str; 44] = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "168.63.129.16",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.7",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fdff::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ];

    const PUBLIC: [&str; 12] = [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450:4001::1",
        "64:ff9b::808:808",
        "::ffff:8.8.8.8",
    ];

    #[test]
    fn private_addresses_are_known_in_every_form() {
        for (addresses, expected) in [(&PRIVATE[..], false), (&PUBLIC, true)] {
            for address in addresses {
                assert_eq!(check(address.parse().unwrap()).is_ok(), expected, "{address}");
            }
        }
    }

    #[test]
    fn an_address_in_a_url_is_known_however_it_is_written() {
        let hosts = ["127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "[::1]", "[::ffff:a00:1]", "169.254.169.254"];
        for host in hosts {
            let url = format!("http://{host}:8080/hook").parse().unwrap();
            assert!(Reach::PublicOnly.check(&url).is_err(), "{host}");
            assert!(Reach::Anything.check(&url).is_ok(), "{host}");
        }
        assert!(Reach::PublicOnly.check(&"https://93.184.216.34/".parse().unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_name_that_means_a_private_address_is_refused() {
        let Err(error) = PublicOnly.resolve("localhost".parse().unwrap()).await else { panic!("it is resolved") };
        assert!(error.downcast_ref::<NotPublic>().is_some(), "{error}");
    }
}
