//! The page about the consumers of the feed: their lag, deleted events, and cursors that an operator sets.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use reqwest::StatusCode;
use serde_json::{Value, json};
use simulator::Simulator;

use super::{daemon_with_rows, with_table};
use crate::support::{Answer, Browser, Daemon, LONGEST_WAIT, Setup, Visitor};

const TOKEN: &str = "token-of-ledger-never-to-be-shown";

/// A daemon that serves a feed with 12 events of channel `c0` to the consumer `ledger`.
struct ServedFeed {
    simulator: Simulator,
    setup: Setup,
    daemon: Daemon,
    /// The address of the calls for the consumer.
    base: String,
}

impl ServedFeed {
    async fn start() -> Self {
        let (simulator, mut setup) = with_table(12).await;
        let token = setup.path("ledger.token");
        std::fs::write(&token, TOKEN).unwrap();
        std::fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
        setup.keep_secret(TOKEN);
        // Rows are deleted here without the word index.
        setup.remove("sinks.local.search");
        let setup = setup
            .with("feed.listen", "127.0.0.1:0")
            .with("feed.sink", "local")
            .with("feed.consumers.ledger.token_file", token.display().to_string())
            .with("feed.consumers.ledger.channels", vec!["c0"]);
        let mut daemon = daemon_with_rows(&setup, 12).await;
        let serves = "the feed is served";
        daemon.until_logged(serves).await;
        let address = daemon.log().lines(serves)[0]["address"].as_str().unwrap().to_owned();
        Self { simulator, setup, daemon, base: format!("http://{address}/v1/consumers/ledger/c0") }
    }

    /// Sends a call as the client of the consumer. Returns the status and the answer.
    async fn call(&self, call: &str, body: String) -> (StatusCode, Value) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = http.post(format!("{}/{call}", self.base)).header("Authorization", format!("Bearer {TOKEN}"));
        let answer = request.body(body).send().await.unwrap();
        let status = answer.status();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
    }

    /// Leases two events. Returns the lease, and the position of the first event.
    async fn lease(&self) -> (Value, i64) {
        let (status, leased) = self.call("lease?limit=2", String::new()).await;
        assert_eq!(status, StatusCode::OK, "{leased}");
        (leased["lease"].clone(), leased["events"][0]["position"].as_i64().unwrap())
    }

    /// Deletes the events up to a position, as retention does.
    fn delete(&self, through: i64) {
        let rows = rusqlite::Connection::open(self.setup.path("events.db")).unwrap();
        rows.busy_timeout(LONGEST_WAIT).unwrap();
        assert!(rows.execute("delete from events where position <= ?1", [through]).unwrap() > 0);
    }
}

fn to_cursor(cursor: i64) -> String {
    format!("/do/set-cursor?consumer=ledger&channel=c0&cursor={cursor}")
}

/// Confirms that the cursor is set. Returns the page that follows.
async fn set_cursor(visitor: &Visitor, cursor: i64) -> Answer {
    let text = cursor.to_string();
    let members = [("consumer", "ledger"), ("channel", "c0"), ("cursor", text.as_str())];
    // The page of another change has the same form token. This page always has a form.
    let sent = visitor.submit("/do/reload", "/do/set-cursor", &members).await;
    assert_eq!((sent.status, &sent.headers["location"]), (StatusCode::SEE_OTHER, &"/consumers".parse().unwrap()));
    visitor.get("/consumers").await
}

/// The content of the first cell of a column.
fn cell<'a>(page: &'a Answer, column: &str) -> &'a str {
    let found =
        page.body.split_once(&format!("data-label=\"{column}\">")).and_then(|(_, rest)| rest.split_once("</td>"));
    found.unwrap_or_else(|| panic!("no {column}: {page:?}")).0
}

fn assert_row(page: &Answer, expected: &[(&str, &str)]) {
    for (column, content) in expected {
        assert!(cell(page, column).contains(content), "{column}: {page:?}");
    }
}

#[tokio::test]
async fn an_operator_sees_the_lag_of_a_consumer_and_sets_its_cursor() {
    let feed = ServedFeed::start().await;
    let console = feed.setup.console(&[]).await;
    let visitor = console.enter().await;
    let (lease, first) = feed.lease().await;
    assert_eq!(first, 1);
    let page = visitor.get("/consumers").await;
    assert_row(
        &page,
        &[
            ("Consumer", "<bdi>ledger</bdi>"),
            ("Channel", "<bdi>c0</bdi>"),
            ("State", ">leased<"),
            ("Newest position", "12"),
            ("Waiting", " s"),
            ("Leased until (UTC)", "<time"),
        ],
    );
    assert_eq!((cell(&page, "Cursor"), cell(&page, "Lag")), ("0", "12"));

    let confirm = visitor.get(&to_cursor(9)).await;
    for said in ["up to position 9 will not be delivered again", "positions 1 to 9, and skips them", "answered 409"] {
        assert!(confirm.body.contains(said), "{said}: {confirm:?}");
    }
    let page = visitor.get("/consumers/now").await;
    assert_eq!(cell(&page, "Cursor"), "0", "showing the description changes nothing");
    assert!(!page.body.contains("<html"), "{page:?}");
    let page = set_cursor(&visitor, 9).await;
    assert!(page.body.contains("The cursor of ledger in channel c0 is now 9."), "{page:?}");
    assert_eq!((cell(&page, "Cursor"), cell(&page, "Lag")), ("9", "3"));
    assert_row(&page, &[("State", ">behind<"), ("Leased until (UTC)", "–")]);
    let (status, _) = feed.call("commit", json!({"lease": lease, "through": 2}).to_string()).await;
    assert_eq!(status, StatusCode::CONFLICT, "the lease has ended");

    let confirm = visitor.get(&to_cursor(4)).await;
    for said in ["after position 4 will be delivered again", "already committed positions 5 to 9"] {
        assert!(confirm.body.contains(said), "{said}: {confirm:?}");
    }
    assert_eq!(cell(&set_cursor(&visitor, 4).await, "Lag"), "8");
    assert_eq!(feed.lease().await.1, 5, "the events after the cursor are delivered again");

    let refused = visitor.get(&to_cursor(13)).await;
    assert!(refused.body.contains("The cursor must be a whole number from 0 to 12."), "{refused:?}");
    assert!(!refused.body.contains("method=\"post\""), "{refused:?}");
    let page = set_cursor(&visitor, 13).await;
    assert!(page.body.contains("class=\"notice bad\""), "{page:?}");
    assert_eq!(cell(&page, "Cursor"), "4");
    let unknown = visitor.get("/do/set-cursor?consumer=nobody&channel=c0").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);

    let log = feed.daemon.stop().await;
    let requested = log.lines("requested by an operator");
    assert_eq!(requested.len(), 3, "{requested:?}");
    assert!(requested.iter().all(|line| line["by"].as_str().unwrap().ends_with(" in the console, browser 1")));
}

#[tokio::test]
async fn a_consumer_whose_next_event_was_deleted_is_marked_and_can_continue() {
    let feed = ServedFeed::start().await;
    let console = feed.setup.console(&[]).await;
    let visitor = console.enter().await;
    // The lease stores the cursor of the consumer.
    feed.lease().await;
    feed.delete(5);
    let page = visitor.until("/consumers", "the consumer is marked", |page| page.body.contains(">gone<")).await;
    assert!(page.body.contains("positions 1 to 5 deleted"), "{page:?}");
    assert!(page.body.contains(&to_cursor(5).replace('&', "&amp;")), "{page:?}");
    let refused = visitor.get(&to_cursor(4)).await;
    assert!(refused.body.contains("The events after this position were deleted."), "{refused:?}");

    let page = set_cursor(&visitor, 5).await;
    assert_eq!((cell(&page, "Cursor"), cell(&page, "Lag")), ("5", "7"));
    assert!(!page.body.contains("Deleted events") && !page.body.contains(">gone<"), "{page:?}");
    assert_eq!(feed.lease().await.1, 6);
    feed.daemon.stop().await;
}

#[tokio::test]
async fn without_a_feed_the_page_explains_how_to_configure_one() {
    let (_simulator, setup) = with_table(1).await;
    let daemon = daemon_with_rows(&setup, 1).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let page = visitor.get("/consumers").await;
    assert!(page.body.contains("href=\"/consumers\" aria-current=\"page\""), "{page:?}");
    assert!(page.body.contains("The daemon has no feed.") && page.body.contains("[feed.consumers.ledger]"), "{page:?}");
    assert_eq!(visitor.get(&to_cursor(1)).await.status, StatusCode::NOT_FOUND);
    daemon.stop().await;
    let page = visitor.get("/consumers/now").await;
    assert!(page.body.contains("The daemon is unreachable") && !page.body.contains("no feed"), "{page:?}");
}

#[tokio::test]
async fn a_cursor_is_set_in_a_browser() {
    let Some(browser) = Browser::start().await else { return };
    let feed = ServedFeed::start().await;
    let console = feed.setup.console(&[]).await;
    browser.enter(&console.address).await;
    let lag = |lag: u64| format!("return document.querySelector('td[data-label=Lag]')?.innerText == '{lag}'");
    let says = |text: &str| format!("return document.body.innerText.includes('{text}')");
    browser.press("Consumers").await;
    browser.until("the lag is shown", &lag(12)).await;
    browser.press("Set cursor").await;
    browser.until("the page asks for the cursor", "return !!document.querySelector('input[name=cursor]')").await;
    let has_focus = "return document.activeElement === document.querySelector('input[name=cursor]')";
    browser.until("the cursor can be typed without a click", has_focus).await;
    browser.fill("input[name=cursor]", "50").await;
    browser.press("Review the change").await;
    browser.until("the cursor is refused", &says("must be a whole number from 0 to 12")).await;
    browser.fill("input[name=cursor]", "9").await;
    // The Enter key of the WebDriver protocol.
    browser.type_keys("\u{e007}").await;
    browser.until("the page asks for confirmation", &says("up to position 9 will not be delivered again")).await;
    browser.press("Set the cursor").await;
    browser.until("the page shows the result", &says("The cursor of ledger in channel c0 is now 9.")).await;
    browser.until("the lag has changed", &lag(3)).await;
    feed.simulator.publish(0, 1);
    browser.until("the page shows a new event without being loaded again", &lag(4)).await;
    feed.daemon.stop().await;
}

#[tokio::test]
async fn pages_about_consumers_pass_accessibility_rules_in_every_theme_and_width() {
    let Some(browser) = Browser::start().await else { return };
    let feed = ServedFeed::start().await;
    feed.lease().await;
    feed.delete(5);
    let console = feed.setup.console(&[]).await;
    browser.enter(&console.address).await;
    let pages =
        ["/consumers".to_owned(), "/do/set-cursor?consumer=ledger&channel=c0".to_owned(), to_cursor(4), to_cursor(5)];
    for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 900)] {
        browser.look(scheme, width).await;
        for page in &pages {
            browser.go(&format!("{}{page}", console.base())).await;
            browser.run("document.querySelectorAll('details').forEach(it => it.open = true)").await;
            let Some(found) = browser.violations().await else { return };
            assert_eq!(found, [""; 0], "{page} {scheme} {width}");
            let fits = browser.run("return document.documentElement.scrollWidth <= innerWidth").await;
            assert_eq!(fits, json!(true), "{page} {scheme} {width}: the page is wider than the screen");
        }
    }
    feed.daemon.stop().await;
}
