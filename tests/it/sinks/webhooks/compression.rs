//! Compressed bodies.

use super::{service, until_lane_is, webhook_only};
use crate::support::{Receiver, Reply, deliverable, offsets};

#[tokio::test]
async fn bodies_are_compressed_and_the_signature_covers_the_uncompressed_body() {
    let simulator = service(20).await;
    for (encoding, batch) in [("gzip", 1), ("zstd", 10)] {
        let receiver = Receiver::start().await;
        let setup = webhook_only(&simulator, &receiver)
            .with("sinks.hook.compress", encoding)
            .with("sinks.hook.batch_events", batch)
            .with("sinks.hook.secret", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
        let mut daemon = setup.start();
        daemon.until("everything arrives", |_| receiver.delivered().len() == 20).await;
        daemon.stop().await;
        assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
        let verifier = standardwebhooks::Webhook::new("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap();
        for post in receiver.posts() {
            assert_eq!(post.headers["content-encoding"], encoding);
            assert!(post.bytes < post.body.len(), "{} of {}", post.bytes, post.body.len());
            verifier.verify(post.body.as_bytes(), &post.headers).unwrap();
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_compression_is_recognized() {
    let simulator = service(1).await;
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Refuse(415, None)));
    let setup = webhook_only(&simulator, &receiver).with("sinks.hook.compress", "gzip");
    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    assert_eq!(lane["error"]["message"], "answered 415; does it accept compressed bodies? See compress");
    daemon.stop().await;
}
