//! `channeld schema`: prints the JSON Schema of the configuration or the record, or the OpenAPI description of the feed, for editors
//! and programs.

use serde_json::to_string_pretty;

use crate::cli::context::{CommandError, Context, Exit};
use crate::config;

/// Print a JSON Schema of the configuration or a record, or the OpenAPI description of the feed.
///
/// A JSON Schema uses draft 2020-12, and the description of the feed uses OpenAPI 3.1. An editor with support for TOML can use it to complete and check the configuration. A
/// schema checks one value at a time. Only `channeld check` says whether a configuration is valid.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld schema config > channeld.schema.json
  channeld schema record > channeld-record.schema.json
  channeld schema feed > channeld-feed.openapi.json

The first line of a configuration with the schema in the same directory, for an editor:
  #:schema ./channeld.schema.json")]
pub(crate) struct Args {
    /// The format that the schema describes.
    #[arg(value_enum)]
    what: SchemaKind,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SchemaKind {
    /// The configuration file, channeld.toml(5).
    Config,
    /// The record that a sink receives for an event in the format "json", channeld-record(5).
    Record,
    /// The calls with which applications read the feed.
    Feed,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let schema = match args.what {
        SchemaKind::Config => config::schema(),
        SchemaKind::Record => record::schema(),
        SchemaKind::Feed => feed::openapi(),
    };
    cx.say(to_string_pretty(&schema).expect("its keys are strings"))
}
