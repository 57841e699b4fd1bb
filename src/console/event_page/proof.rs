//! Shows an event's proof: its signers, and the contents of the report.

use jiff::Timestamp;
use maud::{Markup, html};

use super::shown_event::Examination;
use crate::page::{Badge, signer, table, time, with_copy_button};
use crate::text::{long, text, whole};
use operator::SignerNames;
use proof::event::Proofs;
use proof::verify::{Address, Hash, Report};

/// The largest number of signatures on the page.
pub(super) const MOST_SIGNATURES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignatureStatus {
    Yes,
    /// Made by a member of the signer set that has already signed this report.
    Twice,
    Stranger,
    Malformed,
    /// Not needed, because enough signatures before it count.
    NotNeeded,
    /// Not checked, because a signature before it is malformed.
    NotChecked,
}

impl SignatureStatus {
    /// The text of the column.
    fn label(self, about: ReportContent) -> &'static str {
        match self {
            Self::Yes if about == ReportContent::Other => "signed other content",
            Self::Yes if about == ReportContent::Unreadable => "signed this report",
            Self::Yes => "counted",
            Self::Twice => "duplicate, not counted",
            Self::Stranger => "not in the signer set",
            Self::Malformed => "malformed",
            Self::NotNeeded => "not needed",
            Self::NotChecked => "not checked",
        }
    }

    fn class(self, verdict: Badge) -> &'static str {
        match self {
            Self::Yes if verdict == Badge::Verified => "good",
            Self::Yes | Self::NotNeeded | Self::NotChecked => "none",
            Self::Twice | Self::Stranger | Self::Malformed => "bad",
        }
    }
}

/// Whether the signed report names the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportContent {
    /// This event and this owner.
    ThisEvent,
    Other,
    Unreadable,
}

/// Returns how each signature counts, in the order of the signatures.
fn counts(makers: &[Option<Address>], members: &[Address], required: usize) -> Vec<SignatureStatus> {
    let mut found: Vec<Address> = Vec::new();
    let mut is_over = false;
    let each = makers.iter().map(|maker| {
        if is_over {
            return SignatureStatus::NotChecked;
        }
        if found.len() >= required {
            return SignatureStatus::NotNeeded;
        }
        match maker {
            None => {
                is_over = true;
                SignatureStatus::Malformed
            }
            Some(maker) if !members.contains(maker) => SignatureStatus::Stranger,
            Some(maker) if found.contains(maker) => SignatureStatus::Twice,
            Some(maker) => {
                found.push(*maker);
                SignatureStatus::Yes
            }
        }
    });
    each.collect()
}

/// Summarizes the signatures, both for a valid and for a rejected event.
fn summary(
    verdict: Badge,
    counts: &[SignatureStatus],
    required: usize,
    members: usize,
    about: ReportContent,
) -> Markup {
    let counted = counts.iter().filter(|counts| **counts == SignatureStatus::Yes).count();
    let malformed = counts.iter().position(|counts| *counts == SignatureStatus::Malformed);
    let of =
        "The signatures cover the report. The report contains the workflow owner and the hash of the signed content.";
    match verdict {
        Badge::Verified => html! {
            p.sub { (counted) " of " (required) " required signatures are valid. The signer set has " (members) " members. " (of) }
        },
        _ if counted >= required && about == ReportContent::ThisEvent => html! {
            p.notice.bad { "The signatures are valid for the signed content. The event is rejected for the reason above." }
        },
        _ if counted >= required => html! {
            p.notice.bad { strong { "These signatures do not prove this event. " }
                @if about == ReportContent::Unreadable { "Members of the network signed the report, but the report cannot be read." }
                @else { "Members of the network signed the report below, but the report does not match this event. See the differences below." } }
        },
        _ => html! {
            p.notice.bad {
                @if let Some(at) = malformed { strong { "Signature " (at + 1) " is malformed. " } "The signatures after it were not checked." }
                @else { strong { "Too few valid signatures: " (counted) " of " (required) " required. " } (of) }
            }
        },
    }
}

pub(super) fn show(examined: &Examination, verdict: Badge, names: &SignerNames) -> Markup {
    let Some(event) = &examined.event else { return html! {} };
    let Proofs::One(ocr) = &event.proofs else { return html! {} };
    let Some(dissected) = &examined.dissected else {
        return html! { section { h2 { "Proof" } p.notice.bad { "The report or its context is malformed." } } };
    };
    let (members, required) = (examined.verifier.signers.addresses(), examined.verifier.signers.required());
    let counts = counts(&dissected.makers, members, required);
    let report = Report::parse(&dissected.report);
    let owner = examined.verifier.workflow_owner;
    let event_hash = event.payload.signed.as_deref().map(proof::verify::event_hash);
    let expected_hash = event_hash
        .map_or_else(|| "a hash of signed content, which this event does not have".to_owned(), |hash| hash.to_string());
    let is_of_event = |report: &Report<'_>, hash: Hash| report.workflow_owner == owner && hash.0[..] == *report.payload;
    let about = match (&report, event_hash) {
        (None, _) => ReportContent::Unreadable,
        (Some(report), Some(hash)) if is_of_event(report, hash) => ReportContent::ThisEvent,
        _ => ReportContent::Other,
    };
    let columns = [("#", ""), ("Signer", ""), ("Signature", ""), ("Result", "")];
    let rows = dissected.makers.iter().zip(&counts).enumerate().map(|(at, (maker, counts))| {
        let signature = ocr.signatures.get(at).and_then(|text| text.as_deref()).unwrap_or("null");
        let signer = maker.as_ref().map_or_else(|| html! { span.none { "not recoverable" } }, |maker| signer(maker, names));
        vec![
            html! { (at + 1) },
            signer,
            html! { details.inline { summary.mono { (text(&shortened(signature))) } span.mono.long { (whole(signature)) } } },
            html! { span class=(counts.class(verdict)) { (counts.label(about)) } },
        ]
    });
    html! {
        section aria-labelledby="proof" {
            h2 #proof { "Who signed" }
            (summary(verdict, &counts, required, members.len(), about))
            (table("Signatures", "signers", &columns, rows))
            @if ocr.signatures.len() > dissected.makers.len() {
                p.note { "Showing the first " (dissected.makers.len()) " of " (ocr.signatures.len()) " signatures." }
            }
            details.more open[verdict != Badge::Verified] {
              summary { "Report, digest and workflow" }
              dl.facts {
                @if let Some(report) = &report {
                    (fact("Workflow owner", "must be yours", &report.workflow_owner.to_string(), Some(&owner.to_string())))
                    @let bound = format!("0x{}", hex::encode(report.payload.get(..64).unwrap_or(report.payload)));
                    (fact("Event hash", "hash of the signed content, according to the report", &bound, Some(&expected_hash)))
                }
                (fact("Digest", "the digest that the network signed, which identifies this proof", &dissected.digest.to_string(), None))
                @if let Some(report) = &report {
                    (fact("Workflow", "each watcher has its own workflow", &report.workflow_id.to_string(), None))
                    (fact("Workflow execution", "", &report.execution_id.to_string(), None))
                    dt { "Report created" }
                    dd { (time(Timestamp::from_second(report.timestamp.into()).ok())) " UTC" }
                    dt { "Network" }
                    dd { "DON " (report.don_id) ", configuration " (report.don_config_version) }
                    dt { "Workflow name" }
                    dd.mono { (text(&name(report.workflow_name))) }
                    dt { "Report" }
                    dd { "version " (report.version) ", id 0x" (hex::encode(report.report_id)) ", " (dissected.report.len()) " bytes" }
                }
              }
            }
        }
    }
}

/// A value in hexadecimal, compared with the expected value.
fn fact(name: &str, what: &str, value: &str, expected: Option<&str>) -> Markup {
    html! {
        dt { (name) @if !what.is_empty() { span.sub { " " (what) } } }
        dd {
            (with_copy_button(name, value, value))
            @match expected {
                Some(expected) if expected == value => { " " span.good { "as expected" } }
                Some(expected) => { " " span.bad { "not as expected" } p.sub { "Expected: " span.mono { (long(expected)) } } }
                None => {}
            }
        }
    }
}

fn shortened(text: &str) -> String {
    if text.is_ascii() && text.len() > 20 {
        format!("{}…{}", &text[..8], &text[text.len() - 4..])
    } else {
        text.to_owned()
    }
}

/// Formats the workflow name. The ten bytes of a name are usually letters.
fn name(bytes: &[u8]) -> String {
    let is_text = bytes.iter().all(u8::is_ascii_graphic);
    if is_text { String::from_utf8_lossy(bytes).into_owned() } else { format!("0x{}", hex::encode(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_count_in_order_up_to_the_threshold() {
        let [one, two, three] = [1, 2, 3].map(|byte| Address([byte; 20]));
        let makers = [Some(one), Some(one), Some(three), Some(two), None];
        let counted = counts(&makers, &[one, two], 2);
        assert_eq!(
            counted,
            [
                SignatureStatus::Yes,
                SignatureStatus::Twice,
                SignatureStatus::Stranger,
                SignatureStatus::Yes,
                SignatureStatus::NotNeeded
            ]
        );
        assert_eq!(counts(&[None, Some(one)], &[one], 1), [SignatureStatus::Malformed, SignatureStatus::NotChecked]);
    }
}
