//! The commands that the operator pastes after the configuration is written.

use std::path::Path;

use super::answers::ConfigAnswers;
use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::terminal::shell_word;

/// Prints three commands: one runs channeld, one shows its condition, and one shows the events. For a table, prints a query too,
/// and for a feed, a request.
pub(super) fn say(answers: &ConfigAnswers, file: &Path, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let config = format!("--config {}", shell_word(&file.display().to_string()));
    let output = if answers.sink.is_stdout() { ">events.jsonl " } else { "" };
    let look = match answers.sink.look() {
        _ if answers.sink.is_table() => format!("channeld console {config}"),
        _ if answers.sink.is_stdout() => "tail -f events.jsonl".to_owned(),
        Some(look) => look,
        None => format!("channeld tail {config}"),
    };
    let file = file.display();
    cx.say(format!(
        "\n{file} is written. Run channeld, watch it (q quits), and see the events:\n  \
         channeld run {config} {output}2>channeld.log &\n  channeld status --watch {config}\n  {look}"
    ))?;
    if let (true, Some(query)) = (answers.sink.is_table(), answers.sink.look()) {
        cx.say(format!("\nQuery the table:\n  {query}"))?;
    }
    if let (Some(feed), [(channel, _), ..]) = (&answers.feed, &answers.channels[..]) {
        cx.say(format!("\nRead the feed, while channeld runs:\n  {}", feed.look(channel)))?;
    }
    Ok(Exit::Done)
}
