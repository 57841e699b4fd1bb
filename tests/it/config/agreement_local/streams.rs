//! Environments of a JetStream sink, on one server.

use serde_json::json;

use super::{checked, disagreements, fails, service, works};
use crate::support::{Daemon, Nats, Setup};

/// The stream of an environment. Each environment has its own subjects, because a subject belongs to one stream only.
fn stream_of(setup: Setup, nats: &Nats, number: usize) -> Setup {
    let mut setup = setup.publishing(1, nats.address());
    setup.set("sinks.bus.stream", format!("stream{number}"));
    setup.set("sinks.bus.subject", format!("events{number}.{{channel}}.{{type}}"));
    setup.set("sinks.bus.positions", format!("positions{number}"));
    setup
}

#[tokio::test]
async fn check_and_daemon_agree_about_streams() {
    let mapped = ["positions1.>", "events12.>", "events13.>", "events14.*.operation.status", "events15.*.operation"]
        .map(|subject| format!("\"{subject}\": \"mapped_{}\"", subject.replace('*', "$1")));
    let mappings = format!("mappings: {{ {} }}", mapped.join(", "));
    let Some(nats) = Nats::start_with(&mappings, json!({})) else { return };
    // The settings of the stream that exists, and the problem of the sink.
    let cases = [
        ("a stream", Some(json!({})), None),
        (
            "mapped positions",
            Some(json!({"subjects": ["events1.>", "positions1.>", "mapped_positions1.>"]})),
            Some("(mappings)"),
        ),
        ("a missing stream", None, None),
        (
            "transformed positions",
            Some(json!({"subject_transform": {"src": "positions3.>", "dest": "moved3.>"}})),
            Some("subject_transform"),
        ),
        ("no subject for positions", Some(json!({"subjects": ["events4.>"]})), Some("does not take the subject")),
        ("a stream of interest", Some(json!({"retention": "interest"})), Some("must be limits")),
        (
            "a limited number of positions",
            Some(json!({"discard": "new", "max_msgs_per_subject": 9, "discard_new_per_subject": true})),
            Some("discard_new_per_subject"),
        ),
        ("a stream in memory", Some(json!({"storage": "memory"})), None),
        ("a stream without acknowledgements", Some(json!({"no_ack": true})), Some("without acknowledgements")),
        ("subjects of another stream", None, Some("takes the subject events9.")),
        ("too many replicas", None, Some("not in a cluster")),
        ("a missing stream that is not created", None, Some("create it, or set create = true")),
        (
            "mapped events",
            Some(json!({"subjects": ["events12.>", "positions12.>", "mapped_events12.>"]})),
            Some(" to mapped_events12."),
        ),
        ("events mapped to a subject that the stream does not take", Some(json!({})), Some("(mappings)")),
        ("one mapped type of event", Some(json!({})), Some(".operation.status (mappings)")),
        ("a mapped subject that no event has", Some(json!({})), None),
    ];
    for (number, (_, stream, _)) in cases.iter().enumerate() {
        let Some(settings) = stream else { continue };
        let name = format!("stream{number}");
        let mut stream = json!({"name": name, "subjects": [format!("events{number}.>"), format!("positions{number}.>")],
            "retention": "limits", "storage": "file", "num_replicas": 1, "allow_rollup_hdrs": true});
        stream.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let made = nats.api(&format!("STREAM.CREATE.{name}"), stream).await;
        assert!(made["error"].is_null(), "{name}: {made}");
    }
    let other = json!({"name": "other", "subjects": ["events9.>"], "retention": "limits", "storage": "file"});
    assert!(nats.api("STREAM.CREATE.other", other).await["error"].is_null());
    let simulator = service().await;
    let nats = &nats;
    let environments = cases.into_iter().enumerate().map(|(number, (name, _, problem))| {
        let prepare = move |setup: Setup| match number {
            10 => stream_of(setup, nats, number).with("sinks.bus.replicas", 3),
            11 => stream_of(setup, nats, number).with("sinks.bus.create", false),
            _ => stream_of(setup, nats, number),
        };
        match problem {
            None => works(name, prepare),
            Some(problem) => fails(name, problem, prepare),
        }
    });
    let (disagreements, _) = disagreements(&simulator, environments.collect()).await;
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));

    // The claim of a lane finds the mapping too, at the first start and at later ones.
    let mapped = stream_of(Setup::reading(&simulator), nats, 1);
    for _ in 0..2 {
        let mut daemon = mapped.start();
        let is_named = |daemon: &Daemon| {
            daemon.log().0.contains("stores the lane's position under the subject mapped_positions1.")
        };
        daemon.until("the mapping is reported", is_named).await;
        daemon.kill().await;
    }
    let (_, said) = checked(&stream_of(Setup::reading(&simulator), nats, 7)).await;
    assert!(said.contains("in the memory of the server"), "{said}");
}
