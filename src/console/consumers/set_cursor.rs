//! Sets the cursor of a consumer: asks for the new cursor, describes the effect, and sends the change to the daemon.

use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::{Unlisted, address, cursor_or_dash, list, number, positions};
use crate::access::guard::READ_ONLY;
use crate::change::{Confirmation, finished};
use crate::page::{PageRequest, member, time};
use crate::state::State;
use crate::text::{text, whole};
use operator::api::SetConsumerCursor;
use operator::feed::FeedConsumer;

/// The page to which a change returns.
const BACK: &str = "/consumers";

/// The name of the change in its address and in the log.
const NAME: &str = "set-cursor";

/// Describes the change and asks for confirmation. Without a usable cursor in the address, asks for the cursor.
pub(crate) async fn confirm(request: PageRequest) -> Response {
    if request.visitor.read_only {
        return request.problem(StatusCode::FORBIDDEN, READ_ONLY).await;
    }
    let member = |name| member(request.query.as_bytes(), name).filter(|value| !value.is_empty());
    let (Some(consumer), Some(channel)) = (member("consumer"), member("channel")) else {
        return request.problem(StatusCode::NOT_FOUND, "This request is unknown or incomplete.").await;
    };
    let entry = match find(&request.state, &consumer, &channel).await {
        Ok(entry) => entry,
        Err((status, why)) => return request.problem(status, &why).await,
    };
    let typed = member("cursor");
    let cursor = typed.as_deref().map(|typed| cursor(&entry, typed));
    match cursor {
        Some(Ok(cursor)) => confirmation(&entry, cursor).page(&request).await,
        Some(Err(why)) => request.page("Set the cursor", "", &choice(&entry, typed.as_deref(), Some(&why))).await,
        None => request.page("Set the cursor", "", &choice(&entry, None, None)).await,
    }
}

/// Makes the change.
pub(crate) async fn carry_out(request: PageRequest, body: String) -> Response {
    let member = |name| member(body.as_bytes(), name).filter(|value| !value.is_empty());
    let cursor = member("cursor").and_then(|cursor| cursor.parse().ok());
    let (Some(consumer), Some(channel), Some(cursor)) = (member("consumer"), member("channel"), cursor) else {
        return request.problem(StatusCode::BAD_REQUEST, "The form is incomplete.").await;
    };
    let PageRequest { state, visitor, .. } = &request;
    let set = SetConsumerCursor { consumer: consumer.clone(), channel: channel.clone(), through: cursor };
    let set = state.daemon.ask_for(visitor.number, &set).await;
    let result = set.map(|_| format!("The cursor of {consumer} in channel {channel} is now {cursor}."));
    finished(&request, NAME, result, BACK)
}

async fn find(state: &State, consumer: &str, channel: &str) -> Result<FeedConsumer, (StatusCode, String)> {
    let listed = list(&state.daemon).await.map_err(|unlisted| match unlisted {
        Unlisted::NoFeed => (StatusCode::NOT_FOUND, "The daemon has no feed.".to_owned()),
        Unlisted::Failed(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    })?;
    let found = listed.into_iter().find(|entry| entry.consumer == consumer && entry.channel == channel);
    found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("The feed has no consumer {consumer} in channel {channel}.")))
}

/// Reads a cursor that was typed. The error says which cursors are possible.
fn cursor(entry: &FeedConsumer, typed: &str) -> Result<i64, String> {
    let (typed, range) = (typed.trim(), entry.possible_cursors());
    if let Some(cursor) = typed.parse().ok().filter(|cursor| range.contains(cursor)) {
        return Ok(cursor);
    }
    let why = if typed.parse().is_ok_and(|cursor: i64| (0..*range.start()).contains(&cursor)) {
        "The events after this position were deleted. "
    } else {
        ""
    };
    Err(format!("{why}The cursor must be a whole number from {} to {}.", range.start(), range.end()))
}

/// Asks for the new cursor.
fn choice(entry: &FeedConsumer, typed: Option<&str>, why: Option<&str>) -> Markup {
    let range = entry.possible_cursors();
    html! {
        div.confirm {
            h1 { "Set the cursor" }
            p { "Consumer " strong { (text(&entry.consumer)) } ", channel " strong { (text(&entry.channel)) } ". Delivery continues with the event after the cursor." }
            p.note { "The cursor is a position, not an offset. Positions number the events of the channel in the order in which they were written: 1, 2, 3." }
            dl.numbers {
                div { dt { "Cursor" } dd { (cursor_or_dash(entry)) } }
                div { dt { "Oldest position" } dd { (entry.oldest.map_or_else(|| "–".to_owned(), |oldest| oldest.to_string())) } }
                div { dt { "Newest position" } dd { (entry.newest) } }
                div { dt { "Lag" } dd { (number(entry.lag)) } }
            }
            @if let Some(why) = why { p.notice.bad #wrong role="alert" { (whole(why)) } }
            form method="get" action={ "/do/" (NAME) } {
                input type="hidden" name="consumer" value=(entry.consumer);
                input type="hidden" name="channel" value=(entry.channel);
                label.other {
                    span { "New cursor, a position from " (range.start()) " to " (range.end()) }
                    input type="text" name="cursor" inputmode="numeric" autocomplete="off" required autofocus value=[typed]
                        aria-invalid=[why.map(|_| "true")] aria-describedby=[why.map(|_| "wrong")];
                }
                div.actions {
                    button.primary type="submit" { "Review the change…" }
                    a.button href=(BACK) { "Cancel" }
                }
            }
            div.actions {
                @if entry.through != *range.start() { a.button.small href=(address(entry, Some(*range.start()))) { "Deliver from the oldest event…" } }
                @if entry.through != *range.end() { a.button.small.danger href=(address(entry, Some(*range.end()))) { "Skip all events…" } }
            }
        }
    }
}

fn confirmation(entry: &FeedConsumer, cursor: i64) -> Confirmation {
    let title = format!("Set the cursor to {cursor}");
    Confirmation {
        button: title.clone(),
        title,
        effects: effects(entry, cursor),
        action: format!("/do/{NAME}"),
        members: vec![
            ("consumer", entry.consumer.clone()),
            ("channel", entry.channel.clone()),
            ("cursor", cursor.to_string()),
        ],
        fields: html! {},
        is_final: cursor > entry.through,
        back: BACK.to_owned(),
    }
}

/// Describes the effect. Each element is a paragraph. The consumer may commit more events before the change is made, so the
/// first sentence is true for any cursor that it has then.
fn effects(entry: &FeedConsumer, cursor: i64) -> Vec<Markup> {
    let consumer = html! { "consumer " (text(&entry.consumer)) };
    let channel = text(&entry.channel);
    let last = entry.through.min(entry.newest);
    let mut effects = vec![if cursor < entry.through {
        html! {
            "Events of channel " (channel) " after position " (cursor) " will be delivered again to " (consumer) "."
            @if cursor < last { " It has already committed " (positions(cursor + 1, last)) "." }
        }
    } else {
        html! {
            "Events of channel " (channel) " up to position " (cursor) " will not be delivered again to " (consumer) "."
            @if cursor > entry.through { " " strong { "It has not committed " (positions(entry.through + 1, cursor)) ", and skips them." } }
            @else { " This is already its cursor." }
        }
    }];
    if let Some(until) = entry.leased_until {
        effects.push(html! {
            "Its lease, which is valid until " (time(Some(until))) " UTC, ends. A commit of this lease is answered 409."
        });
    }
    effects.push(html! { "A client that stores its position itself is not affected." });
    effects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumers::tests::{behind, gone};

    fn effects_of(entry: &FeedConsumer, cursor: i64) -> String {
        effects(entry, cursor).into_iter().map(Markup::into_string).collect()
    }

    #[test]
    fn the_confirmation_says_which_events_are_skipped_or_repeated() {
        let forward = effects_of(&behind(), 40);
        assert!(
            forward.contains("up to position 40 will not be delivered again to consumer <bdi>ledger</bdi>"),
            "{forward}"
        );
        assert!(forward.contains("has not committed positions 13 to 40, and skips them"), "{forward}");
        let back = effects_of(&behind(), 11);
        assert!(back.contains("after position 11 will be delivered again to consumer <bdi>ledger</bdi>"), "{back}");
        assert!(back.contains("already committed position 12.") && !back.contains("skips"), "{back}");
        let restored = FeedConsumer { through: 50, lag: -10, ..behind() };
        assert!(
            !effects_of(&restored, 40).contains("committed"),
            "the table was restored and has no event after position 40"
        );
        let same = effects_of(&behind(), 12);
        assert!(same.contains("already its cursor") && !same.contains("skips"), "{same}");
    }

    #[test]
    fn the_confirmation_says_that_a_lease_ends() {
        assert!(!effects_of(&behind(), 0).contains("lease"));
        let leased = FeedConsumer { leased_until: behind().waiting_since, ..behind() };
        assert!(effects_of(&leased, 0).contains("answered 409"));
    }

    #[test]
    fn only_a_cursor_with_which_the_consumer_can_read_is_accepted() {
        for (entry, typed, expected) in [
            (behind(), "0", Ok(0)),
            (behind(), " 40 ", Ok(40)),
            (behind(), "41", Err("The cursor must be a whole number from 0 to 40.")),
            (behind(), "-1", Err("The cursor must be a whole number from 0 to 40.")),
            (behind(), "1.5", Err("The cursor must be a whole number from 0 to 40.")),
            (behind(), "99999999999999999999", Err("The cursor must be a whole number from 0 to 40.")),
            (gone(), "20", Ok(20)),
            (
                gone(),
                "19",
                Err("The events after this position were deleted. The cursor must be a whole number from 20 to 40."),
            ),
        ] {
            assert_eq!(cursor(&entry, typed), expected.map_err(str::to_owned), "{typed}");
        }
    }

    #[test]
    fn a_refused_cursor_is_shown_with_the_reason() {
        let page = choice(&behind(), Some("<41>"), Some("Too high.")).into_string();
        assert!(page.contains("value=\"&lt;41&gt;\"") && page.contains("aria-describedby=\"wrong\""), "{page}");
        assert!(page.contains("role=\"alert\"") && page.contains("Too high."), "{page}");
        let first = choice(&behind(), None, None).into_string();
        assert!(!first.contains("aria-invalid") && first.contains("from 0 to 40"), "{first}");
        assert!(first.contains("cursor=40\"") && first.contains("cursor=0\""), "{first}");
    }
}
