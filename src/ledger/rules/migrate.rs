//! Migrates the entries of version 0.1. Their keys were offsets. The new keys also contain the events' ids.

use bytes::Bytes;

use super::entry::{GivenUp, Late, Quarantined, decode};
use super::key::{Changes, Entries, Key, Value};
use crate::StateError;
use proof::event::{EventId, EventKey};

/// An entry that is stored under an offset only, although its event has an id, together with the entry of its body.
#[derive(Debug)]
pub(crate) struct Moved {
    entry: (Key, Key),
    value: Bytes,
    pub(crate) body: (Key, Key),
}

/// Gives such entries their new keys, and returns the entries that the store must move.
pub(crate) fn rekey(entries: &mut Entries) -> Result<Vec<Moved>, StateError> {
    let mut moves = Vec::new();
    for (key, value) in &*entries {
        let Value::Bytes(value) = value else { continue };
        let id = match key {
            Key::Late(EventKey { id: None, .. }) => decode::<Late>(value)?.event_id,
            Key::Quarantined(EventKey { id: None, .. }) => decode::<Quarantined>(value)?.event_id,
            Key::DeadLetter(EventKey { id: None, .. }, _) => decode::<GivenUp>(value)?.event_id,
            _ => continue,
        };
        let Some(id) = id else { continue };
        let Some(body) = body_of(key) else { continue };
        let entry = (key.clone(), with_id(key, id));
        moves.push(Moved { entry, value: value.clone(), body: (body.clone(), with_id(&body, id)) });
    }
    for Moved { entry: (old, new), body: (old_body, new_body), .. } in &moves {
        for (old, new) in [(old, new), (old_body, new_body)] {
            if let Some(value) = entries.remove(old) {
                entries.insert(new.clone(), value);
            }
        }
    }
    Ok(moves)
}

impl Moved {
    /// The changes that move the entry. `json` is its body, or `None` if the body was lost or was moved with another
    /// entry of the event.
    pub(crate) fn changes(self, json: Option<Bytes>) -> Changes {
        let (entry, body) = (self.entry, self.body);
        let mut changes = vec![(entry.1, Some(self.value)), (entry.0, None)];
        if json.is_some() {
            changes.extend([(body.1, json), (body.0, None)]);
        }
        changes
    }
}

fn body_of(key: &Key) -> Option<Key> {
    match key {
        Key::Late(event) | Key::Quarantined(event) => Some(Key::Body(*event)),
        Key::DeadLetter(event, sink) => Some(Key::DeadBody(*event, sink.clone())),
        _ => None,
    }
}

fn with_id(key: &Key, id: EventId) -> Key {
    let with_id = |event: &EventKey| EventKey { id: Some(id), ..*event };
    match key {
        Key::Late(event) => Key::Late(with_id(event)),
        Key::Quarantined(event) => Key::Quarantined(with_id(event)),
        Key::Body(event) => Key::Body(with_id(event)),
        Key::DeadLetter(event, sink) => Key::DeadLetter(with_id(event), sink.clone()),
        Key::DeadBody(event, sink) => Key::DeadBody(with_id(event), sink.clone()),
        other => other.clone(),
    }
}
