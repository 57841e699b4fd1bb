//! Environments of a Kafka sink whose user has only some rights, on one broker.

use super::{disagreements, fails, service, works};
use crate::support::{Broker, PASSWORD, USER};

#[tokio::test]
async fn check_and_daemon_agree_about_the_rights_to_topics() {
    let Some(broker) = Broker::shared() else { return };
    let all = &["READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"][..];
    let read_only = &["READ", "DESCRIBE", "DESCRIBE_CONFIGS"][..];
    let write_only = &["WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"][..];
    // The rights to the topic and to the topic of positions, and the problem of the sink.
    let needs = Some("needs the rights to describe, read and write both topics");
    let cases = [
        ("all rights", all, all, None),
        ("no right to write events", read_only, all, needs),
        ("no right to write positions", all, read_only, needs),
        ("no right to read positions", all, write_only, needs),
    ];
    let simulator = service().await;
    let environments = cases.map(|(name, events, positions, problem)| {
        let topic = broker.topic();
        topic.make(1, &[]);
        topic.make_positions(&["cleanup.policy=compact"]);
        topic.permit(events);
        topic.permit_positions(positions);
        let prepare = move |setup: crate::support::Setup| {
            let mut setup = setup.producing(1, &topic, &topic.broker.login());
            setup.keep_secret(PASSWORD);
            setup
                .with("sinks.log.security.mechanism", "scram-sha-512")
                .with("sinks.log.security.user", USER)
                .with("sinks.log.security.password", PASSWORD)
        };
        match problem {
            None => works(name, prepare),
            Some(problem) => fails(name, problem, prepare),
        }
    });
    let (disagreements, _) = disagreements(&simulator, environments.into()).await;
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
}
