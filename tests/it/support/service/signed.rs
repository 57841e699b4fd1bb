//! Events with signed content that a test chooses, from a network with one signer.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k256::ecdsa::SigningKey;
use proof::event::ChannelId;
use proof::verify::{Address, Hash, event_hash, keccak256, signed_digest, workflow_owner};
use uuid::Uuid;

use crate::support::{Scripted, Setup};

const ORGANISATION: &str = "org_of_a_test";

/// Serves a channel with these events, in this order, from offset 1.
pub(crate) async fn serving(events: Vec<String>) -> (Scripted, Setup) {
    let service = Scripted::answering(move |asked| {
        let from = usize::try_from(asked.offset.unwrap_or(0)).unwrap().min(events.len());
        let until = (from + asked.limit.unwrap_or(1)).min(events.len());
        let mut page: Vec<_> = events[from..until].to_vec();
        page.reverse();
        let mut body = String::new();
        write!(body, r#"{{"events":[{}],"has_more":{}}}"#, page.join(","), until < events.len()).unwrap();
        axum::response::IntoResponse::into_response(body)
    })
    .await;
    let setup = Setup::of(&service.base_url(), "key-of-a-test", &[ChannelId(Uuid::from_u128(1))])
        .with("verification.org_id", ORGANISATION)
        .with("verification.valid_signers", vec![address().to_string()])
        .with("verification.min_required_signatures", 1);
    (service, setup)
}

/// A `watcher.event` with a valid proof and this signed text.
pub(crate) fn signed(offset: i64, decoded: &str) -> String {
    let text = STANDARD.encode(decoded);
    let owner = workflow_owner(ORGANISATION, "1");
    let hash = event_hash(&text);
    let execution = keccak256([&offset.to_be_bytes()[..]]);
    let report = [
        &[1][..],
        &execution.0,
        &1_750_000_000_u32.to_be_bytes(),
        &1_u32.to_be_bytes(),
        &1_u32.to_be_bytes(),
        &[9; 32],
        b"0123456789",
        &owner.0,
        &[0, 1],
        &hash.0,
    ]
    .concat();
    let context = [3; 96];
    let signature = hex::encode(sign(&signed_digest(&report, &context)));
    let (report, context) = (hex::encode(report), hex::encode(context));
    let id = Uuid::from_u128(u128::try_from(offset).unwrap());
    format!(
        r#"{{"event_id":"{id}","headers":{{"type":"watcher.event","offset":{offset},"proofs":[{{"alg":"ecdsa-secp256k1","ocr_report":"0x{report}","ocr_context":"0x{context}","signatures":["0x{signature}"]}}]}},"payload":{{"watcher_id":"{id}","chain_selector":"1","timestamp":1750000000,"event_hash":"{hash}","verifiable_event":"{text}"}}}}"#
    )
}

fn key() -> SigningKey {
    SigningKey::from_slice(&[7; 32]).unwrap()
}

fn sign(digest: &Hash) -> [u8; 65] {
    let (signature, recovery) = key().sign_prehash_recoverable(&digest.0);
    let mut bytes = [0; 65];
    bytes[..64].copy_from_slice(&signature.to_bytes());
    bytes[64] = recovery.to_byte();
    bytes
}

fn address() -> Address {
    let point = key().verifying_key().to_sec1_point(false);
    let mut address = [0; 20];
    address.copy_from_slice(&keccak256([&point.as_bytes()[1..]]).0[12..]);
    Address(address)
}
