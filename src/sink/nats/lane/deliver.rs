//! Publishing a delivery: in atomic batches, or one message at a time behind a position message.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{CLAIMS, Lane, Shared, fenced, stream};
use crate::event::Offset;
use crate::record::Message;
use crate::sink::nats::BATCH;
use crate::sink::nats::message::{
    BATCH_COMMIT, BATCH_ID, BATCH_SEQUENCE, EXPECTED_SEQUENCE, EXPECTED_SUBJECT, Outgoing,
};
use crate::sink::nats::position::Position;
use crate::sink::nats::server::{Ack, BATCHES_DISABLED, DUPLICATE, Failure, WRONG_SEQUENCE};
use crate::sink::{Delivery, SinkError, Undelivered};

/// The most bytes in one batch, unless one event has more. A server keeps a batch in memory until it ends.
const BATCH_BYTES: usize = 4 << 20;

/// How messages are sent together.
#[derive(Clone, Copy)]
struct Attempt {
    /// The most messages.
    size: usize,
    /// The server knows the plain ids already: this number, of the lane's position, is put behind each of them.
    again: Option<u64>,
}

impl Attempt {
    const FIRST: Self = Self { size: BATCH, again: None };
}

/// What has become of messages that were sent together.
enum Sent {
    /// So many of the first are there, at least one.
    Taken(usize),
    /// So many of the first are there, and the next one is not.
    Refused(usize, SinkError),
    /// None is there. They are to be sent again in this way.
    Retry(Attempt),
    /// The lane's claim was over, and none is there.
    Unclaimed,
}

impl Lane {
    /// Publishes what is not there yet.
    pub(in crate::sink::nats) async fn deliver(
        &mut self,
        shared: &Shared,
        delivery: &Delivery<'_>,
    ) -> Result<(), Undelivered> {
        let mut settled = 0;
        let result = self.publish(shared, delivery, &mut settled).await;
        let rest = if result.is_ok() { &[] } else { &delivery.messages[settled..] };
        let beyond = self.held_of(rest);
        // What was offered is not offered again unless that is meant.
        if let Some(last) = delivery.messages.last() {
            self.held.retain(|offset| *offset > last.offset());
        }
        result.map_err(|error| Undelivered { delivered: settled, beyond, error })
    }

    /// Those of the messages that are there though they are not recorded.
    fn held_of(&self, messages: &[Message]) -> BTreeSet<Offset> {
        messages.iter().map(Message::offset).filter(|offset| self.held.contains(offset)).collect()
    }

    /// Counts in `settled` how many of the first messages are there.
    async fn publish(
        &mut self,
        shared: &Shared,
        delivery: &Delivery<'_>,
        settled: &mut usize,
    ) -> Result<(), SinkError> {
        self.claimed(shared, delivery.epoch).await?;
        // What was there before and is not recorded stays named in the lane's position.
        let mut there = self.held.clone();
        let prior = if there.is_empty() { self.position.highest() } else { self.position.prior };
        let (mut claims, mut has_looked, mut attempt) = (0, false, Attempt::FIRST);
        loop {
            let (chunk, unfit) = self.chunk(shared, delivery, *settled, attempt).await?;
            if chunk.is_empty() {
                let Some(error) = unfit else { return Ok(()) };
                let Some(claim) = self.claim.as_mut().filter(|_| !has_looked) else { return Err(error) };
                // An operator may have changed the stream meanwhile.
                claim.stream = stream(shared).await?;
                has_looked = true;
                continue;
            }
            let position = Position { epoch: delivery.epoch, prior, since: None, ..self.position.clone() };
            let places: Vec<_> = chunk.iter().map(|event| event.index).collect();
            match self.send(shared, chunk, &mut there, position, attempt).await {
                Sent::Taken(count) => {
                    *settled = places[count - 1] + 1;
                    attempt = Attempt::FIRST;
                }
                Sent::Refused(count, error) => {
                    *settled = places.get(count).copied().unwrap_or(*settled);
                    return Err(error);
                }
                Sent::Retry(other) => attempt = other,
                Sent::Unclaimed if claims < CLAIMS => {
                    claims += 1;
                    attempt = Attempt::FIRST;
                    self.claimed(shared, delivery.epoch).await?;
                }
                Sent::Unclaimed => {
                    let message = "the lane's position is deleted again and again: does another program purge it?";
                    return Err(SinkError::away(message.to_owned()));
                }
            }
        }
    }

    /// The messages from the first one that is not settled on that can be sent together, and why the one after them cannot be
    /// sent at all, where that is so.
    async fn chunk(
        &self,
        shared: &Shared,
        delivery: &Delivery<'_>,
        settled: usize,
        Attempt { size, again }: Attempt,
    ) -> Result<(Vec<Outgoing>, Option<SinkError>), SinkError> {
        let client = shared.server.client().await?;
        let max_payload = client.try_server_info().map_or(usize::MAX, |info| info.max_payload);
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for (index, message) in delivery.messages.iter().enumerate().skip(settled) {
            if self.held.contains(&message.offset()) {
                continue;
            }
            let settings = &shared.settings;
            if chunk.len() == size {
                break;
            }
            let mut outgoing = Outgoing::new(index, delivery.lane, message, &settings.stream, &settings.subject);
            if let Some(position) = again {
                outgoing = outgoing.again(position);
            }
            if let Some(error) = self.unfit(&outgoing, max_payload, &settings.stream) {
                return Ok((chunk, Some(error)));
            }
            bytes += outgoing.size();
            if bytes > BATCH_BYTES && !chunk.is_empty() {
                break;
            }
            chunk.push(outgoing);
        }
        Ok((chunk, None))
    }

    /// Why the stream would not take an event.
    fn unfit(&self, event: &Outgoing, max_payload: usize, stream: &str) -> Option<SinkError> {
        let facts = &self.claim.as_ref()?.stream;
        let size = event.size();
        let limit = facts.max_size.filter(|limit| *limit < max_payload);
        let message = if !facts.takes(&event.subject) {
            let subject = &event.subject;
            format!("the stream {stream} does not take the subject {subject}: add it to the stream's subjects")
        } else if let Some(limit) = limit.filter(|limit| size > *limit) {
            format!(
                "the event takes {size} bytes with its headers, and the stream {stream} takes {limit} (max_msg_size)"
            )
        } else if size > max_payload {
            format!("the event takes {size} bytes with its headers, and the server takes {max_payload} (max_payload)")
        } else {
            return None;
        };
        Some(SinkError::refused(message))
    }

    /// Sends messages that stand in their order, with none of this lane between them. `there` is what of the delivery is in
    /// the stream.
    async fn send(
        &mut self,
        shared: &Shared,
        chunk: Vec<Outgoing>,
        there: &mut BTreeSet<Offset>,
        position: Position,
        attempt: Attempt,
    ) -> Sent {
        let Some(claim) = &self.claim else { return Sent::Unclaimed };
        if !claim.stream.batches {
            return self.one_by_one(shared, &chunk, there, position).await;
        }
        let (size, sequence) = (chunk.len(), claim.sequence);
        let all = there.iter().copied().chain(chunk.iter().map(|event| event.offset)).collect();
        let position = Position { delivery: Uuid::new_v4(), ..position }.with(&all);
        match self.batch(shared, chunk, position).await {
            Ok(()) => {
                *there = all;
                Sent::Taken(size)
            }
            // With the next claim the stream is looked at again: an operator may have changed it.
            Err(Failure::Refused(refusal)) if [WRONG_SEQUENCE, BATCHES_DISABLED].contains(&refusal.err_code) => {
                self.claim = None;
                Sent::Unclaimed
            }
            Err(Failure::Refused(refusal)) if refusal.err_code == DUPLICATE && attempt.again.is_none() => {
                Sent::Retry(Attempt { again: Some(sequence), ..attempt })
            }
            Err(failure) => match shared.server.error_of_event(failure) {
                // One of them is refused: which, the halves tell.
                SinkError::Refused { .. } if size > 1 => Sent::Retry(Attempt { size: size.div_ceil(2), ..attempt }),
                error => Sent::Refused(0, error),
            },
        }
    }

    /// Publishes events and the lane's position as one. While the answer is awaited there is no claim.
    async fn batch(&mut self, shared: &Shared, events: Vec<Outgoing>, position: Position) -> Result<(), Failure> {
        let Some(mut claim) = self.claim.take() else { return Ok(()) };
        self.in_doubt = Some(position.delivery);
        let id = position.delivery.simple().to_string();
        let (mut sent, last) = (Ok(()), events.len() + 1);
        for (event, number) in events.into_iter().zip(1_usize..) {
            let mut headers = event.headers;
            headers.insert(BATCH_ID, &*id);
            headers.insert(BATCH_SEQUENCE, &*number.to_string());
            sent = shared.server.send(event.subject, headers, event.body).await;
            if sent.is_err() {
                break;
            }
        }
        sent?;
        let mut headers = fenced(&claim.stream, claim.sequence, &shared.settings);
        headers.insert(BATCH_ID, &*id);
        headers.insert(BATCH_SEQUENCE, &*last.to_string());
        headers.insert(BATCH_COMMIT, "1");
        let answer = shared.server.publish(self.subject.clone(), headers, position.to_json()).await;
        if let Ok(Ack { seq, .. }) = &answer {
            claim.sequence = *seq;
            self.position = position;
        }
        if !matches!(answer, Err(Failure::Unanswered(_))) {
            self.in_doubt = None;
            self.claim = Some(claim);
        }
        answer.map(drop)
    }

    /// Publishes a position message that says what is to follow, and each event under the condition that nothing has come
    /// behind that message on its subject. While an answer is awaited there is no claim.
    async fn one_by_one(
        &mut self,
        shared: &Shared,
        events: &[Outgoing],
        there: &mut BTreeSet<Offset>,
        position: Position,
    ) -> Sent {
        let Some(mut claim) = self.claim.take() else { return Sent::Unclaimed };
        let position = Position { delivery: Uuid::new_v4(), follow: true, ..position }.with(there);
        self.in_doubt = Some(position.delivery);
        let headers = fenced(&claim.stream, claim.sequence, &shared.settings);
        let mut count = 0;
        let mut taken = shared.server.publish(self.subject.clone(), headers, position.to_json()).await;
        if let Ok(Ack { seq, .. }) = &taken {
            claim.sequence = *seq;
            for event in events {
                taken = self.one(shared, event, claim.sequence).await;
                if taken.is_err() {
                    break;
                }
                there.insert(event.offset);
                count += 1;
            }
            self.position = Position { follow: false, ..position.with(there) };
        }
        let is_over = |failure: &Failure| matches!(failure, Failure::Refused(why) if why.err_code == WRONG_SEQUENCE);
        match taken {
            Err(Failure::Unanswered(message)) => Sent::Refused(count, SinkError::away(message)),
            Err(failure) if is_over(&failure) => {
                self.in_doubt = None;
                if count == 0 { Sent::Unclaimed } else { Sent::Taken(count) }
            }
            taken => {
                (self.claim, self.in_doubt) = (Some(claim), None);
                match taken {
                    Ok(_) => Sent::Taken(count),
                    Err(failure) => Sent::Refused(count, shared.server.error_of_event(failure)),
                }
            }
        }
    }

    /// Publishes one event behind the position message `sequence`.
    async fn one(&self, shared: &Shared, event: &Outgoing, sequence: u64) -> Result<Ack, Failure> {
        let mut event = event.clone();
        loop {
            let mut headers = event.headers.clone();
            headers.insert(EXPECTED_SEQUENCE, &*sequence.to_string());
            headers.insert(EXPECTED_SUBJECT, &*self.subject);
            let ack = shared.server.publish(event.subject.clone(), headers, event.body.clone()).await?;
            // What was sent under this claim has been waited for: an id that the server knows is of an earlier delivery.
            if !ack.duplicate || ack.seq > sequence {
                return Ok(ack);
            }
            event = event.again(sequence);
        }
    }
}
