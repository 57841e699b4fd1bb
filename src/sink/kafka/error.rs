//! The errors of the brokers and of the library, with messages for an operator.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::settings::KafkaSettings;
use crate::{Fault, SinkError};

/// Whether the coordinator refuses a producer: a newer producer has the same transactional id, or the producer's
/// transaction was open for too long.
pub(super) fn is_fenced(code: Code) -> bool {
    matches!(code, Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch)
}

/// Whether a record was refused because of its size.
pub(super) fn is_too_large(code: Code) -> bool {
    matches!(code, Code::MessageSizeTooLarge | Code::MessageBatchTooLarge)
}

/// The error for an error code. `said` is the description that the operator sees.
pub(super) fn of_code(code: Code, said: &str, settings: &KafkaSettings) -> SinkError {
    let KafkaSettings { topic, positions_topic, transactional_id, .. } = settings;
    let connecting = format!("connecting to {}", settings.shown_brokers());
    let using = format!("using the topics {topic} and {positions_topic}");
    let prefixed =
        format!("the user needs the right to write transactional ids that begin with \"{transactional_id}.\"");
    let (doing, advice) = match code {
        // The lane then resumes, and finds out whether another instance has claimed the lane.
        code if is_fenced(code) => {
            return SinkError::away("the brokers refuse this producer: claiming the lane again".to_owned());
        }
        code if is_too_large(code) || matches!(code, Code::InvalidRecord | Code::InvalidMessage) => {
            return SinkError::refused(said.to_owned());
        }
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
            (&*connecting, "login refused; check security.user, password and mechanism")
        }
        Code::SSL => (
            &*connecting,
            "TLS failed; check security.tls, ca_file, the client certificate and the names of the brokers",
        ),
        Code::TopicAuthorizationFailed => (
            &*using,
            "the user needs the rights to describe, read and write both topics, and to describe their configuration",
        ),
        Code::TransactionalIdAuthorizationFailed => ("beginning transactions", &*prefixed),
        Code::ClusterAuthorizationFailed => (
            "using the cluster",
            "the user needs the rights to produce idempotently and, with create = true, to create topics",
        ),
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
            (&*using, "one of the topics was deleted: `channeld check --connect` shows which")
        }
        // The library gives each record the time at which it is produced.
        Code::InvalidTimestamp => (
            &*using,
            "the clocks of this machine and of the brokers differ by more than the topics allow (message.timestamp.before.max.ms \
             and message.timestamp.after.max.ms)",
        ),
        Code::InvalidTransactionTimeout => (
            "beginning transactions",
            "reduce the setting timeout: three times its value must not exceed the brokers' transaction.max.timeout.ms",
        ),
        Code::InvalidReplicationFactor | Code::InvalidPartitions | Code::PolicyViolation | Code::InvalidConfig => {
            ("creating the topics", "create them yourself, or change partitions and replicas")
        }
        _ => return SinkError::away(said.to_owned()),
    };
    SinkError::unusable(format!("{doing}: {said}: {advice}"))
}

/// Adds to a temporary error that the brokers cannot be reached.
pub(super) fn of_connection(error: SinkError, settings: &KafkaSettings) -> SinkError {
    match error {
        SinkError::Unavailable { message, fault: Fault::Target } => {
            SinkError::away(format!("{} cannot be reached: {message}", settings.shown_brokers()))
        }
        error => error,
    }
}

/// The text of an error, without the library's type names.
pub(super) fn words(error: &KafkaError) -> String {
    match (error, error.rdkafka_error_code()) {
        (KafkaError::Transaction(error), _) => error.string(),
        (_, Some(code)) => described(code),
        (error, None) => error.to_string(),
    }
}

/// The description of a code. The library writes the description in parentheses after the name of the code. The description
/// begins with the origin of the error. The name and the origin are removed.
pub(super) fn described(code: Code) -> String {
    let said = code.to_string();
    let words = said.split_once(" (").map_or(&*said, |(_, words)| words.trim_end_matches(')'));
    words.split_once(": ").map_or(words, |(_, words)| words).to_owned()
}

/// The library's message about a connection, without the internal details at its end.
pub(super) fn plain(said: &str) -> String {
    said.split(" (after ").next().unwrap_or(said).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_errors_are_translated_for_operators() {
        assert_eq!(described(Code::MessageSizeTooLarge), "Message size too large");
        assert_eq!(described(Code::OperationTimedOut), "Timed out");
        let said = "kafka:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)";
        assert!(plain(said).ends_with("failed: Connection refused"));
    }
}
