//! `[console]`: the settings of `channeld console`. The daemon does not use them.

use std::collections::BTreeMap;

use crate::config::reading::values::http_url;
use crate::config::reading::{Reported, Section};

/// Reads `[console.explorers]`: the address of the block explorer of each network, without a slash at its end. The key is the
/// chain selector of the network.
pub(crate) fn explorers(root: &Section<'_>) -> Result<BTreeMap<u64, String>, Reported> {
    let console = root.section("console");
    // Reads the table, so that it is known.
    console.names()?;
    let table = console.section("explorers");
    let mut explorers = BTreeMap::new();
    for key in table.names()? {
        let requirement = "must be the chain selector of a network, such as \"16015286601757825753\"";
        let selector = key.parse().map_err(|_| table.wrong(&key, requirement.to_owned()));
        if let (Ok(selector), Ok(Some(address))) = (selector, table.quoted(&key, base)) {
            explorers.insert(selector, address);
        }
    }
    Ok(explorers)
}

fn base(text: &str) -> Result<String, String> {
    let url = http_url(text)?;
    if url.query().is_some() {
        return Err("must not have a query; remove everything from the ?".to_owned());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}
