//! The summary of a valid configuration, as text or as JSON.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::config::shown::{Shown, object, row};

/// The summary as one JSON object.
pub(super) fn json(config: &Config) -> Value {
    let sinks = config.sinks.iter().map(|(name, sink)| (name.clone(), object(sink.shown())));
    json!({
        "valid": true,
        "base_url": config.api.client.base_url.as_str(),
        "state_path": config.state.path.display().to_string(),
        "admin_listen": config.listen,
        "channels": config.channels.iter().map(|channel| object(channel.shown())).collect::<Vec<_>>(),
        "sinks": sinks.collect::<Map<_, _>>(),
        "notes": config.notes,
    })
}

/// Writes the summary as text.
pub(super) fn write(out: &mut impl Write, config: &Config) -> io::Result<()> {
    writeln!(out, "The configuration is valid.\n")?;
    writeln!(out, "service  {}", config.api.client.base_url)?;
    writeln!(out, "state    {}", state(config))?;
    writeln!(out, "admin    {}", config.listen.map_or("off".to_owned(), |listen| listen.to_string()))?;
    for channel in &config.channels {
        // The heading shows the name.
        let shown = channel.shown().into_iter().filter(|(name, _)| *name != "name").collect();
        write_block(out, "channel", &channel.channel.name, &shown)?;
    }
    for (name, sink) in &config.sinks {
        write_block(out, "sink", name, &sink.shown())?;
    }
    if !config.notes.is_empty() {
        writeln!(out)?;
    }
    config.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))
}

fn write_block(out: &mut impl Write, what: &str, name: &str, shown: &Shown) -> io::Result<()> {
    writeln!(out, "\n{what} {name}")?;
    let rows: Vec<_> = shown.iter().filter_map(|(name, value)| row(name, value)).collect();
    let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    rows.iter().try_for_each(|(label, text)| writeln!(out, "  {label:width$}  {text}"))
}

fn state(Config { state, .. }: &Config) -> String {
    let path = state.path.display();
    match &state.database {
        None => path.to_string(),
        Some(database) => {
            format!("schema {} of a shared database, as instance {} in {path}", database.schema, database.instance)
        }
    }
}
