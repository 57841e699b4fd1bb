//! The workflow owner of an organization. It binds an event to its owner.

use super::hash::{Address, Hash, keccak256};

const DOMAIN: &[u8] = b"Chainlink Runtime Environment GenerateWorkflowOwnerAddress\0";
const PADDING: [u8; 84] = [0; 84];

/// An empty tenant id means this tenant.
const DEFAULT_TENANT: &str = "1";

/// Derives the owner that reports name for an organization's workflows (spec/wire.md, "Workflow owner").
pub fn workflow_owner(org_id: &str, tenant_id: &str) -> Address {
    let prefix = if tenant_id.is_empty() { DEFAULT_TENANT } else { tenant_id };
    let Hash(hash) = keccak256([
        &[0xff][..],
        &PADDING,
        DOMAIN,
        &length(prefix),
        prefix.as_bytes(),
        &length(org_id),
        org_id.as_bytes(),
    ]);
    let mut owner = [0; 20];
    owner.copy_from_slice(&hash[..20]);
    Address(owner)
}

fn length(text: &str) -> [u8; 8] {
    (text.len() as u64).to_be_bytes()
}
