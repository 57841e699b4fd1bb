//! Watches the events that the running daemon delivers to its sinks.

use std::io::Write;
use std::time::Duration;

use tokio::time::sleep;

use super::printer::{Printer, hint, note};
use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::terminal::event_line::EventLine;
use operator::api::{TailedDeliveries, TailedEvent, WatchTail};

/// The pause between two requests. Events that are delivered during the pause arrive together.
const BETWEEN: Duration = Duration::from_millis(100);

/// The wait before a daemon that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Watches until the requested number of events has been shown. Returns `false` if no daemon runs. If the daemon ends
/// later, waits for it to return.
pub(super) async fn watch(
    mut request: WatchTail,
    operator: &Operator,
    mut printer: Printer,
    out: &mut impl Write,
) -> Result<bool, Failure> {
    let (mut has_answered, mut complained, mut elsewhere) = (false, false, Vec::new());
    loop {
        match operator.answer(&request).await {
            Ok(Some(answer)) => {
                if !has_answered || complained {
                    hint("watching what the daemon's sinks take; Ctrl-C ends");
                }
                (has_answered, complained) = (true, false);
                if answer.elsewhere != elsewhere && !answer.elsewhere.is_empty() {
                    note(&format!(
                        "not shown, because other instances work them: {}; name one of them to watch it",
                        answer.elsewhere.join(", ")
                    ));
                }
                elsewhere.clone_from(&answer.elsewhere);
                request.from = Some(answer.next);
                if show(answer, &mut printer, out)? {
                    return Ok(true);
                }
                sleep(BETWEEN).await;
            }
            Ok(None) if !has_answered => return Ok(false),
            Err(failure) if !has_answered || failure.0 == Exit::Usage => return Err(failure),
            Ok(None) | Err(_) => {
                if !complained {
                    note("the daemon does not answer any more; waiting for it");
                }
                (complained, request.from) = (true, None);
                sleep(ASK_AGAIN).await;
            }
        }
    }
}

fn show(answer: TailedDeliveries, printer: &mut Printer, out: &mut impl Write) -> Result<bool, Failure> {
    if answer.missed > 0 {
        note(&format!("{} deliveries came faster than they could be shown", answer.missed));
    }
    let event = |TailedEvent { is_late, line, record, .. }: TailedEvent| {
        (EventLine { parts: line, is_late }, record.get().to_owned())
    };
    printer.print(out, answer.events.into_iter().map(event))
}
