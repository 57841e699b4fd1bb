//! `channeld test-sink`: sends one marked sample to one sink.
//!
//! # Invariants
//!
//! * **No cursor moves.** The state is neither opened nor queried. A sink that must contain each event exactly once is only
//!   inspected, and nothing is written to it.
//! * **No secrets** in the output, even if the answer of the endpoint contains them.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::verdict_line::printable;
use crate::config::Sink;
use net::Chain;
use record::{Message, Record};
use sink::{Delivery, LaneRef, OpenFiles, SinkError, Tested};
use telemetry::metrics::Metrics;

/// Deliver one test event to a sink, and print the answer.
///
/// The test event is marked: its type is channeld.test, its channel has the name channeld-test and the id
/// 00000000-0000-0000-0000-000000000000, it says that nothing has happened, and it has no proof. It is sent in the
/// format of the sink, with its template, signature and access token. The filter of the sink is ignored. No cursor
/// moves, and a running daemon is not affected. A file sink is only checked and nothing is written to it, because each
/// of its lines must be a real event, exactly once. Exits with 69 if the sink cannot be reached or asks to retry later,
/// with 1 if its answer is an error that needs your attention, and with 64 if no sink has this name.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld test-sink ledger")]
pub(crate) struct Args {
    /// The name of the sink in the configuration.
    name: String,
    /// Print one JSON object with sink, ok, delivered and message.
    #[arg(long)]
    json: bool,
}

/// The result of the test.
#[derive(Serialize)]
struct TestResult<'a> {
    sink: &'a str,
    ok: bool,
    delivered: bool,
    message: String,
}

pub(crate) async fn run(Args { name, json }: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let config = cx.config()?;
    let Some(sink) = config.sinks.get(name) else {
        let known: Vec<_> = config.sinks.keys().map(String::as_str).collect();
        let message = format!("unknown sink {}; the sinks are: {}", printable(name), known.join(", "));
        return Err(CommandError::usage(message));
    };
    let tested = test(name, sink).await;
    let exit = match &tested {
        Ok(_) => Exit::Done,
        Err(error) if error.needs_attention() => Exit::Failed,
        Err(_) => Exit::Unavailable,
    };
    let (delivered, message) = match tested {
        Ok(Tested::Delivered(message)) => (true, message),
        Ok(Tested::Checked(message)) => (false, message),
        Err(error) => (false, Chain(&error).to_string()),
    };
    let message = sink.shape.template.as_ref().map_or(message.clone(), |template| template.redacted(message));
    let outcome = TestResult { sink: name, ok: exit == Exit::Done, delivered, message: printable(&message) };
    if *json {
        cx.say_json(&outcome)?;
    } else if outcome.ok {
        let how = if delivered { "delivered" } else { "checked, nothing delivered" };
        cx.say(format!("sink {name}: {how}: {}", outcome.message))?;
    } else {
        return Err(CommandError(exit, format!("sink {name}: {}", outcome.message)));
    }
    Ok(exit)
}

async fn test(name: &str, sink: &Sink) -> Result<Tested, SinkError> {
    let record = Arc::new(Record::of_test(name, Uuid::new_v4(), Timestamp::now()));
    let messages = [Message::new(&record, &sink.shape)];
    if let Some(why) = messages[0].unshaped() {
        let message = format!("the body of the test event could not be made: {why}");
        return Err(SinkError::refused(message));
    }
    let built = sink.settings.build(name, &OpenFiles::default(), &Metrics::default())?;
    let lane = LaneRef { channel: record.channel.clone(), sink: name.into() };
    built.test(&Delivery { lane: &lane, epoch: 0, after: None, through: record.offset, messages: &messages }).await
}
