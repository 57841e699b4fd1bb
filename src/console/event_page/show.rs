//! Shows an event: its parameters and its place on the chain, its signers, its history, its signed and its unsigned content, and
//! its bytes.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::shown_event::{Examination, ShownEvent};
use super::{happened, history, proof};
use crate::page::{Badge, PageRequest, time, with_copy_button};
use crate::text::{Json, is_failure, text, whole};
use crate::watchers::WatcherNames;
use ::proof::event::{EventType, Object, Proofs};
use ::proof::verify::{Dissected, Verdict, Verified, Verifier};
use channel::grouped;
use net::tasks::joined;
use operator::verifier_of;
use record::{Confidence, ObjectVerdict, decode, printable};

/// Returns the page. If the query contains `part=history`, returns only the history. The page requests this part
/// repeatedly.
pub(super) async fn show(request: &PageRequest, mut found: ShownEvent) -> Response {
    let asks = |what: &str| request.query.split('&').any(|member| member == what);
    let is_again = asks("verify=1");
    let verifier = verifier_of(&request.state.channels, &found.channel_id.to_string()).map(|(_, verifier)| verifier);
    let examined = match verifier {
        Err(_) => None,
        Ok(verifier) => {
            let json = found.json.clone();
            Some(joined(spawn_blocking(move || examine(&json, verifier)).await).await)
        }
    };
    let steps = history::show(&found.full_history(examined.as_ref().and_then(Examination::proved)));
    if asks("part=history") {
        return steps.into_response();
    }
    let event = examined.as_ref().and_then(|examined| examined.event.as_ref());
    let signed = event.and_then(|event| event.payload.signed.as_deref());
    let decoded = signed.and_then(decode);
    let named =
        decoded.as_ref().and_then(|decoded| Object::read(decoded.get().as_bytes()).ok()?.get::<String>("name").ok()?);
    let kind = event.map_or_else(|| "malformed".to_owned(), |event| event.kind.as_ref().to_owned());
    let heading = named.clone().unwrap_or_else(|| kind.clone());
    let title = printable(&heading);
    let verdict = examined.as_ref().map_or(found.stored_verdict, |examined| Badge::of(examined.outcome.status));
    // If the two verdicts differ, the page says so, even without a request to verify again.
    let differs = examined.is_some() && verdict != found.stored_verdict;
    let decoded = decoded.as_deref().map(serde_json::value::RawValue::get);
    let watchers = WatcherNames::of(request.state.daemon.recent_report().await.as_deref());
    let content = html! {
        nav.crumbs aria-label="Breadcrumb" {
            span { a href=(found.list.0) data-key="Escape" { (found.list.1) } " / " (text(&found.channel)) " / " (found.offset) }
            (found.neighbors)
        }
        div.heading {
            div {
                h1 { (text(&heading)) }
                p.sub { (text(&kind)) " · channel " (text(&found.channel)) " · offset " (found.offset)
                    @if let Some(event_id) = &found.event_id { " · event " (with_copy_button("the id of the event", event_id, event_id)) } }
            }
            div.actions {
                @if verdict != Badge::Unsigned { a.button href="?verify=1#verdict" { "Verify again" } }
                (found.actions)
            }
        }
        (found.notice)
        @match &examined {
            None => p.notice.warn { "This channel is not configured, so its events cannot be verified." },
            Some(examined) => (verdict_box(examined, is_again, differs.then_some((found.stored_verdict_intro, found.stored_verdict)))),
        }
        (happened::show(decoded, found.event.as_deref(), verdict, &request.state.explorers, &watchers))
        @if let Some(examined) = &examined { (proof::show(examined, verdict, &request.state.signer_names)) }
        section aria-labelledby="history" {
            h2 #history { "Event history " span.sub { "UTC" } }
            div data-again="?part=history" { (steps) }
        }
        (side_by_side(&found, verdict, decoded))
        (bytes(&found))
    };
    request.page(&title, "", &content).await
}

fn examine(json: &Bytes, verifier: Verifier) -> Examination {
    let began = std::time::Instant::now();
    let (outcome, verdict) = ObjectVerdict::of(json, &verifier);
    let event = verdict.as_ref().and_then(|verdict| verdict.parts().1);
    let dissected = event.as_ref().and_then(|event| match &event.proofs {
        Proofs::One(ocr) => Dissected::of(ocr, proof::MOST_SIGNATURES),
        _ => None,
    });
    Examination { outcome, verdict, event, dissected, verifier, took: began.elapsed() }
}

/// The verifier's verdict as a sentence.
fn verdict_box(examined: &Examination, is_again: bool, stored: Option<(&str, Badge)>) -> Markup {
    let badge = Badge::of(examined.outcome.status);
    let sentence = match (&examined.verdict, examined.outcome.reason) {
        (Some(Verdict::Verified(verified)), None) => format!(
            "The proof is valid: {} of {} required signatures cover this content and your workflow owner. The signer set has {} members.",
            verified.proof().signers.len(),
            verified.proof().required,
            examined.verifier.signers.addresses().len()
        ),
        (Some(Verdict::Unsigned(_)), None) => {
            "This event is a notice: it has no signed content. Its content comes from the service and cannot be verified."
                .to_owned()
        }
        (Some(Verdict::Pending(_)), None) => "The proof of this event has not arrived yet.".to_owned(),
        (Some(Verdict::Rejected(_, reason)), _) => format!("The proof is invalid: {reason}."),
        (_, Some("record-mismatch")) => {
            "The record's fields differ from the event that it contains: the row was changed after delivery.".to_owned()
        }
        (_, reason) => format!("The event cannot be verified: {}.", reason.unwrap_or("the record contains no event")),
    };
    html! {
        div #verdict .verdict.{ (examined.outcome.status) } role=[is_again.then_some("status")] {
            (badge.show())
            div {
                p { strong { @if is_again { "Verified again at " (time(Some(Timestamp::now()))) " UTC. " } } (whole(&sentence))
                    @if badge == Badge::Verified { " " a href="#proof" { "Show the signers" } } }
                @if let (Some(Verdict::Verified(verified)), None) = (&examined.verdict, examined.outcome.reason) { (finality(verified)) }
                @if is_again { p.sub { "Verified with the currently configured signers in " (examined.took.as_micros() / 1000) " ms." } }
                @if let Some((stored, before)) = stored { p.bad { (stored) (before.show()) "." } }
            }
        }
    }
}

/// How final the event is. A valid proof does not say that.
fn finality(verified: &Verified) -> Markup {
    let (confidence, network) = record::confidence_and_network(verified);
    let event = verified.event();
    let status = event.payload.status.as_deref().filter(|_| event.kind == EventType::OperationStatus);
    let mark = |is_final: bool| {
        html! { span.pill.good[is_final].warn[!is_final] { @if is_final { "final" } @else { "not final" } } " " }
    };
    html! {
        p.sub {
            @match (status, confidence) {
                (Some(status), _) => {
                    @if !is_failure(status) { (mark(status == "confirmed")) } "Status: " span.bad[is_failure(status)] { (text(status)) } ". Only the status confirmed is final."
                }
                (None, Some(Confidence::Finalized)) => { (mark(true)) "Confidence: finalized." }
                (None, Some(confidence)) => { (mark(false)) "Confidence: " (confidence.name()) ". The chain may still drop this event." }
                (None, None) if event.kind == EventType::WatcherEvent => {
                    (mark(false)) "Confidence: none is signed, so the chain may still drop this event."
                }
                _ => {},
            }
            @if let Some(network) = network { " Network: " (network) "." }
        }
    }
}

/// Shows the signed content on one side and everything else on the other side. Without signed content, shows one side.
fn side_by_side(found: &ShownEvent, verdict: Badge, decoded: Option<&str>) -> Markup {
    let rest = found.event.as_ref().map(without_proof);
    html! {
        div.sides {
            @if let Some(decoded) = decoded {
                section.side.signed.claimed[verdict != Badge::Verified] aria-labelledby="signed" {
                    header {
                        h2 #signed { @if verdict == Badge::Verified { "Signed by the network" } @else { "Unverified content" } }
                        p { @match verdict {
                            Badge::Verified => "The signatures cover this content completely.",
                            Badge::Pending => "The proof of this content has not arrived yet.",
                            _ => "The signatures do not prove this content: do not act on it.",
                        } }
                    }
                    (Json(decoded))
                }
            }
            section.side.unsigned aria-labelledby="unsigned" {
                header {
                    h2 #unsigned { "Not signed" }
                    p { @if decoded.is_some() { "The rest of the service's event, without the signed content and the proof." }
                        @else { "No part of this event is signed. The service says:" } }
                }
                @match &rest {
                    Some(rest) => (Json(rest)),
                    None => div.blank { "The format of this sink does not include the service's event." },
                }
            }
        }
    }
}

/// The service's event without the proof and without the signed text. The page shows these two separately.
fn without_proof(event: &Bytes) -> String {
    fn walk(json: &str, depth: usize) -> Option<String> {
        let object = Object::read(json.as_bytes()).ok().filter(|_| depth < 3)?;
        let members = object.members().filter_map(|(name, value)| {
            let shown = match name {
                "proofs" | "verifiable_event" | "verifiable_result" => return None,
                "headers" | "payload" => walk(value.get(), depth + 1).unwrap_or_else(|| value.get().to_owned()),
                _ => value.get().to_owned(),
            };
            Some(format!("{}:{shown}", serde_json::Value::from(name)))
        });
        Some(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
    }
    let text = String::from_utf8_lossy(event);
    walk(&text, 0).unwrap_or_else(|| text.into_owned())
}

fn bytes(found: &ShownEvent) -> Markup {
    const SHOWN: usize = 100_000;
    let Some(event) = &found.event else { return html! {} };
    let text = String::from_utf8_lossy(event);
    html! {
        section aria-labelledby="bytes" {
            h2 #bytes { "Raw bytes" }
            p.sub { "The service's event as received, " (grouped(event.len() as u64)) " bytes. "
                "To check this text yourself, pass it to " code { "channeld verify" } "." }
            div.actions {
                @if event.len() <= SHOWN { button type="button" data-copy-from="raw" { "Copy" } }
                @if !found.raw.is_empty() { a.button href=(found.raw) download { "Download" } }
            }
            details {
                summary { "Show" }
                // The copy button copies this text, so invisible characters stay as they are.
                textarea #raw readonly rows="12" spellcheck="false" dir="ltr" aria-label="Raw bytes" {
                    (text.chars().take(SHOWN).collect::<String>())
                }
            }
        }
    }
}
