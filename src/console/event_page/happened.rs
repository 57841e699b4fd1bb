//! Says first what happened: the parameters, the contract, the network, the block and the transaction of an event, from
//! the signed content. An event without signed content shows the members of its payload.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};

use crate::page::{Badge, copy_button, network_name, time, with_copy_button};
use crate::text::text;
use crate::watchers::{WatcherNames, watcher_id};
use channel::grouped_digits;
use proof::event::Object;

/// The largest number of parameters.
const MOST: usize = 40;

/// The largest number of characters of a value. The JSON below shows longer values.
const LONGEST: usize = 160;

#[derive(Debug)]
struct Fact {
    name: String,
    shown: Markup,
    /// The value without its tooltips and separators. Empty if it is not put into an address.
    value: String,
    /// The address of this fact in a block explorer.
    link: Option<String>,
}

impl Fact {
    /// A value as the event writes it.
    fn new(name: &str, value: String) -> Self {
        let shown = if is_amount(name, &value) { grouped(&value) } else { value.clone() };
        Self { name: name.to_owned(), shown: with_copy_button(name, &cut(&shown), &value), value, link: None }
    }

    fn shown(name: &str, shown: Markup, value: &str) -> Self {
        Self { name: name.to_owned(), shown, value: value.to_owned(), link: None }
    }

    /// Links the fact to its page in the explorer of its network. Only hexadecimal and decimal values are put into the address.
    fn linked(self, explorer: Option<&String>, kind: &str) -> Self {
        let is_plain = !self.value.is_empty() && self.value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let link = explorer.filter(|_| is_plain).map(|explorer| format!("{explorer}/{kind}/{}", self.value));
        Self { link, ..self }
    }
}

/// Returns the section. `decoded` is the content that is, or claims to be, signed; `event` is the service's event.
pub(super) fn show(
    decoded: Option<&str>,
    event: Option<&[u8]>,
    verdict: Badge,
    explorers: &BTreeMap<u64, String>,
    watchers: &WatcherNames,
) -> Markup {
    let watcher = event.and_then(watcher_id).and_then(|id| watcher(&id, watchers));
    let facts = match decoded {
        Some(decoded) => of_content(decoded, explorers),
        None => event.and_then(of_payload),
    };
    let facts: Vec<_> = facts.into_iter().flatten().chain(watcher).collect();
    let source = match (decoded, verdict) {
        (Some(_), Badge::Verified) => "signed by the network",
        (Some(_), Badge::Pending) => "not proved yet",
        (Some(_), _) => "not proved: do not act on it",
        (None, _) => "according to the service, not signed",
    };
    html! {
        @if !facts.is_empty() {
            section aria-labelledby="happened" {
                h2 #happened { "What happened " span.sub { (source) } }
                dl.facts.happened {
                    @for Fact { name, shown, link, .. } in &facts {
                        dt { (text(name)) }
                        dd { (shown)
                            @if let Some(link) = link { " " a.explorer href=(link) target="_blank" rel="noopener noreferrer" { "Explorer" span.hidden { ": " (text(name)) } } } }
                    }
                }
            }
        }
    }
}

/// The facts of the signed content. A parameter keeps its name.
fn of_content(decoded: &str, explorers: &BTreeMap<u64, String>) -> Option<Vec<Fact>> {
    let content = Object::read(decoded.as_bytes()).ok()?;
    let chain_event = content.get::<Object<'_>>("chain_event").ok().flatten();
    let within = |object: &Object<'_>, name| object.raw(name).ok().flatten().map(|value| unquoted(value.get()));
    let mut facts = Vec::new();
    let parameters = chain_event.as_ref().and_then(|event| event.get::<Object<'_>>("params").ok().flatten());
    // The answer to a query has no parameters, but data.
    let parameters = parameters.or_else(|| content.get::<Object<'_>>("data").ok().flatten());
    for (name, value) in parameters.iter().flat_map(Object::members).take(MOST) {
        facts.push(Fact::new(name, unquoted(value.get())));
    }
    let selector = within(&content, "chain_selector");
    let explorer = selector.as_ref().and_then(|selector| explorers.get(&selector.parse::<u64>().ok()?));
    if let Some(event) = &chain_event {
        let contract = |address| Fact::new("Contract", address).linked(explorer, "address");
        facts.extend(within(event, "address").map(contract));
    }
    facts.extend(selector.as_deref().map(network));
    if let Some(event) = &chain_event {
        facts.extend(within(event, "block_number").map(|block| {
            let at =
                within(event, "block_timestamp").and_then(|second| Timestamp::from_second(second.parse().ok()?).ok());
            let shown =
                html! { (with_copy_button("Block", &block, &block)) @if at.is_some() { " " span.tail { "at " (time(at)) " UTC" } } };
            Fact::shown("Block", shown, &block).linked(explorer, "block")
        }));
        facts.extend(within(event, "tx_hash").map(|hash| Fact::new("Transaction", hash).linked(explorer, "tx")));
    }
    facts.extend(within(&content, "service").map(|service| Fact::shown("Service", text(&service), "")));
    Some(facts)
}

/// The facts of an event without signed content: the members of its payload that are not empty.
fn of_payload(event: &[u8]) -> Option<Vec<Fact>> {
    let event = Object::read(event).ok()?;
    let payload = event.get::<Object<'_>>("payload").ok().flatten()?;
    let facts = payload.members().take(MOST).filter_map(|(name, value)| {
        let value = unquoted(value.get());
        match name {
            _ if value.is_empty() || value == "null" => None,
            // The heading and the history show it.
            "timestamp" | "verifiable_event" | "verifiable_result" => None,
            "chain_selector" => Some(network(&value)),
            name => Some(Fact::new(&capitalized(name), value)),
        }
    });
    Some(facts.collect())
}

/// The name of the watcher, if it is known.
fn watcher(id: &str, watchers: &WatcherNames) -> Option<Fact> {
    let name = watchers.get(id)?;
    Some(Fact::shown(
        "Watcher",
        html! { (text(name)) (copy_button("Watcher", name)) " " span.sub { "according to the service, not signed" } },
        name,
    ))
}

fn network(selector: &str) -> Fact {
    Fact::shown("Network", network_name(selector), "")
}

/// A value without the quotes and escapes of a JSON string.
fn unquoted(json: &str) -> String {
    serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned())
}

/// `wallet_id` becomes `Wallet id`.
fn capitalized(name: &str) -> String {
    let mut rest = name.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect::<String>().replace('_', " "))
}

fn cut(value: &str) -> String {
    match value.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}

/// Whether a number is an amount. Most amounts have a telling name. A number with this many digits is an amount in the
/// smallest unit of a token, and too long to be read without separators. An id is never grouped.
fn is_amount(name: &str, value: &str) -> bool {
    const LONG_NUMBER: usize = 16;
    let name = name.to_ascii_lowercase();
    let is_named = ["amount", "shares", "proceeds", "price", "balance"].iter().any(|part| name.contains(part));
    !name.ends_with("id") && (is_named || value.len() >= LONG_NUMBER)
}

/// A whole number of any length with a comma after each three digits. Another text does not change.
fn grouped(digits: &str) -> String {
    if digits.len() < 5 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return digits.to_owned();
    }
    grouped_digits(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watchers::tests::names as watchers;

    fn names(facts: &[Fact]) -> Vec<&str> {
        facts.iter().map(|fact| &*fact.name).collect()
    }

    #[test]
    fn the_signed_content_shows_parameters_before_its_place() {
        let decoded = r#"{"chain_selector":"15971525489660198786","service":"fund","chain_event":{"block_number":7,
            "block_timestamp":1800000000,"tx_hash":"0xab","address":"0xcd","params":{"amount":"9758113","to":"<b>"}}}"#;
        let explorers = [(15_971_525_489_660_198_786, "https://base.example".to_owned())].into();
        let facts = of_content(decoded, &explorers).unwrap();
        assert_eq!(facts[2].link.as_deref(), Some("https://base.example/address/0xcd"));
        assert_eq!(facts.iter().filter(|fact| fact.link.is_some()).count(), 3);
        assert_eq!(names(&facts), ["amount", "to", "Contract", "Network", "Block", "Transaction", "Service"]);
        let html = show(Some(decoded), None, Badge::Verified, &BTreeMap::new(), &watchers(&[]));
        let html = html.into_string().replace("<wbr>", "");
        for said in [
            "9,758,113",
            "data-copy=\"9758113\"",
            "&lt;b&gt;",
            ">Base<",
            "2027-01-15 08:00:00",
            "signed by the network",
        ] {
            assert!(html.contains(said), "{said}: {html}");
        }
        assert!(
            show(Some(decoded), None, Badge::Rejected, &BTreeMap::new(), &watchers(&[]))
                .into_string()
                .contains("do not act on it")
        );
    }

    #[test]
    fn the_name_of_the_watcher_is_marked_as_unsigned() {
        let event = br#"{"payload":{"watcher_id":"w1"}}"#;
        let shown =
            |decoded| show(decoded, Some(event), Badge::Verified, &BTreeMap::new(), &watchers(&[("w1", "dvp <1>")]));
        for decoded in [Some(r#"{"service":"fund"}"#), None] {
            let html = shown(decoded).into_string();
            assert!(html.contains("dvp &lt;1&gt;") && html.contains("according to the service, not signed"), "{html}");
        }
    }

    #[test]
    fn only_plain_values_are_put_into_the_address_of_an_explorer() {
        let explorer = "https://base.example".to_owned();
        for (address, is_linked) in [("0xcd", true), ("../x", false), ("a?b", false), ("", false), ("\u{202e}", false)]
        {
            assert_eq!(
                Fact::new("Contract", address.to_owned()).linked(Some(&explorer), "address").link.is_some(),
                is_linked
            );
        }
    }

    #[test]
    fn an_event_without_signed_content_shows_its_payload() {
        let event = br#"{"payload":{"status":"deployed","status_reason":"","wallet_id":"d1","chain_selector":"1","timestamp":1}}"#;
        assert_eq!(names(&of_payload(event).unwrap()), ["Status", "Wallet id", "Network"]);
        assert!(
            show(None, Some(event), Badge::Unsigned, &BTreeMap::new(), &watchers(&[]))
                .into_string()
                .contains("not signed")
        );
        for nothing in [&b"{}"[..], b"[]", b"\"", br#"{"payload":{}}"#] {
            assert_eq!(show(None, Some(nothing), Badge::Rejected, &BTreeMap::new(), &watchers(&[])).into_string(), "");
        }
    }

    #[test]
    fn long_and_invisible_values_are_shown_but_not_copied() {
        let decoded =
            format!(r#"{{"chain_event":{{"params":{{"a":"x\u202ey","b":"{}","c":{{"d":[1]}}}}}}}}"#, "z".repeat(9_000));
        let html = show(Some(&decoded), None, Badge::Verified, &BTreeMap::new(), &watchers(&[])).into_string();
        assert!(html.contains("U+202E") && html.contains("z…") && html.len() < 3_000, "{html}");
        assert_eq!(html.matches("data-copy").count(), 1, "only the short value without invisible characters");
    }

    #[test]
    fn amounts_have_separators_and_ids_do_not() {
        let long = "165063443648576162790000000000";
        for (name, value, expected) in [
            ("amount", "97581", true),
            ("proceeds", "97581", true),
            ("navPerUnit", long, true),
            ("settlementId", long, false),
            ("executedAt", "1795743747", false),
        ] {
            assert_eq!(is_amount(name, value), expected, "{name}");
        }
    }

    #[test]
    fn only_whole_numbers_are_grouped() {
        for (digits, shown) in
            [("1234", "1234"), ("12345", "12,345"), ("123456", "123,456"), ("-12345", "-12345"), ("1e400", "1e400")]
        {
            assert_eq!(grouped(digits), shown);
        }
    }
}
