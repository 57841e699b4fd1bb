//! `format`, `include_proof` and `template…`: the shape of the records that a sink writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use strum::VariantNames;

use super::settings::{Sink, SinkSettings, SinkType};
use crate::config::reading::values::{text_if, word};
use crate::config::reading::{Reported, Section};
use crate::config::sources::files::read_named;
use crate::config::tables::channel::Channel;
use ::record::{BuiltInTarget, Field, Filter, Format, JSON, Shape, Source, Template, VOCABULARY};
use ::sink::Dispatch;
use net::secret::Secret;

/// The largest template, in bytes.
const TEMPLATE_LIMIT: usize = 256 * 1024;

/// The longest media type, and the longest name of a template value.
const CONTENT_TYPE_LIMIT: usize = 128;
const NAME_LIMIT: usize = 64;

/// The keys and the tables of a template.
const KEYS: [&str; 3] = ["template", "template_file", "template_content_type"];
const TABLES: [&str; 3] = ["template_values", "template_value_files", "template_value_commands"];

/// Reads the shape for a sink of this type.
pub(super) fn read(sink: &Section<'_>, kind: SinkType) -> Result<Shape, Reported> {
    let format = sink.or("format", word, Format::default().into());
    let include_proof = sink.boolean("include_proof", false);
    let template = match format {
        Ok(Format::Template) => read_template(sink).map(Some),
        // Only these two types document the keys of a template, so a key without its format gets this message. For the other
        // types, the key is unknown.
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
            Some("a table, because its column \"record\" must contain the data that has no column of its own")
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
    let source = match sink.one_of([shipped, file]) {
        Ok(Some("template")) => sink.optional(shipped, word).map(|read| read.map(Source::Shipped)),
        Ok(Some(_)) => sink
            .file(file, |path| read_named(path, TEMPLATE_LIMIT))
            .map(|read| read.map(|text| Source::Own(text.into()))),
        Ok(None) => Ok(None),
        Err(reported) => Err(reported),
    };
    let media = sink.optional(content_type, media_type);
    let values = read_values(sink);
    let (source, media, values) = (source?, media?, values?);
    let Some(source) = source else {
        let names: Vec<_> = BuiltInTarget::VARIANTS.iter().map(|name| format!("{name:?}")).collect();
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
    text_if(legal, text, "must be a media type, such as \"application/json\" or \"text/plain\"")
}

/// Reads the operator's own values: one table contains the values that are not secret, and the others name the files with the
/// secrets and the programs that print them.
fn read_values(sink: &Section<'_>) -> Result<BTreeMap<String, Secret>, Reported> {
    let (mut values, mut outcome) = (BTreeMap::new(), Ok(()));
    sink.named_values(
        TABLES,
        |text| Ok(Secret::new(text)),
        |table, name, value| match value {
            _ if !is_name(name) => {
                let message =
                    "must be a name that a template can use: letters, digits and _, 64 at most, no digit first";
                table.wrong(name, message);
            }
            Ok(value) => {
                if values.insert(name.to_owned(), value).is_some() {
                    table.wrong(name, "is set twice, here and in another table; keep one");
                }
            }
            Err(reported) => outcome = Err(reported),
        },
    )?;
    outcome.map(|()| values)
}

fn is_name(name: &str) -> bool {
    let legal = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    legal && name.len() <= NAME_LIMIT && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Checks the shape of a sink with its settings, and with the channels that use it.
pub(super) fn check_use(section: &Section<'_>, sink: &Sink, channels: &[Channel]) {
    let (name, Shape { format, include_proof, template }) = (section.key.name(), &sink.shape);
    if *format != Format::Raw && template.is_none() {
        return;
    }
    let own = sink.filter.as_ref();
    let used = channels.iter().filter(|channel| channel.sinks.iter().any(|sink| sink == name));
    let mut filters: Vec<_> = used.map(|channel| channel.filters.get(name).or(own)).collect();
    let is_used_often = filters.len() > 1;
    if filters.is_empty() {
        filters.push(own);
    }
    // The event of the service contains neither its verification nor its channel.
    let tells = |filter: Option<&Filter>| filter.is_some_and(|filter| filter.names(Field::Verification));
    if *format == Format::Raw && !filters.iter().copied().all(tells) {
        let message = "cannot be \"raw\" without a filter on verification: the event alone does not say whether it was \
                       proved; add filter = { verification = [\"verified\"] }";
        section.wrong("format", message);
    }
    if *format == Format::Raw && is_used_often && matches!(sink.settings, SinkSettings::File(_)) {
        let message = "cannot be \"raw\" for a file of several channels, whose events could not be told apart; use \
                       \"json\", or a sink for each channel";
        section.wrong("format", message);
    }
    let Some(template) = template else { return };
    let is_shipped = template.shipped().is_some();
    if let SinkSettings::Webhook(webhook) = &sink.settings
        && let Dispatch::Batches { .. } = webhook.dispatch
    {
        let one_event = "cannot be more than 1 with a shipped template: its target accepts one event per request";
        let no_json =
            "cannot be more than 1 with a template whose output is not JSON: the bodies could not be separated";
        if is_shipped {
            section.wrong("batch_events", one_event);
        } else if !template.makes_json() {
            section.wrong("batch_events", no_json);
        }
    }
    // Try the template with samples of the events that the sink gets.
    let problems = template.try_samples(*include_proof, |facts| {
        filters.iter().any(|filter| filter.is_none_or(|filter| filter.takes(facts)))
    });
    for problem in problems {
        section.wrong(if is_shipped { "template" } else { "template_file" }, problem);
    }
}
