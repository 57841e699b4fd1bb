//! `format`, `include_proof` and `template…`: the shape of the records that a sink writes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use strum::VariantNames;

use super::settings::{Sink, SinkSettings, SinkType};
use crate::config::reading::values::word;
use crate::config::reading::{Reported, Section};
use crate::config::sources::files::read_up_to;
use crate::config::tables::channel::Channel;
use ::record::{Field, Filter, Format, JSON, Shape, Shipped, Source, Template, VOCABULARY};
use ::sink::Dispatch;
use net::secret::Secret;

/// The largest template, in bytes.
const TEMPLATE_LIMIT: usize = 256 * 1024;

/// The longest media type, and the longest name of a template value.
const CONTENT_TYPE_LIMIT: usize = 128;
const NAME_LIMIT: usize = 64;

/// The keys and the tables of a template.
const KEYS: [&str; 3] = ["template", "template_file", "template_content_type"];
const TABLES: [&str; 2] = ["template_values", "template_value_files"];

/// Reads the shape for a sink of this type.
pub(super) fn read(sink: &Section<'_>, kind: SinkType) -> Result<Shape, Reported> {
    let format = sink.or("format", word, Format::default().into());
    let include_proof = sink.boolean("include_proof", false);
    let template = match format {
        Ok(Format::Template) => read_template(sink).map(Some),
        // The other types accept any record, and do not document the keys of a template.
        Ok(_) if matches!(kind, SinkType::Stdout | SinkType::Webhook) => {
            refuse_template(sink);
            Ok(None)
        }
        _ => Ok(None),
    };
    let (format, include_proof, template) = (format?, include_proof?, template?);
    if format == Format::Raw && include_proof {
        let message = "cannot be set for the format \"raw\", which contains the proof already";
        sink.wrong("include_proof", message);
    }
    if format == Format::Text && include_proof {
        sink.wrong("include_proof", "cannot be set for the format \"text\", whose line has no place for a proof");
    }
    let holds_whole_events = match kind {
        SinkType::File => Some(
            "a file: after a crash, channeld reads the ids of the events from its lines to prevent duplicates, and such lines do not contain ids",
        ),
        SinkType::Postgres | SinkType::Sqlite => {
            Some("a table, whose column record contains everything without a column of its own")
        }
        SinkType::Stdout | SinkType::Webhook | SinkType::Nats | SinkType::Kafka => None,
    };
    if let (Some(why), Format::Text | Format::Template) = (holds_whole_events, format) {
        let word = <&str>::from(format);
        sink.wrong("format", format!("cannot be \"{word}\" for {why}; use \"json\", \"cloudevents\" or \"raw\""));
    }
    Ok(Shape { format, include_proof, template })
}

/// Reads the template, which is required.
fn read_template(sink: &Section<'_>) -> Result<Arc<Template>, Reported> {
    let [shipped, file, content_type] = KEYS;
    let source = match sink.either(shipped, file) {
        Ok(Some("template")) => sink.optional(shipped, word).map(|read| read.map(Source::Shipped)),
        Ok(Some(_)) => sink.file(file, own).map(|read| read.map(|text| Source::Own(text.into()))),
        Ok(None) => Ok(None),
        Err(reported) => Err(reported),
    };
    let media = sink.optional(content_type, media_type);
    let values = read_values(sink);
    let (source, media, values) = (source?, media?, values?);
    let Some(source) = source else {
        let names: Vec<_> = Shipped::VARIANTS.iter().map(|name| format!("{name:?}")).collect();
        let message =
            format!("is missing, but format = \"template\" is set; name one of {}, or set {file}", names.join(", "));
        return Err(sink.wrong(shipped, message));
    };
    let is_shipped = matches!(source, Source::Shipped(_));
    if is_shipped && media.is_some() {
        sink.wrong(content_type, "is determined by the shipped template; remove it");
    }
    let template = Template::new(source, media.as_deref().unwrap_or(JSON), values).map(Arc::new);
    let key = if is_shipped { shipped } else { file };
    template.map_err(|error| sink.wrong(key, format!("{error}; a template can use {VOCABULARY}")))
}

/// Records a problem for each key of a template if the format is not `template`.
fn refuse_template(sink: &Section<'_>) {
    const MESSAGE: &str = "has an effect only with format = \"template\"; set that, or remove this";
    for key in KEYS.into_iter().filter(|key| sink.is_set(key)) {
        sink.wrong(key, MESSAGE);
    }
    for table in TABLES.map(|table| sink.section(table)) {
        for name in table.names().unwrap_or_default() {
            // `is_set` also marks the key as known.
            if table.is_set(&name) {
                table.wrong(&name, MESSAGE);
            }
        }
    }
}

fn own(path: &str) -> Result<String, String> {
    let text = read_up_to(Path::new(path), TEMPLATE_LIMIT);
    text.map_err(|error| format!("the file {path:?} {error}; create it, or correct the path"))
}

/// A media type as RFC 9110 defines it, with optional parameters.
fn media_type(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (kind, rest) = text.split_once('/').unwrap_or_default();
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let subtype = rest.split(';').next().unwrap_or_default().trim_end();
    let is_visible = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let legal = is_token(kind) && is_token(subtype) && is_visible && text.len() <= CONTENT_TYPE_LIMIT;
    legal
        .then(|| text.to_owned())
        .ok_or_else(|| "must be a media type, such as \"application/json\" or \"text/plain\"".to_owned())
}

/// Reads the operator's own values: values that are not secret from one table, and secrets from files.
fn read_values(sink: &Section<'_>) -> Result<BTreeMap<String, Secret>, Reported> {
    let mut values = BTreeMap::new();
    for table in TABLES {
        let table = sink.section(table);
        for name in table.names()? {
            let read = |text: &str| Ok(Secret::new(text));
            let value = match table.key.name() {
                "template_values" => {
                    table.hide(&name);
                    table.quoted(&name, read)
                }
                _ => table.secret_file(&name, read),
            };
            if !is_name(&name) {
                table.wrong(
                    &name,
                    "must be a name that a template can use: letters, digits and _, 64 at most, no digit first",
                );
            } else if let Some(value) = value?
                && values.insert(name.clone(), value).is_some()
            {
                table.wrong(&name, "is set twice, here and in the other table; keep one");
            }
        }
    }
    Ok(values)
}

fn is_name(name: &str) -> bool {
    let legal = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    legal && name.len() <= NAME_LIMIT && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Records a problem if the shape is not possible in the requests of a webhook.
pub(super) fn check_dispatch(sink: &Section<'_>, settings: &SinkSettings, shape: &Shape) {
    let SinkSettings::Webhook(webhook) = settings else { return };
    let Some(template) = shape.template.as_ref().filter(|_| matches!(webhook.dispatch, Dispatch::Batches { .. }))
    else {
        return;
    };
    if template.shipped().is_some() {
        sink.wrong(
            "batch_events",
            "cannot be more than 1 with a shipped template: its target accepts one event per request",
        );
    } else if !template.makes_json() {
        sink.wrong(
            "batch_events",
            "cannot be more than 1 with a template whose output is not JSON: the bodies could not be separated",
        );
    }
}

/// The service's event contains neither its verification nor its channel. A filter must therefore require a verification.
/// A file must have a single channel, because its events must be told apart after a crash.
pub(crate) fn check_raw(sinks: &Section<'_>, channels: &[Channel], all: &BTreeMap<String, Sink>) {
    for (name, sink) in all.iter().filter(|(_, sink)| sink.shape.format == Format::Raw) {
        let wrong = |message| sinks.section(name).wrong("format", message);
        let of_sink: Vec<_> = channels.iter().filter(|channel| channel.sinks.contains(name)).collect();
        let tells = |filter: Option<&Filter>| filter.is_some_and(|filter| filter.names(Field::Verification));
        let own = sink.filter.as_ref();
        let all_tell = of_sink.iter().all(|channel| tells(channel.filters.get(name).or(own)));
        if !all_tell || of_sink.is_empty() && !tells(own) {
            wrong(
                "cannot be \"raw\" without a filter on verification: the event alone does not say whether it was proved; add \
                 filter = { verification = [\"verified\"] }",
            );
        }
        if of_sink.len() > 1 && matches!(sink.settings, SinkSettings::File(_)) {
            wrong(
                "cannot be \"raw\" for a file of several channels, whose events could not be told apart; use \"json\", or a \
                 sink for each channel",
            );
        }
    }
}

/// Tries the templates with samples of the events that their sinks get.
pub(crate) fn try_templates(sinks: &Section<'_>, channels: &[Channel], all: &BTreeMap<String, Sink>) {
    for (name, sink) in all {
        let Some(template) = &sink.shape.template else { continue };
        let used = channels.iter().filter(|channel| channel.sinks.contains(name));
        let mut filters: Vec<Option<&Filter>> =
            used.map(|channel| channel.filters.get(name).or(sink.filter.as_ref())).collect();
        if filters.is_empty() {
            filters.push(sink.filter.as_ref());
        }
        let problems = template.try_samples(sink.shape.include_proof, |facts| {
            filters.iter().any(|filter| filter.is_none_or(|filter| filter.takes(facts)))
        });
        let key = if template.shipped().is_some() { "template" } else { "template_file" };
        for problem in problems {
            sinks.section(name).wrong(key, problem);
        }
    }
}
