//! The names of networks: the published names, which are compiled in, and the names that the service has listed since the start of
//! the process.
//!
//! # Invariants
//!
//! * **The compiled names take precedence.** They do not depend on the service's answer, so that the record of an event stays the same.
//! * **No listed name is a published one.** The service cannot make one network look like another.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// The chain selector and the name of each network.
const PUBLISHED: [(u64, &str); 10] = [
    (5_009_297_550_715_157_269, "Ethereum Mainnet"),
    (4_949_039_107_694_359_620, "Arbitrum One"),
    (6_433_500_567_565_415_381, "Avalanche"),
    (4_051_577_828_743_386_545, "Polygon"),
    (15_971_525_489_660_198_786, "Base"),
    (16_015_286_601_757_825_753, "Ethereum Sepolia"),
    (3_478_487_238_524_512_106, "Arbitrum Sepolia"),
    (14_767_482_510_784_806_043, "Avalanche Fuji"),
    (16_281_711_391_670_634_445, "Polygon Amoy"),
    (10_344_971_235_874_465_080, "Base Sepolia"),
];

/// The largest number of listed names. They are never freed.
const MAX_LISTED: usize = 1_000;

/// The longest listed name, in characters.
const MAX_NAME: usize = 64;

/// The networks that the service has listed. They are the same for the whole process, like the table above, so they are not passed
/// through every function that makes a record. The first name of a network stays until the process ends.
static LISTED: RwLock<BTreeMap<u64, &'static str>> = RwLock::new(BTreeMap::new());

/// Returns the name of the network with this chain selector, if it is known.
pub fn network_name(chain_selector: &str) -> Option<&'static str> {
    let chain_selector: u64 = chain_selector.parse().ok()?;
    published_name(chain_selector)
        .or_else(|| LISTED.read().unwrap_or_else(PoisonError::into_inner).get(&chain_selector).copied())
}

fn published_name(chain_selector: u64) -> Option<&'static str> {
    PUBLISHED.iter().find(|(selector, _)| *selector == chain_selector).map(|(_, name)| *name)
}

/// Whether this is the name of a published network.
pub(super) fn is_published(name: &str) -> bool {
    PUBLISHED.iter().any(|(_, published)| *published == name)
}

/// Learns the names of networks that the service lists, by their chain selectors.
pub fn learn_networks<'a>(listed: impl IntoIterator<Item = (u64, &'a str)>) {
    let mut known = LISTED.write().unwrap_or_else(PoisonError::into_inner);
    for (chain_selector, name) in listed {
        let is_shown_as_it_is = crate::printable(name) == name && !name.trim().is_empty();
        let is_legal = is_shown_as_it_is && name.chars().count() <= MAX_NAME && !is_published(name.trim());
        if is_legal && published_name(chain_selector).is_none() && known.len() < MAX_LISTED {
            known.entry(chain_selector).or_insert_with(|| {
                let leaked: &'static str = Box::leak(Box::<str>::from(name.trim()));
                leaked
            });
        }
    }
}

/// Returns the names that were learned, by their chain selectors.
pub fn learned_networks() -> BTreeMap<u64, &'static str> {
    LISTED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::notice;

    #[test]
    fn published_networks_have_names() {
        for (chain_selector, name) in [
            ("5009297550715157269", "Ethereum Mainnet"),
            ("4949039107694359620", "Arbitrum One"),
            ("6433500567565415381", "Avalanche"),
            ("4051577828743386545", "Polygon"),
            ("15971525489660198786", "Base"),
            ("16015286601757825753", "Ethereum Sepolia"),
            ("3478487238524512106", "Arbitrum Sepolia"),
            ("14767482510784806043", "Avalanche Fuji"),
            ("16281711391670634445", "Polygon Amoy"),
            ("10344971235874465080", "Base Sepolia"),
        ] {
            assert_eq!(network_name(chain_selector), Some(name));
        }
        assert_eq!((network_name("1"), network_name("-1"), network_name("")), (None, None, None));
        assert!(is_published("Base") && !is_published("base"));
    }

    #[test]
    fn a_listed_network_has_its_name_in_the_record_and_none_of_a_published_one() {
        let long = "x".repeat(MAX_NAME + 1);
        learn_networks([
            (900_001, "Local Chain"),
            (900_002, "Base"),
            (900_003, "a\nb"),
            (900_004, " "),
            (900_005, long.as_str()),
            (16_015_286_601_757_825_753, "Ethereum Mainnet 2"),
        ]);
        learn_networks([(900_001, "Renamed")]);
        let named = |selector: &str| {
            let payload = format!(r#"{{"status":"failed","chain_selector":"{selector}"}}"#);
            notice("wallet.status", &payload).network
        };
        assert_eq!(named("900001"), Some("Local Chain"));
        assert_eq!(["900002", "900003", "900004", "900005"].map(named), [None; 4]);
        assert_eq!(named("16015286601757825753"), Some("Ethereum Sepolia"));
        assert_eq!(learned_networks().get(&900_001), Some(&"Local Chain"));
    }
}
