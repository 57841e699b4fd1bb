//! The sinks: where events may go, by name, and in what shape.

use std::collections::BTreeMap;

use super::filter;
use super::keys::{Key, Keys, Reported};
use super::values::{check_name, choice};
use crate::record::{Filter, Format, Shape};
use crate::sink::FileSettings;

mod file;
mod webhook;

pub use webhook::Webhook;

/// `[sinks.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    /// Where events go.
    pub target: Target,
    /// The shape that they are written in.
    pub shape: Shape,
    /// Which of them it is given, where a channel does not say otherwise; without one, all.
    pub filter: Option<Filter>,
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process's standard output.
    Stdout,
    /// A file.
    File(FileSettings),
    /// An HTTP endpoint of the operator.
    Webhook(Box<Webhook>),
}

/// The types of sinks, by the word for each.
#[derive(Clone, Copy)]
enum Type {
    Stdout,
    File,
    Webhook,
}

const TYPES: [(&str, Type); 3] = [("stdout", Type::Stdout), ("file", Type::File), ("webhook", Type::Webhook)];

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
                check_path(keys, &table, &name, &sink, read);
                read.insert(name, sink);
            }
            (Err(reported), _) => sinks = Err(reported),
            (Ok(_), Err(_)) => {}
        }
    }
    sinks
}

fn read(keys: &mut Keys, sink: &Key) -> Result<Sink, Reported> {
    let target = match keys.required(&sink.at("type"), choice(&TYPES)) {
        Ok(Type::Stdout) => Ok(Target::Stdout),
        Ok(Type::File) => file::read(keys, sink).map(Target::File),
        Ok(Type::Webhook) => Webhook::read(keys, sink).map(|webhook| Target::Webhook(Box::new(webhook))),
        Err(reported) => {
            keys.pass_over(sink);
            return Err(reported);
        }
    };
    let shape = read_shape(keys, sink);
    let filter = filter::read(keys, &sink.at("filter"));
    Ok(Sink { target: target?, shape: shape?, filter: filter? })
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

/// Two sinks in one file would write over each other.
fn check_path(keys: &mut Keys, table: &Key, name: &str, sink: &Sink, others: &BTreeMap<String, Sink>) {
    let Target::File(file) = &sink.target else { return };
    for (other, before) in others {
        if let Target::File(before) = &before.target {
            file::check_pair(keys, (&table.at(name), file), (&table.at(other), before));
        }
    }
}
