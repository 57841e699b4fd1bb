use jiff::SignedDuration;

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A consumer that has committed 12 of 40 events. The last event was delivered ten minutes ago.
pub(super) fn behind() -> FeedConsumer {
    FeedConsumer {
        consumer: "ledger".to_owned(),
        channel: "c0".to_owned(),
        channel_id: String::new(),
        has_cursor: true,
        through: 12,
        newest: 40,
        oldest: Some(1),
        lag: 28,
        waiting_since: Some(now() - SignedDuration::from_mins(10)),
        leased_until: None,
        gone: false,
    }
}

/// A consumer that has committed everything.
fn caught_up() -> FeedConsumer {
    FeedConsumer { consumer: "audit".to_owned(), through: 40, lag: 0, waiting_since: None, ..behind() }
}

/// A consumer whose next events, 13 to 20, were deleted.
pub(super) fn gone() -> FeedConsumer {
    FeedConsumer { oldest: Some(21), gone: true, ..behind() }
}

fn shown(entries: Vec<FeedConsumer>, read_only: bool) -> String {
    content(&Ok(entries), read_only, now()).into_string()
}

/// The text of the first cell of a column.
fn cell<'a>(page: &'a str, column: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("data-label=\"{column}\">")).unwrap_or_else(|| panic!("{column}: {page}"));
    rest.split_once("</td>").unwrap().0
}

#[test]
fn a_row_shows_the_cursor_the_lag_and_the_lease() {
    let leased_until = Some(now() + SignedDuration::from_secs(30));
    let page = shown(vec![FeedConsumer { newest: 4_012, lag: 4_000, leased_until, ..behind() }], false);
    for (column, said) in [
        ("Consumer", "<span id=\"consumer-ledger\"><bdi>ledger</bdi></span>"),
        ("Channel", "<bdi>c0</bdi>"),
        ("Cursor", "12"),
        ("Newest position", "4012"),
        ("Lag", "4,000"),
        ("Waiting", "10 min"),
    ] {
        assert_eq!(cell(&page, column), said, "{column}");
    }
    assert!(cell(&page, "State").contains("leased"), "{page}");
    assert!(cell(&page, "Leased until (UTC)").contains("2027-01-15 08:00:30"), "{page}");
    assert!(cell(&page, "Actions").contains("/do/set-cursor?consumer=ledger&amp;channel=c0\""), "{page}");
}

#[test]
fn the_state_names_the_worst_problem() {
    let leased_until = Some(now());
    for (entry, expected) in [
        (behind(), "behind"),
        (FeedConsumer { has_cursor: false, ..behind() }, "no cursor"),
        (FeedConsumer { leased_until, ..behind() }, "leased"),
        (caught_up(), "ok"),
        (FeedConsumer { newest: 39, lag: -1, ..caught_up() }, "ahead"),
        (FeedConsumer { leased_until, ..gone() }, "gone"),
    ] {
        assert_eq!(<&str>::from(entry.state()), expected, "{entry:?}");
    }
}

#[test]
fn a_deleted_event_is_marked_first_and_has_a_remedy() {
    let page = shown(vec![caught_up(), gone()], false);
    assert_eq!(cell(&page, "Consumer"), "<span id=\"consumer-ledger\"><bdi>ledger</bdi></span>");
    assert!(page.contains("positions 13 to 20 deleted"), "{page}");
    assert!(page.contains("/do/set-cursor?consumer=ledger&amp;channel=c0&amp;cursor=20\""), "{page}");
    assert!(!shown(vec![caught_up()], false).contains("Deleted events"));
}

#[test]
fn a_read_only_page_offers_no_change() {
    let page = shown(vec![caught_up(), gone()], true);
    assert!(page.contains(">gone<") && !page.contains("/do/"), "{page}");
}

#[test]
fn a_page_without_consumers_says_why() {
    let unlisted = |why| content(&Err(why), false, now()).into_string();
    let page = unlisted(Unlisted::NoFeed);
    assert!(page.contains("The daemon has no feed") && page.contains("[feed.consumers.ledger]"), "{page}");
    let page = unlisted(Unlisted::Failed("The daemon is <away>.".to_owned()));
    assert!(page.contains("The daemon is &lt;away&gt;.") && !page.contains("[feed"), "{page}");
    let page = shown(Vec::new(), false);
    assert!(page.contains("The feed has no consumer") && !page.contains("<table"), "{page}");
}

#[test]
fn names_are_text() {
    let page = shown(vec![FeedConsumer { consumer: "<b>\"&".to_owned(), ..gone() }], false);
    assert!(page.contains("&lt;b&gt;&quot;&amp;") && !page.contains("<b>"), "{page}");
}
