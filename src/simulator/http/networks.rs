//! The networks that the service supports (spec/wire.md, "Networks").

use serde::Serialize;

use crate::event::content::json;

#[derive(Serialize)]
struct Networks {
    networks: [Network; 10],
}

#[derive(Clone, Copy, Serialize)]
struct Network {
    name: &'static str,
    chain_selector: &'static str,
    chain_id: &'static str,
    chain_family: &'static str,
    r#type: &'static str,
    default_confidence_level: &'static str,
}

const MAINNET: &str = "mainnet";
const TESTNET: &str = "testnet";

const NETWORKS: [Network; 10] = [
    network("Ethereum Mainnet", "1", "5009297550715157269", MAINNET),
    network("Arbitrum One", "42161", "4949039107694359620", MAINNET),
    network("Avalanche", "43114", "6433500567565415381", MAINNET),
    network("Polygon", "137", "4051577828743386545", MAINNET),
    network("Base", "8453", "15971525489660198786", MAINNET),
    network("Ethereum Sepolia", "11155111", "16015286601757825753", TESTNET),
    network("Arbitrum Sepolia", "421614", "3478487238524512106", TESTNET),
    network("Avalanche Fuji", "43113", "14767482510784806043", TESTNET),
    network("Polygon Amoy", "80002", "16281711391670634445", TESTNET),
    network("Base Sepolia", "84532", "10344971235874465080", TESTNET),
];

const fn network(
    name: &'static str,
    chain_id: &'static str,
    chain_selector: &'static str,
    r#type: &'static str,
) -> Network {
    Network { name, chain_selector, chain_id, chain_family: "evm", r#type, default_confidence_level: "finalized" }
}

/// Returns the list of all networks.
pub(crate) fn all() -> String {
    json(&Networks { networks: NETWORKS })
}
