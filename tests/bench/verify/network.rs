//! Networks that sign the simulator's events anew, in the orders that are measured.

use channeld::api::{Client, Settings};
use channeld::event::{Event, Offset, Proofs, RawEvent};
use channeld::secret::Secret;
use channeld::simulator::{Options, Simulator};
use channeld::verify::{Address, Hash, keccak256, signed_digest, workflow_owner};
use k256::ecdsa::SigningKey;
use rand::rngs::StdRng;
use rand::seq::{SliceRandom, index};
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::time::Duration;

/// How many signatures an event has, and needs.
pub(crate) const REQUIRED: usize = 4;

const SIGNERS: usize = 10;
const ORGANISATION: &str = "org_measured";
const PAGE: u16 = 200;

/// An event without its signatures.
pub(crate) struct Template {
    event: Value,
    digest: Hash,
}

/// Who signs an event, and in which order.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// The same four, in the same order.
    Fixed,
    /// Four in a row, the next event's one further, in ascending order.
    Turning,
    /// Any four, in ascending order.
    Ascending,
    /// Any four, in any order.
    Shuffled,
    /// Four in one order, and in quite another after twenty events.
    Changing,
    /// After each signer the one that has come after it least often.
    Misleading,
}

/// Ten signers.
pub(crate) struct Network {
    seed: u64,
    keys: Vec<SigningKey>,
}

/// Whose events these are.
pub(crate) fn owner() -> Address {
    workflow_owner(ORGANISATION, "1")
}

/// The simulator's events, as its service gives them.
pub(crate) fn templates(count: usize) -> Vec<Template> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    let events = runtime.block_on(simulated(count));
    events.iter().map(template).collect()
}

async fn simulated(count: usize) -> Vec<RawEvent> {
    // Without it no client can be made, though this one speaks plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Options { org_id: ORGANISATION.to_owned(), events: count as u64, ..Options::default() };
    let simulator = Simulator::start(options).await.expect("the simulator listens");
    let known = simulator.announcement();
    let patience = Duration::from_secs(30);
    let client = Client::new(Settings {
        base_url: known.base_url.parse().expect("the simulator has an address"),
        api_key: Secret::new(&*known.api_key),
        connect_timeout: patience,
        request_timeout: patience,
    });
    let client = client.expect("a client can be made");
    let (mut events, mut last) = (Vec::new(), Offset::ZERO);
    while events.len() < count {
        let page = client.poll(known.channels[0], Some(last), PAGE).await.expect("the simulator answers");
        last = page.events.first().expect("there are events left").offset;
        events.extend(page.events);
    }
    events
}

fn template(event: &RawEvent) -> Template {
    let parsed = Event::parse(event.json.clone()).expect("the simulator's events are well-formed");
    let Proofs::One(ocr) = &parsed.proofs else { panic!("the simulator's events are proved") };
    let bytes = |text: &str| hex::decode(&text[2..]).expect("the simulator writes hex");
    let digest = signed_digest(&bytes(&ocr.report), &bytes(&ocr.context));
    Template { event: serde_json::from_slice(&event.json).expect("an event is JSON"), digest }
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let keys =
            (0..SIGNERS).map(|_| SigningKey::from_slice(&rng.random::<[u8; 32]>()).expect("most numbers are keys"));
        Self { seed, keys: keys.collect() }
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.keys.iter().map(address_of).collect()
    }

    /// The events, signed by this network in this order.
    pub(crate) fn events(&self, templates: &[Template], order: Order) -> Vec<RawEvent> {
        let mut order = order.start(self.seed);
        templates.iter().enumerate().map(|(at, template)| self.sign(template, &order(at))).collect()
    }

    fn sign(&self, template: &Template, signers: &[usize]) -> RawEvent {
        let signatures = signers.iter().map(|signer| {
            let (signature, recovery) = self.keys[*signer].sign_prehash_recoverable(&template.digest.0);
            Value::String(format!("0x{}{:02x}", hex::encode(signature.to_bytes()), recovery.to_byte()))
        });
        let mut event = template.event.clone();
        event["headers"]["proofs"][0]["signatures"] = signatures.collect();
        RawEvent::locate(event.to_string().into()).expect("it has an offset, as before")
    }
}

impl Order {
    /// Who signs the first event, the second, and so on.
    fn start(self, seed: u64) -> Box<dyn FnMut(usize) -> Vec<usize>> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut came = [[0; SIGNERS]; SIGNERS + 1];
        let mut turn: Vec<usize> = (0..SIGNERS).collect();
        let ascending = |mut signers: Vec<usize>| {
            signers.sort_unstable();
            signers
        };
        match self {
            Self::Fixed => Box::new(|_| (0..REQUIRED).collect()),
            Self::Turning => {
                Box::new(move |at| ascending((at..at + REQUIRED).map(|signer| signer % SIGNERS).collect()))
            }
            Self::Ascending => Box::new(move |_| ascending(index::sample(&mut rng, SIGNERS, REQUIRED).into_vec())),
            Self::Shuffled => Box::new(move |_| index::sample(&mut rng, SIGNERS, REQUIRED).into_vec()),
            Self::Changing => Box::new(move |at| {
                if at % 20 == 0 {
                    turn.shuffle(&mut rng);
                }
                turn[..REQUIRED].to_vec()
            }),
            Self::Misleading => Box::new(move |_| {
                let (mut signers, mut last) = (Vec::new(), SIGNERS);
                while signers.len() < REQUIRED {
                    let left = (0..SIGNERS).filter(|signer| !signers.contains(signer));
                    let next = left.min_by_key(|signer| came[last][*signer]).expect("more sign than are required");
                    came[last][next] += 1;
                    signers.push(next);
                    last = next;
                }
                signers
            }),
        }
    }
}

fn address_of(key: &SigningKey) -> Address {
    let point = key.verifying_key().to_sec1_point(false);
    let Hash(hash) = keccak256([&point.as_bytes()[1..]]);
    let mut address = [0; 20];
    address.copy_from_slice(&hash[12..]);
    Address(address)
}
