//! The oracle network: signers made up from the seed, and the proofs that they sign.
//!
//! # Invariants
//!
//! * **Real proofs.** A report has the layout of spec/wire.md, "Verification". It has exactly the required number
//!   of signatures, by the signers that [`Signing`] selects.
//! * **Deterministic.** Nonces are derived from the key and the digest, so the same event always gets the same proof.

use std::sync::OnceLock;

use k256::ecdsa::SigningKey;
use rand::Rng;
use rand::seq::index;

use super::kind::Tampering;
use super::roster::WatcherConfidence;
use crate::options::{Options, Signing};
use crate::random::{Purpose, draw};
use proof::verify::{Address, Hash, keccak256, signed_digest, workflow_owner};

/// The organization's tenant.
const TENANT: &str = "1";

const DON_ID: u32 = 1;
const DON_CONFIG_VERSION: u32 = 1;
const REPORT_ID: [u8; 2] = [0, 1];

/// One byte less than the shortest valid report.
const TOO_SHORT: usize = proof::verify::OCR_REPORT_LENGTH - 1;

/// The network, and strangers who do not belong to it.
pub(crate) struct Network {
    seed: u64,
    signing: Signing,
    /// The confidence of the watchers.
    pub(crate) confidence: WatcherConfidence,
    required: usize,
    signers: Vec<SigningKey>,
    strangers: Vec<SigningKey>,
    owner: Address,
    other_owner: Address,
    config_digest: [u8; 32],
    workflow_name: [u8; 10],
    /// Whether a signed log states its confidence.
    pub(crate) has_confidence: bool,
    /// Signatures of other data, for proofs whose signatures no client checks. They are computed once, because signing
    /// takes most of the time of making a record.
    unproved: OnceLock<Vec<[u8; 65]>>,
}

/// The subject of a proof.
#[derive(Clone, Copy)]
pub(crate) struct ProofSubject {
    pub(crate) event_hash: Hash,
    /// The time in Unix seconds.
    pub(crate) timestamp: i64,
    pub(crate) workflow_id: [u8; 32],
    pub(crate) execution_id: [u8; 32],
    /// The round in the report's context. It determines which signers sign.
    pub(crate) round: u64,
    /// Whether the signatures may be signatures of other data.
    pub(crate) is_unproved: bool,
}

impl Network {
    pub(crate) fn new(options: &Options) -> Self {
        let Options { seed, signing, confidence, required, org_id, .. } = options;
        let (seed, signers) = (*seed, options.signers as u64);
        let mut rng = draw(seed, Purpose::Network, 0, 0);
        let mut config_digest: [u8; 32] = rng.random();
        config_digest[..2].copy_from_slice(&[0x00, 0x0e]);
        let mut workflow_name = [0; 10];
        workflow_name.copy_from_slice(hex::encode(rng.random::<[u8; 5]>()).as_bytes());
        Self {
            seed,
            signing: *signing,
            confidence: *confidence,
            required: *required,
            signers: (0..signers).map(|number| key(seed, Purpose::Signer, number)).collect(),
            strangers: (0..signers).map(|number| key(seed, Purpose::Stranger, number)).collect(),
            owner: workflow_owner(org_id, TENANT),
            other_owner: workflow_owner(&format!("{org_id}-not"), TENANT),
            config_digest,
            workflow_name,
            has_confidence: options.api_version.has_confidence(),
            unproved: OnceLock::new(),
        }
    }

    /// Returns the signers' addresses in the network's order.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.signers.iter().map(address_of).collect()
    }

    /// Returns the owner of the workflows that the events come from.
    pub(crate) fn owner(&self) -> Address {
        self.owner
    }

    /// Returns the items of `headers.proofs` for a subject, as JSON without the brackets.
    pub(crate) fn proofs(&self, subject: &ProofSubject, tampering: Option<Tampering>) -> String {
        let owner = if tampering == Some(Tampering::OtherOwner) { self.other_owner } else { self.owner };
        let mut subject = *subject;
        if tampering == Some(Tampering::OtherEvent) {
            subject.event_hash = keccak256([&subject.event_hash.0[..]]);
        }
        let mut report = self.report(&subject, owner);
        if tampering == Some(Tampering::ReportTruncated) {
            report.truncate(TOO_SHORT);
        }
        let mut proof = self.proof(&report, &subject, tampering);
        if tampering == Some(Tampering::TwoProofs) {
            subject.round += 1;
            proof = format!("{proof},{}", self.proof(&report, &subject, None));
        }
        proof
    }

    fn report(&self, subject: &ProofSubject, owner: Address) -> Vec<u8> {
        let timestamp = u32::try_from(subject.timestamp).unwrap_or_default();
        [
            &[1][..],
            &subject.execution_id,
            &timestamp.to_be_bytes(),
            &DON_ID.to_be_bytes(),
            &DON_CONFIG_VERSION.to_be_bytes(),
            &subject.workflow_id,
            &self.workflow_name,
            &owner.0,
            &REPORT_ID,
            &subject.event_hash.0,
        ]
        .concat()
    }

    /// Returns the report's context: the configuration's digest, the epoch and round, and an unused extra hash.
    fn context(&self, round: u64) -> [u8; 96] {
        let mut context = [0; 96];
        context[..32].copy_from_slice(&self.config_digest);
        context[55..63].copy_from_slice(&(round / 256 + 1).to_be_bytes());
        context[63] = round.to_le_bytes()[0];
        context
    }

    fn proof(&self, report: &[u8], subject: &ProofSubject, tampering: Option<Tampering>) -> String {
        let &ProofSubject { round, is_unproved, .. } = subject;
        let context = self.context(round);
        let digest = signed_digest(report, &context);
        let keys = if tampering == Some(Tampering::Strangers) { &self.strangers } else { &self.signers };
        let signed = |digest| self.quorum(round).into_iter().map(|at| sign(&keys[at], &digest)).collect();
        let mut signatures: Vec<_> =
            if is_unproved { self.unproved.get_or_init(|| signed(Hash([0; 32]))).clone() } else { signed(digest) };
        spoil(&mut signatures, tampering);
        let signatures: Vec<_> = signatures.iter().map(|bytes| format!(r#""0x{}""#, hex::encode(bytes))).collect();
        format!(
            r#"{{"alg":"ecdsa-secp256k1","ocr_report":"0x{}","ocr_context":"0x{}","signatures":[{}]}}"#,
            hex::encode(report),
            hex::encode(context),
            signatures.join(",")
        )
    }

    /// Returns the signers of a round, in the order of their signatures.
    fn quorum(&self, round: u64) -> Vec<usize> {
        let (all, required) = (self.signers.len(), self.required);
        let first = usize::try_from(round % all as u64).unwrap_or_default();
        let mut quorum = match self.signing {
            Signing::Fixed => (0..required).collect(),
            Signing::Rotating => (first..first + required).map(|at| at % all).collect(),
            Signing::Network | Signing::Arrival => {
                index::sample(&mut draw(self.seed, Purpose::Quorum, 0, round), all, required).into_vec()
            }
        };
        if self.signing != Signing::Arrival {
            quorum.sort_unstable();
        }
        quorum
    }
}

fn spoil(signatures: &mut Vec<[u8; 65]>, tampering: Option<Tampering>) {
    match tampering {
        Some(Tampering::TooFewSignatures) => drop(signatures.pop()),
        Some(Tampering::RepeatedSigner) => *signatures.last_mut().expect("at least one signature") = signatures[0],
        Some(Tampering::MalformedSignature) => signatures[0][64] = 9,
        _ => {}
    }
}

/// Returns r, s and the recovery byte.
fn sign(key: &SigningKey, digest: &Hash) -> [u8; 65] {
    let (signature, recovery) = key.sign_prehash_recoverable(&digest.0);
    let mut bytes = [0; 65];
    bytes[..64].copy_from_slice(&signature.to_bytes());
    bytes[64] = recovery.to_byte();
    bytes
}

/// Returns a key drawn from the seed. Nearly all values of 32 bytes are valid keys; an invalid value is drawn again.
fn key(seed: u64, purpose: Purpose, number: u64) -> SigningKey {
    let mut rng = draw(seed, purpose, 0, number);
    loop {
        if let Ok(key) = SigningKey::from_slice(&rng.random::<[u8; 32]>()) {
            return key;
        }
    }
}

fn address_of(key: &SigningKey) -> Address {
    let point = key.verifying_key().to_sec1_point(false);
    let hash = keccak256([&point.as_bytes()[1..]]);
    let mut address = [0; 20];
    address.copy_from_slice(&hash.0[12..]);
    Address(address)
}
