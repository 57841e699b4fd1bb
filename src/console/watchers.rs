//! The names of watchers. The daemon requests them from the service, and a table contains only the ids of the watchers.
//!
//! Neither the id nor the name is signed. Pages therefore always offer the signed address of the contract, too.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::tables::Row;
use super::text::{id, or_dash, text};
use operator::Report;
use proof::event::Object;

/// The names of the watchers, by their ids.
#[derive(Debug, Default)]
pub(super) struct WatcherNames(BTreeMap<String, String>);

impl WatcherNames {
    /// The names that a report contains. Empty without a report.
    pub(super) fn of(report: Option<&Report>) -> Self {
        let watchers = report.iter().flat_map(|report| &report.channels).flat_map(|channel| &channel.watchers);
        let named =
            watchers.filter_map(|watcher| Some((watcher.watcher_id.to_string(), watcher.name.as_deref()?.to_owned())));
        Self(named.collect())
    }

    pub(super) fn get(&self, watcher_id: &str) -> Option<&str> {
        self.0.get(&watcher_id.to_ascii_lowercase()).map(String::as_str)
    }

    /// The source of an event: the name of its watcher with the address as a tooltip, or the address.
    pub(super) fn source(&self, row: &Row) -> Markup {
        let Some(source) = row.source.as_deref().filter(|source| !source.is_empty()) else { return or_dash(None) };
        match row.watcher_id.as_deref().and_then(|watcher_id| self.get(watcher_id)) {
            Some(name) => html! { span.watcher title=(source) { (text(name)) } },
            None => id(source),
        }
    }

    /// The name of the watcher of each address. An address with several watchers has no name.
    pub(super) fn by_source<'a>(&'a self, rows: &'a [Row]) -> BTreeMap<&'a str, &'a str> {
        let mut names: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for row in rows {
            let name = row.watcher_id.as_deref().and_then(|watcher_id| self.get(watcher_id));
            if let (Some(source), Some(name)) = (row.source.as_deref(), name) {
                let known = names.entry(source).or_insert(Some(name));
                *known = known.filter(|known| *known == name);
            }
        }
        names.into_iter().filter_map(|(source, name)| Some((source, name?))).collect()
    }
}

/// The id of the watcher, according to the payload of an event.
pub(super) fn watcher_id(event: &[u8]) -> Option<String> {
    let payload = Object::read(event).ok()?.get::<Object<'_>>("payload").ok().flatten()?;
    payload.get::<String>("watcher_id").ok().flatten()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const WATCHER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
    const ADDRESS: &str = "0x52908400098527886e0f7030069857d2e4169ee7";

    pub(crate) fn names(known: &[(&str, &str)]) -> WatcherNames {
        WatcherNames(known.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect())
    }

    fn row(source: &str, watcher_id: Option<&str>) -> Row {
        Row { source: Some(source.to_owned()), watcher_id: watcher_id.map(str::to_owned), ..Row::default() }
    }

    #[test]
    fn a_source_is_shown_by_the_name_of_its_watcher_if_it_is_known() {
        let names = names(&[(WATCHER, "dvp <settled>")]);
        let named = names.source(&row(ADDRESS, Some(&WATCHER.to_uppercase()))).into_string();
        assert!(named.contains("dvp &lt;settled&gt;") && named.contains(&format!("title=\"{ADDRESS}\"")), "{named}");
        for watcher_id in [None, Some("00000000-7425-40de-944b-e07fc1f90ae7")] {
            assert!(names.source(&row(ADDRESS, watcher_id)).into_string().contains("0x5290…9ee7"));
        }
        assert!(names.source(&Row::default()).into_string().contains('–'));
    }

    #[test]
    fn an_address_with_several_watchers_has_no_name() {
        let other = "11111111-7425-40de-944b-e07fc1f90ae7";
        let names = names(&[(WATCHER, "dvp"), (other, "fund")]);
        let rows = [row("0x1", Some(WATCHER)), row("0x1", None), row("0x2", Some(WATCHER)), row("0x2", Some(other))];
        assert_eq!(names.by_source(&rows), [("0x1", "dvp")].into());
    }

    #[test]
    fn the_watcher_of_an_event_is_in_its_payload() {
        assert_eq!(watcher_id(br#"{"payload":{"watcher_id":"w"}}"#).as_deref(), Some("w"));
        for without in [&b"{}"[..], b"[]", br#"{"payload":{"watcher_id":7}}"#] {
            assert_eq!(watcher_id(without), None);
        }
    }
}
