//! Draws single values: networks, times, counts, signers, texts with a copy button, and the field of a search.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::text::{even_lines, long, text, whole};
use channel::{counted, span};
use operator::SignerNames;
use proof::verify::Address;

/// The name of a network, with its chain selector as a tooltip. Without a name, the first and the last digits of the
/// selector, because these digits usually identify the network.
pub(crate) fn network_name(network: &str) -> Markup {
    let is_selector = network.len() > 12 && network.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(name) = record::network_name(network) {
        html! { span title=(network) { (name) } }
    } else if is_selector {
        html! { span.id title=(network) { (&network[..5]) "…" (&network[network.len() - 4..]) } }
    } else {
        text(network)
    }
}

/// A date and time in UTC, or a dash without a time.
pub(crate) fn time(at: Option<Timestamp>) -> Markup {
    match at {
        None => html! { span.none { "–" } },
        Some(at) => {
            html! { time datetime=(format!("{at:.0}")) title=(format!("{at} (UTC)")) { (at.strftime("%Y-%m-%d %H:%M:%S")) } }
        }
    }
}

pub(crate) fn ago(then: Timestamp) -> String {
    let seconds = Timestamp::now().as_second().saturating_sub(then.as_second());
    format!("{} ago", span(u64::try_from(seconds).unwrap_or(0)))
}

/// A number of events in words, such as `1 event` or `2 events`.
pub(crate) fn events(count: u64) -> String {
    counted(count, "event")
}

/// A text in a read-only field, with a copy button. The button works only if the browser runs scripts.
pub(crate) fn copied(label: &str, content: &str) -> Markup {
    html! {
        div.copied {
            label { span { (label) } input type="text" readonly value=(content); }
            button type="button" data-copy=(content) { "Copy" }
        }
    }
}

/// A button that copies a value; empty for a value that is long or has invisible characters. Browsers that run no
/// scripts do not show the button.
pub(crate) fn copy_button(name: &str, value: &str) -> Markup {
    const LONGEST: usize = 1_000;
    let is_plain = value.chars().all(|c| c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric());
    html! {
        @if !value.is_empty() && value.len() <= LONGEST && is_plain {
            button.copy type="button" data-copy=(value) title="Copy" {
                svg.icon viewBox="0 0 16 16" aria-hidden="true" { rect x="5.500" y="5.500" width="8" height="8.500" rx="1.500" {} path d="M10.500 5.500V3.500a1.500 1.500 0 0 0-1.500-1.500H4a1.500 1.500 0 0 0-1.500 1.500v5.500a1.500 1.500 0 0 0 1.500 1.500h1.500" {} }
                span.hidden { "Copy " (text(name)) }
            }
        }
    }
}

/// A value with a copy button that stays with the end of the value: no line consists of the button or of a single digit.
/// `value` is the copied text, and `shown` the text on the page.
pub(crate) fn with_copy_button(name: &str, shown: &str, value: &str) -> Markup {
    let (head, tail) = shown.split_at(last_part(shown));
    html! {
        span.mono { @if !head.is_empty() { (long(head)) } span.tail { (long(tail)) (copy_button(name, value)) } }
    }
}

/// The index of the last part of a value: the last digits of a hash, or the text after the last separator. A text that is
/// not plain is not split, because its parts could be shown in another order.
fn last_part(shown: &str) -> usize {
    const SHORT: usize = 20;
    const LAST: usize = 8;
    // The last part of an event id has twelve digits.
    const MOST: usize = 12;
    if !shown.bytes().all(|byte| byte.is_ascii_graphic()) {
        return shown.len();
    }
    if shown.len() <= SHORT {
        return 0;
    }
    let after_separator = shown.rfind([',', '-']).map(|separator| separator + 1);
    match (even_lines(shown), after_separator) {
        (Some(digits), _) => shown.len() - digits,
        (None, Some(last)) if shown.len() - last <= MOST => last,
        _ => shown.len().saturating_sub(LAST),
    }
}

/// Renders a message. A part between two backquotes is shown as code, and a command has a copy button.
pub(crate) fn with_commands(text: &str) -> Markup {
    let parts: Vec<_> = text.split('`').collect();
    // Without a second backquote, a backquote is only a character.
    if parts.len().is_multiple_of(2) {
        return whole(text);
    }
    html! {
        @for (at, part) in parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            @if at.is_multiple_of(2) { (whole(part)) }
            @else { code { (whole(part)) } @if part.contains(' ') { (copy_button("the command", part)) } }
        }
    }
}

/// The field of a search or a filter, which is sent as `q`. `list` is the id of a list of suggestions.
pub(crate) fn search_field(label: &str, words: &str, placeholder: &str, list: Option<&str>) -> Markup {
    html! {
        label.search {
            span.hidden { (label) }
            svg.icon viewBox="0 0 16 16" aria-hidden="true" { circle cx="7" cy="7" r="4.500" {} path d="M10.500 10.500L14 14" {} }
            input #search type="search" name="q" value=(words) autocomplete="off" spellcheck="false" list=[list] placeholder=(placeholder);
        }
    }
}

pub(crate) fn signer(address: &Address, names: &SignerNames) -> Markup {
    html! { @if let Some(name) = names.get(address) { strong { (text(name)) } " " } span.mono.long title=(address) { (long(&address.to_string())) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_code_with_a_copy_button() {
        let html = with_commands("set `retry`, run `channeld resume <c0>`, then wait").into_string();
        for said in
            ["set </bdi><code><bdi>retry</bdi></code><bdi>, run ", "<code><bdi>channeld resume &lt;c0&gt;</bdi></code>"]
        {
            assert!(html.contains(said), "{said}: {html}");
        }
        assert_eq!(html.matches("data-copy=").count(), 1);
        assert!(html.contains("data-copy=\"channeld resume &lt;c0&gt;\""), "{html}");
        assert!(!with_commands("an odd ` in a message").into_string().contains("<code>"));
    }

    #[test]
    fn the_copy_button_stays_with_the_last_part_of_a_value() {
        let address = format!("0x{}", "0123456789".repeat(4));
        let hash = format!("0x{}", "0123456789abcdef".repeat(4));
        for (shown, tail) in [
            (&*address, "01234567890123456789"),
            (&*hash, "0123456789abcdef"),
            ("776,258,364", "776,258,364"),
            ("776,258,364,000,000,000", "000"),
            ("ec92fef2-7f79-4eb9-aaba-4015f190d865", "4015f190d865"),
            ("123456789012345678901", "45678901"),
            ("a-12345678901234567890", "34567890"),
            ("short", "short"),
            ("not plain 1,5", ""),
            ("\u{202e}12,5", ""),
        ] {
            assert_eq!(&shown[last_part(shown)..], tail);
            let html = with_copy_button("name", shown, "copied").into_string();
            assert!(html.contains("<span class=\"tail\"><bdi>") && html.contains("data-copy=\"copied\""), "{html}");
        }
    }
}
