//! `[sinks.NAME]`: where events may go, by name, and in what shape. The keys of each type are read by the sink itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::filter;
use super::keys::{Key, Keys, Reported};
use super::values::{check_name, choice};
use crate::record::{Filter, Format, Shape};
use crate::sink::{KINDS, Kind, Target};

/// `[sinks.NAME]`.
#[derive(Clone, Debug)]
pub struct Sink {
    /// The word for its type.
    pub kind: &'static str,
    /// Where events go.
    pub target: Arc<dyn Target>,
    /// The shape that they are written in.
    pub shape: Shape,
    /// Which of them it is given, where a channel does not say otherwise; without one, all.
    pub filter: Option<Filter>,
}

impl PartialEq for Sink {
    fn eq(&self, other: &Self) -> bool {
        let Self { kind, target, shape, filter } = self;
        *kind == other.kind && **target == *other.target && *shape == other.shape && *filter == other.filter
    }
}

impl Eq for Sink {}

const FORMATS: [(&str, Format); 3] =
    [("json", Format::Json), ("cloudevents", Format::CloudEvents), ("raw", Format::Raw)];

/// Reads every sink.
pub(super) fn read_all(keys: &mut Keys) -> Result<BTreeMap<String, Sink>, Reported> {
    let table = Key::new("sinks");
    let mut sinks = Ok(BTreeMap::new());
    for name in keys.names(&table)? {
        check_name(keys, &table.at(&name));
        match (read(keys, &table.at(&name)), &mut sinks) {
            (Ok(sink), Ok(read)) => {
                check_conflicts(keys, &table, &name, &sink, read);
                read.insert(name, sink);
            }
            (Err(reported), _) => sinks = Err(reported),
            (Ok(_), Err(_)) => {}
        }
    }
    sinks
}

fn read(keys: &mut Keys, sink: &Key) -> Result<Sink, Reported> {
    let kinds: Vec<(_, &Kind)> = KINDS.iter().map(|kind| (kind.word, kind)).collect();
    let kind = match keys.required(&sink.at("type"), choice(&kinds)) {
        Ok(kind) => kind,
        Err(reported) => {
            keys.pass_over(sink);
            return Err(reported);
        }
    };
    let target = (kind.read)(keys, sink);
    let shape = read_shape(keys, sink);
    let filter = filter::read(keys, &sink.at("filter"));
    Ok(Sink { kind: kind.word, target: target?, shape: shape?, filter: filter? })
}

fn read_shape(keys: &mut Keys, sink: &Key) -> Result<Shape, Reported> {
    let format = keys.optional(&sink.at("format"), choice(&FORMATS));
    let include_proof = keys.boolean(&sink.at("include_proof"));
    let shape = Shape { format: format?.unwrap_or_default(), include_proof: include_proof?.unwrap_or_default() };
    if shape == (Shape { format: Format::Raw, include_proof: true }) {
        let message = "cannot be set for the format \"raw\", which is the service's event with its proof in it already";
        return Err(keys.wrong(&sink.at("include_proof"), message));
    }
    Ok(shape)
}

fn check_conflicts(keys: &mut Keys, table: &Key, name: &str, sink: &Sink, others: &BTreeMap<String, Sink>) {
    for (other, before) in others {
        if let Some((key, message)) = sink.target.conflict(&*before.target, &table.at(other).to_string()) {
            keys.wrong(&table.at(name).at(key), message);
        }
    }
}
