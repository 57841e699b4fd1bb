//! The names of the networks that the service publishes.

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

/// Returns the name of the network with this chain selector, if the network is published.
pub fn network_name(chain_selector: &str) -> Option<&'static str> {
    let chain_selector: u64 = chain_selector.parse().ok()?;
    PUBLISHED.iter().find(|(selector, _)| *selector == chain_selector).map(|(_, name)| *name)
}

/// Whether this is the name of a published network.
pub(super) fn is_published(name: &str) -> bool {
    PUBLISHED.iter().any(|(_, published)| *published == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_networks_have_names() {
        assert_eq!(network_name("16015286601757825753"), Some("Ethereum Sepolia"));
        assert_eq!((network_name("1"), network_name("-1"), network_name("")), (None, None, None));
        assert!(is_published("Base") && !is_published("base"));
    }
}
