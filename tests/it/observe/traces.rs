//! Traces follow each batch from the service to each sink, and never delay a delivery.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use crate::support::{Admin, Authority, Collector, Manner, Receiver, Reply, Setup, Span, deliverable};

async fn service(events: u64) -> Simulator {
    Simulator::start(Options { events, ..Options::default() }).await.unwrap()
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[tokio::test]
async fn each_batch_is_a_trace_from_the_service_to_each_sink() {
    let simulator = service(4).await;
    simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
    let (collector, receiver) = (Collector::start(Manner::Takes).await, Receiver::start().await);
    receiver.reply(Reply::Refuse(503, None), 1);
    let mut setup =
        Setup::reading(&simulator).with_webhook("hook", &receiver).with("log.otlp_endpoint", collector.url());
    setup.set("log.otlp_headers", "x-tenant=treasury, authorization=Bearer of-the-collector");
    setup.keep_secret("of-the-collector");
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 4 && receiver.received() == 4).await;
    let log = daemon.stop().await;

    let spans = collector.spans();
    let [batch] = named(&spans, "batch")[..] else { panic!("{spans:?}") };
    let log_id = log.lines("batch verified")[0]["trace_id"].clone();
    assert_eq!((&batch.parent, batch.trace.as_str()), (&String::new(), log_id.as_str().unwrap()));
    let facts = ["channel", "first_offset", "last_offset", "events", "rejected", "pending"];
    assert_eq!(facts.map(|fact| batch.attributes[fact].as_str()), ["c0", "1", "5", "5", "1", "0"]);
    assert_eq!(batch.attributes["channel_id"], simulator.announcement().channels[0].to_string());
    let about = ["service.name", "service.version"].map(|name| batch.resource[name].as_str());
    assert_eq!(about, ["channeld", env!("CARGO_PKG_VERSION")]);
    let instances: BTreeSet<_> = spans.iter().map(|span| &span.resource["service.instance.id"]).collect();
    assert_eq!(instances.len(), 1);

    for (name, times) in [("poll", 1), ("verify", 1), ("deliver", 2)] {
        assert_eq!(named(&spans, name).len(), times, "{name}: {spans:?}");
    }
    let parts = spans.iter().filter(|span| span.name != "batch" && span.name != "POST");
    for part in parts {
        assert_eq!((&part.trace, &part.parent), (&batch.trace, &batch.id), "{part:?}");
        assert!(part.nanoseconds <= batch.nanoseconds, "{part:?} in {batch:?}");
    }
    let delivered = |sink: &str| *named(&spans, "deliver").iter().find(|span| span.attributes["sink"] == sink).unwrap();
    let attempts = &delivered("hook").events;
    assert!(attempts.len() >= 2 && attempts.iter().all(|(name, _)| name == "attempt"), "{attempts:?}");
    assert!(attempts[0].1["error"].contains("503") && !attempts[1].1.contains_key("error"), "{attempts:?}");
    assert_eq!(delivered("file").events.len(), 1);
    for sink in ["file", "hook"] {
        let records = named(&spans, "record");
        let last = records.iter().filter(|span| span.attributes["sink"] == sink).map(|span| &span.attributes["offset"]);
        assert_eq!(last.max().unwrap(), "5", "{sink}");
    }

    let requests = named(&spans, "POST");
    assert!(requests.iter().all(|request| request.is_client && request.parent == delivered("hook").id), "{requests:?}");
    let statuses: Vec<_> = requests.iter().map(|request| &*request.attributes["http.response.status_code"]).collect();
    assert_eq!(statuses, ["503", "204", "204", "204", "204"]);
    let facts = ["http.request.method", "server.address", "url.full"].map(|fact| &*requests[1].attributes[fact]);
    assert_eq!(
        facts,
        ["POST", "127.0.0.1", receiver.url().as_str()],
        "the URL is shown without the token in its query"
    );
    assert_eq!((&*requests[0].attributes["error.type"], requests[1].attributes.get("error.type")), ("503", None));
    let told = receiver.posts().into_iter().map(|post| post.headers["traceparent"].to_str().unwrap().to_owned());
    let expected = requests[1..].iter().map(|request| format!("00-{}-{}-01", request.trace, request.id));
    assert_eq!(told.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let told = &collector.headers()[0];
    assert!(told["x-tenant"] == "treasury" && told["authorization"] == "Bearer of-the-collector", "{told:?}");
}

#[tokio::test]
async fn without_a_collector_webhooks_get_no_trace_header() {
    let (simulator, receiver) = (service(1).await, Receiver::start().await);
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("it arrives", |_| receiver.received() == 1).await;
    daemon.stop().await;
    assert!(!receiver.posts()[0].headers.contains_key("traceparent"));
}

#[tokio::test]
async fn a_refusing_collector_loses_only_spans_and_is_used_again() {
    let (simulator, collector) = (service(20).await, Collector::start(Manner::Refuses).await);
    let setup = Setup::reading(&simulator).with("log.otlp_endpoint", collector.url()).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("all arrive", |_| setup.lines() == 20).await;
    daemon.until_logged("traces could not be exported and are lost; events are not affected").await;
    assert!(admin.sample("channeld_trace_spans_lost_total").await.unwrap() >= 4.0);
    collector.becomes(Manner::Takes);
    simulator.publish(0, 1);
    daemon.until_logged("traces are exported again").await;
    daemon.until("the next event arrives", |_| setup.offsets("c0") == deliverable(&simulator, 0)).await;
    daemon.stop().await;
    assert_eq!(named(&collector.spans(), "batch").len(), 1);
}

#[tokio::test]
async fn a_hanging_collector_delays_neither_events_nor_the_stop() {
    let (simulator, collector) = (service(20).await, Collector::start(Manner::Hangs).await);
    let setup = Setup::reading(&simulator).with("log.otlp_endpoint", collector.url()).with("shutdown_grace", "2s");
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 20).await;
    daemon.until("the collector hangs", |_| !collector.headers().is_empty()).await;
    simulator.publish(0, 20);
    daemon.until("more events arrive", |_| setup.lines() == 40).await;
    let began = Instant::now();
    let log = daemon.stop().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(log.lines("the last traces could not be exported in time: they are lost").len(), 1);
}

#[tokio::test]
async fn a_reload_changes_the_collectors_headers_but_not_its_address() {
    let (simulator, collector) = (service(1).await, Collector::start(Manner::Takes).await);
    let mut setup = Setup::reading(&simulator).with("log.otlp_endpoint", collector.url());
    setup.set("log.otlp_headers", "x-tenant=one");
    let mut daemon = setup.start();
    daemon.until("a trace arrives", |_| !collector.spans().is_empty()).await;
    setup.set("log.otlp_headers", "x-tenant=two");
    setup.write();
    daemon.signal(Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    simulator.publish(0, 1);
    daemon.until("another trace arrives", |_| collector.headers().last().unwrap()["x-tenant"] == "two").await;
    setup.write_but("log.otlp_endpoint", "http://127.0.0.1:1");
    daemon.signal(Signal::HUP);
    daemon.until_logged("configuration rejected: the previous one stays in force").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_delivery_span_links_to_each_of_its_pages() {
    let (simulator, collector) = (service(12).await, Collector::start(Manner::Takes).await);
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 4);
    let setup = setup.with("sinks.hook.batch_events", 12).with("sinks.hook.batch_wait", "10s");
    let setup = setup.with("log.otlp_endpoint", collector.url());
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| receiver.requests() == 1 && setup.lines() == 12).await;
    daemon.stop().await;
    let spans = collector.spans();
    let batches = named(&spans, "batch");
    let together = named(&spans, "deliver").into_iter().find(|span| span.attributes["sink"] == "hook").unwrap();
    assert!(batches.len() >= 3 && together.links == batches.len() - 1, "{spans:?}");
    let first = batches.iter().find(|batch| batch.attributes["first_offset"] == "1").unwrap();
    assert_eq!(together.parent, first.id);
}

#[tokio::test]
async fn a_late_delivery_has_its_own_trace() {
    let (simulator, collector) = (service(0).await, Collector::start(Manner::Takes).await);
    simulator.publish_one(0, EventSpec::Late(Kind::QueryCompleted));
    simulator.publish_one(0, EventSpec::Honest(Kind::WatcherEvent));
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("log.otlp_endpoint", collector.url());
    let mut daemon = setup.start();
    daemon.until("the other event arrives", |_| receiver.received() == 1 && setup.lines() == 1).await;
    simulator.prove(0, 1);
    daemon.until("the pending event arrives", |_| receiver.received() == 2 && setup.lines() == 2).await;
    daemon.stop().await;
    let spans = collector.spans();
    let [late] = named(&spans, "late")[..] else { panic!("{spans:?}") };
    assert_eq!((&*late.attributes["offset"], &*late.attributes["channel"]), ("1", "c0"));
    let parts = |name| named(&spans, name).into_iter().filter(|span| span.parent == late.id).count();
    assert_eq!((parts("deliver"), parts("record")), (2, 2));
    let traceparent = receiver.posts()[1].headers["traceparent"].to_str().unwrap().to_owned();
    assert!(traceparent.contains(&late.trace), "{traceparent}: {late:?}");
}

#[tokio::test]
async fn opentelemetry_variables_apply_if_no_key_is_set() {
    let (simulator, collector) = (service(1).await, Collector::start(Manner::Takes).await);
    let mut setup = Setup::reading(&simulator);
    setup.set_environment("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    setup.set_environment("OTEL_SERVICE_NAME", "events-of-a-test");
    setup.set_environment("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=another");
    let mut daemon = setup.start();
    daemon.until("a trace arrives", |_| !collector.spans().is_empty()).await;
    daemon.stop().await;
    let resource = &collector.spans()[0].resource;
    let about = ["service.name", "deployment.environment.name"].map(|name| &*resource[name]);
    assert_eq!(about, ["events-of-a-test", "test"]);

    let other = Collector::start(Manner::Takes).await;
    let setup = setup.with("log.otlp_endpoint", other.url());
    simulator.publish(0, 1);
    let before = collector.spans().len();
    let mut daemon = setup.start();
    daemon.until("a trace arrives at the configured collector", |_| !other.spans().is_empty()).await;
    daemon.stop().await;
    assert_eq!(collector.spans().len(), before);
}

#[tokio::test]
async fn a_collector_with_a_private_ca_is_trusted() {
    let (simulator, authority) = (service(1).await, Authority::new("a private authority"));
    let collector = Collector::start_tls(&authority).await;
    let setup = Setup::reading(&simulator).with("log.otlp_endpoint", collector.url());
    let mut daemon = setup.start();
    daemon.until_logged("traces could not be exported and are lost; events are not affected").await;
    daemon.stop().await;
    let ca = authority.write(&setup.path("ca.pem"));
    let setup = setup.with("log.otlp_ca_file", ca);
    simulator.publish(0, 1);
    let mut daemon = setup.start();
    daemon.until("a trace arrives", |_| !collector.spans().is_empty()).await;
    daemon.stop().await;
}
