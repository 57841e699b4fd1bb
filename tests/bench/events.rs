//! The cost of each stage from the bytes of a page to a line, without the verification of signatures.
//!
//! `cargo bench --bench events`. A page contains 200 events, so 200 µs are 1 µs per event. `elem/s` are events per
//! second.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::{Client, Page, Settings};
use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use net::secret::Secret;
use proof::event::{Event, RawEvent};
use proof::verify::{Address, SignerSet, Verdict, Verified, Verifier, event_hash};
use record::{ChannelRef, Lines, Message, Record, Shape};
use simulator::{Announcement, Options, Simulator};
use sink::{Delivery, LaneRef, Sink, Stdout};
use tokio::runtime::Runtime;

/// The most events that the service returns in one page.
const EVENTS: u16 = 200;

/// A page of the simulator, and the results of its stages.
struct Sample {
    body: Bytes,
    page: Page,
    channel: ChannelRef,
    verified: Vec<Verified>,
    records: Vec<Arc<Record>>,
    /// A verifier that expects another workflow owner. It does all work except for the signatures, and then rejects the
    /// event.
    stranger: Verifier,
}

impl Sample {
    async fn made() -> Self {
        let options = Options { events: EVENTS.into(), ..Options::default() };
        let simulator = Simulator::start(options).await.expect("a port of loopback is free");
        let told = simulator.announcement();
        let channel = ChannelRef { name: "settlements".into(), id: told.channels[0] };
        let page = client(told).poll(channel.id, None, EVENTS).await.expect("the simulator answers");
        let signers = SignerSet::new(told.valid_signers.clone(), told.min_required_signatures).expect("a signer set");
        let verifier = Verifier::new(signers.clone(), told.workflow_owner);
        let verified: Vec<_> = page.events.iter().map(|raw| proved(&verifier, raw)).collect();
        let mut lines = Lines::of(verified.len());
        let records =
            verified.iter().map(|verified| Arc::new(Record::verified(&channel, verified, &mut lines))).collect();
        let stranger = Verifier::new(signers, Address([0; 20]));
        Self { body: body(&page), page, channel, verified, records, stranger }
    }
}

fn client(told: &Announcement) -> Client {
    let patience = Duration::from_secs(60);
    let base_url = told.base_url.parse().expect("a URL");
    let settings = Settings {
        base_url,
        account: api::AccountName::default(),
        api_keys: vec![Secret::new(&*told.api_key)],
        connect_timeout: patience,
        request_timeout: patience,
    };
    Client::new(settings).expect("settings that work")
}

fn proved(verifier: &Verifier, raw: &RawEvent) -> Verified {
    match verifier.verify(raw.clone()) {
        Verdict::Verified(verified) => verified,
        other => panic!("the simulator is honest unless it is told otherwise: {}", other.name()),
    }
}

fn body(page: &Page) -> Bytes {
    let records: Vec<_> = page.events.iter().map(|raw| &raw.json[..]).collect();
    [&b"{\"events\":["[..], &records.join(&b","[..]), b"],\"has_more\":false}"].concat().into()
}

fn stages(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let sample = runtime.block_on(Sample::made());
    println!("a page of {EVENTS} events, {} bytes each", sample.body.len() / usize::from(EVENTS));

    let mut group = criterion.benchmark_group("events");
    group.throughput(Throughput::Elements(EVENTS.into()));
    group.bench_function("page", |bench| bench.iter(|| Page::read(black_box(&sample.body))));
    group.bench_function("parse", |bench| {
        bench.iter(|| sample.page.events.iter().for_each(|raw| drop(black_box(Event::parse(raw.json.clone())))));
    });
    group.bench_function("hash", |bench| {
        bench.iter(|| {
            for verified in &sample.verified {
                black_box(event_hash(verified.event().payload.signed.as_deref().expect("it is signed")));
            }
        });
    });
    group.bench_function("verify but for signatures", |bench| {
        bench.iter(|| sample.page.events.iter().for_each(|raw| drop(black_box(sample.stranger.verify(raw.clone())))));
    });
    group.bench_function("record", |bench| {
        bench.iter(|| {
            let mut lines = Lines::of(sample.verified.len());
            let made = |verified| drop(black_box(Record::verified(&sample.channel, verified, &mut lines)));
            sample.verified.iter().for_each(made);
        });
    });
    group.bench_function("page to record", |bench| {
        bench.iter(|| {
            let page = Page::read(black_box(&sample.body)).expect("a page");
            let mut lines = Lines::of(page.events.len());
            for (raw, verified) in page.events.into_iter().zip(&sample.verified) {
                drop(black_box(Event::parse(raw.json)));
                drop(black_box(Record::verified(&sample.channel, verified, &mut lines)));
            }
        });
    });
    group.bench_function("facts", |bench| {
        let made = || -> Vec<_> {
            let mut lines = Lines::of(sample.verified.len());
            let record = |verified| Record::verified(&sample.channel, verified, &mut lines);
            sample.verified.iter().map(record).collect()
        };
        // A record computes its facts only once, so every iteration needs new records.
        bench.iter_batched_ref(
            made,
            |records| {
                for record in records {
                    black_box(record.facts());
                }
            },
            BatchSize::LargeInput,
        );
    });
    let sink = Stdout::over(io::sink());
    let lane = LaneRef { channel: sample.channel.clone(), sink: "stdout".into() };
    group.bench_function("lines", |bench| {
        bench.iter(|| {
            let batch: Vec<_> = sample.records.iter().map(|record| Message::new(record, &Shape::default())).collect();
            let through = batch.last().expect("a page of events").offset();
            let delivery = Delivery { lane: &lane, epoch: 0, after: None, through, messages: &batch };
            runtime.block_on(sink.deliver(&delivery)).expect("nothing refuses them");
        });
    });
    group.finish();
}

criterion_group!(benches, stages);
criterion_main!(benches);
