//! `channeld schema`: prints the JSON Schema of the configuration or the record, for editors and programs.

use std::io::Write;

use serde_json::to_string_pretty;

use crate::cli::exit::{Exit, Failure};
use crate::cli::output::say;
use crate::config;

/// Print a JSON Schema (draft 2020-12) of the configuration file or of a delivered record.
///
/// An editor with support for TOML completes and checks the configuration by it. A schema sees one value at a time: `channeld
/// check` alone says whether a configuration can be used.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld schema config > channeld.schema.json
  channeld schema record > channeld-record.schema.json

The first line of a configuration with the schema in the same directory, for an editor:
  #:schema ./channeld.schema.json")]
pub(crate) struct Args {
    /// What is described.
    #[arg(value_enum)]
    what: What,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// The configuration file, channeld.toml(5).
    Config,
    /// What a sink is given for an event, channeld-record(5), as the format "json".
    Record,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<Exit, Failure> {
    let schema = match args.what {
        What::Config => config::schema(),
        What::Record => record::schema(),
    };
    say(out, to_string_pretty(&schema).expect("every key of it is a text"))
}
