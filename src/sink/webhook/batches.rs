//! Several events in one request: a JSON array of what each would have been sent as alone.
//!
//! # Invariants
//!
//! * **The id depends on the events alone.** A batch's `webhook-id` is a UUID made of the ids of its events in their order:
//!   the same at each attempt and after a restart. After a crash other events may form a batch, because that depends on
//!   what there is to send: a consumer that must not act twice goes by the ids of the events.
//! * **Bounded.** By a number of events and by the size of the body. An event that is larger is sent alone.
//! * **One after the other.** As single events are.

use bytes::Bytes;
use uuid::Uuid;

use super::settings::Batching;
use super::{Posting, Webhook};
use crate::record::Message;
use crate::sink::Undelivered;

/// The ids of batches are made in this namespace (RFC 9562, version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0f_91a6_2f0e_4f0a_9d38_6c1f_4a57_e2d1);

impl Webhook {
    pub(super) async fn in_batches(&self, messages: &[Message], batching: Batching) -> Result<(), Undelivered> {
        let mut delivered = 0;
        while delivered < messages.len() {
            let batch = first(&messages[delivered..], batching);
            let posted = self.post(Posting::batch(batch)).await;
            posted.map_err(|refusal| Undelivered::after(delivered, refusal.error))?;
            delivered += batch.len();
        }
        Ok(())
    }
}

/// As many of them as one batch takes, and at least one.
fn first(messages: &[Message], batching: Batching) -> &[Message] {
    // The first bracket.
    let mut size = 1;
    let fits = |message: &Message| {
        // With the comma, or the last bracket, after it.
        size += message.body().len() + 1;
        size <= batching.bytes
    };
    let fitting = messages.iter().take(batching.events).map(fits).take_while(|fits| *fits).count();
    &messages[..fitting.max(1)]
}

impl Posting {
    fn batch(messages: &[Message]) -> Self {
        let bodies: Vec<&[u8]> = messages.iter().map(|message| &**message.body()).collect();
        let body = Bytes::from([b"[", &*bodies.join(&b","[..]), b"]"].concat());
        let ids: Vec<_> = messages.iter().map(Message::key).collect();
        let id = Uuid::new_v5(&NAMESPACE, ids.join("\n").as_bytes()).to_string();
        Self { id, content_type: messages[0].batch_content_type(), body }
    }
}
