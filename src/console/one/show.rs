//! Shows an event: its signed and its unsigned content, its signers, the contents of the report, and its journey.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::event::{Examined, Found};
use super::{journey, proof};
use crate::page::{Badge, Visit, time};
use crate::text::{Json, text, whole};
use ::proof::event::{Object, Proofs};
use ::proof::verify::{Dissected, Verdict, Verifier};
use channel::grouped;
use net::tasks::joined;
use operator::verifier_of;
use record::{ObjectVerdict, decode, printable};

/// Returns the page. If the query contains `part=way`, returns only the journey, which the page requests repeatedly.
pub(super) async fn show(visit: &Visit, mut found: Found) -> Response {
    let asks = |what: &str| visit.query.split('&').any(|member| member == what);
    let is_again = asks("verify=1");
    let verifier = verifier_of(&visit.state.channels, &found.channel_id.to_string()).map(|(_, verifier)| verifier);
    let examined = match verifier {
        Err(_) => None,
        Ok(verifier) => {
            let json = found.json.clone();
            Some(joined(spawn_blocking(move || examine(&json, verifier)).await).await)
        }
    };
    let way = journey::show(&found.way(examined.as_ref().and_then(Examined::proved)));
    if asks("part=way") {
        return way.into_response();
    }
    let event = examined.as_ref().and_then(|examined| examined.event.as_ref());
    let signed = event.and_then(|event| event.payload.signed.as_deref());
    let decoded = signed.and_then(decode);
    let named =
        decoded.as_ref().and_then(|decoded| Object::read(decoded.get().as_bytes()).ok()?.get::<String>("name").ok()?);
    let kind = event.map_or_else(|| "malformed".to_owned(), |event| event.kind.as_ref().to_owned());
    let heading = named.clone().unwrap_or_else(|| kind.clone());
    let title = printable(&heading);
    let verdict = examined.as_ref().map_or(found.said, |examined| Badge::of(examined.outcome.status));
    // If the two verdicts differ, the page says so, even without a request to verify again.
    let differs = examined.is_some() && verdict != found.said;
    let content = html! {
        nav.crumbs aria-label="Where this is" { a href=(found.list.0) { (found.list.1) } " / " (text(&found.channel)) " / " (found.offset) }
        div.heading {
            div {
                h1 { (text(&heading)) " " (verdict.show()) }
                p.sub { (text(&kind)) " · channel " (text(&found.channel)) " · offset " (found.offset)
                    @if let Some(event_id) = &found.event_id { " · event " span.mono { (text(event_id)) } } }
            }
            div.actions {
                a.button href="?verify=1#verdict" { "Verify again" }
                (found.actions)
            }
        }
        (found.notice)
        @match &examined {
            None => p.notice.warn { "This channel is not configured, so its events cannot be verified." },
            Some(examined) => (said(examined, is_again, differs.then_some((found.otherwise, found.said)))),
        }
        section aria-labelledby="journey" {
            h2 #journey { "Path of the event " span.sub { "UTC" } }
            div data-again="?part=way" { (way) }
        }
        (side_by_side(&found, verdict, decoded.as_deref().map(serde_json::value::RawValue::get)))
        @if let Some(examined) = &examined { (proof::show(examined, verdict, &visit.state.signer_names)) }
        (bytes(&found))
    };
    visit.page(&title, "", &content).await
}

fn examine(json: &Bytes, verifier: Verifier) -> Examined {
    let began = std::time::Instant::now();
    let (outcome, verdict) = ObjectVerdict::of(json, &verifier);
    let event = verdict.as_ref().and_then(|verdict| verdict.parts().1);
    let dissected = event.as_ref().and_then(|event| match &event.proofs {
        Proofs::One(ocr) => Dissected::of(ocr, proof::MOST_SIGNATURES),
        _ => None,
    });
    Examined { outcome, verdict, event, dissected, verifier, took: began.elapsed() }
}

/// The verifier's verdict as a sentence.
fn said(examined: &Examined, is_again: bool, otherwise: Option<(&str, Badge)>) -> Markup {
    let (badge, sentence) = match (&examined.verdict, examined.outcome.reason) {
        (Some(Verdict::Verified(verified)), None) => {
            let proof = verified.proof();
            (
                Badge::Verified,
                format!(
                    "The proof is valid: {} of {} required signatures, by members of an oracle network of {}, cover this content for your workflow owner.",
                    proof.signers.len(),
                    proof.required,
                    examined.verifier.signers().addresses().len()
                ),
            )
        }
        (Some(Verdict::Unsigned(_)), None) => (
            Badge::Unsigned,
            "Events of this kind are never signed: the whole content is the service's claim, and nothing can be proved."
                .to_owned(),
        ),
        (Some(Verdict::Pending(_)), None) => {
            (Badge::Pending, "A proof is due for this event, but has not arrived.".to_owned())
        }
        (Some(Verdict::Rejected(_, reason)), _) => (Badge::Rejected, format!("The proof is invalid: {reason}.")),
        (_, Some("record-mismatch")) => (
            Badge::Rejected,
            "The record's own fields differ from the event inside it: the row was changed after it was delivered."
                .to_owned(),
        ),
        (_, reason) => {
            (Badge::Rejected, format!("It cannot be verified: {}.", reason.unwrap_or("there is no event in it")))
        }
    };
    html! {
        div #verdict .verdict.{ (examined.outcome.status) } role=[is_again.then_some("status")] {
            (badge.show())
            div {
                p { strong { @if is_again { "Verified again at " (time(Some(Timestamp::now()))) " UTC. " } } (whole(&sentence))
                    @if badge == Badge::Verified { " " a href="#proof" { "Who signed" } } }
                @if is_again { p.sub { "Checked with the signers that are configured now, in " (examined.took.as_micros() / 1000) " ms." } }
                @if let Some((otherwise, before)) = otherwise { p.bad { (otherwise) (before.show()) "." } }
            }
        }
    }
}

/// Shows the signed content on one side and everything else on the other side.
fn side_by_side(found: &Found, verdict: Badge, decoded: Option<&str>) -> Markup {
    let rest = found.event.as_ref().map(without_proof);
    html! {
        div.sides {
            section.side.signed.claimed[verdict != Badge::Verified] aria-labelledby="signed" {
                header {
                    h2 #signed { @if verdict == Badge::Verified || decoded.is_none() { "Signed by the network" } @else { "Claims to be signed" } }
                    p { @match (verdict, decoded) {
                        (_, None) => "Nothing of this event is signed.",
                        (Badge::Verified, _) => "The signatures cover every character of this.",
                        (Badge::Pending, _) => "No proof has arrived for this yet.",
                        _ => "The signatures do not cover this: do not act on it.",
                    } }
                }
                @match decoded {
                    Some(decoded) => (Json(decoded)),
                    None => div.blank { "–" },
                }
            }
            section.side.unsigned aria-labelledby="unsigned" {
                header {
                    h2 #unsigned { "Not signed" }
                    p { "Unsigned data of the service: offset, id, times, and a copy of the content." }
                }
                @match &rest {
                    Some(rest) => (Json(rest)),
                    None => div.blank { "The service's event is not in this sink's format." },
                }
            }
        }
    }
}

/// The service's event without the proof and without the signed text, which the page shows separately.
fn without_proof(event: &Bytes) -> String {
    fn walk(json: &str, depth: usize) -> Option<String> {
        let object = Object::read(json.as_bytes()).ok().filter(|_| depth < 3)?;
        let members = object.members().map(|(name, value)| {
            let shown = match name {
                "proofs" => "\"shown below\"".to_owned(),
                "verifiable_event" | "verifiable_result" => "\"shown beside, decoded\"".to_owned(),
                "headers" | "payload" => walk(value.get(), depth + 1).unwrap_or_else(|| value.get().to_owned()),
                _ => value.get().to_owned(),
            };
            format!("{}:{shown}", serde_json::Value::from(name))
        });
        Some(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
    }
    let text = String::from_utf8_lossy(event);
    walk(&text, 0).unwrap_or_else(|| text.into_owned())
}

fn bytes(found: &Found) -> Markup {
    const SHOWN: usize = 100_000;
    let Some(event) = &found.event else { return html! {} };
    let text = String::from_utf8_lossy(event);
    html! {
        section aria-labelledby="bytes" {
            h2 #bytes { "Raw bytes" }
            p.sub { "The service's event as received, " (grouped(event.len() as u64)) " bytes. "
                code { "channeld verify" } " takes it as it is." }
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
