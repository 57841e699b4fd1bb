//! The console in a real browser.

use serde_json::json;

use super::{FORGED, PROVED, daemon_with_rows, into_table, with_table};
use crate::support::{Browser, Console, Setup, serving, signed, until_count};
use simulator::{Options, Simulator};

#[tokio::test]
async fn a_newcomer_finds_verifies_and_replays_an_event() {
    let Some(browser) = Browser::start().await else { return };
    let (_simulator, setup) = with_table(80).await;
    let daemon = daemon_with_rows(&setup, 80).await;
    let console = setup.console(&[]).await;
    browser.enter(&console.address).await;
    // On a busy machine, the time limit of a page can end before it has all rows.
    let listed = async || {
        browser.go(console.base()).await;
        browser.offsets().await.len()
    };
    until_count(80, listed).await;
    let lines = "return [...document.querySelectorAll('.events tbody tr')].every(row => row.offsetHeight <= 40)";
    assert_eq!(browser.run(lines).await, json!(true), "each row has one line");
    let has_table = "return getComputedStyle(document.querySelector('.events tbody tr')).display == 'table-row'";
    let has_filters = "return document.querySelector('.facets').checkVisibility()";
    for (width, is_wide) in [(640, true), (360, false)] {
        browser.look("light", width).await;
        assert_eq!(browser.run(has_table).await, json!(is_wide), "{width}");
        assert_eq!(browser.run(has_filters).await, json!(is_wide), "{width}");
    }
    browser.click("label.fold").await;
    assert_eq!(browser.run(has_filters).await, json!(true), "one button shows the filters");
    browser.look("light", 1280).await;

    let rows = rusqlite::Connection::open(setup.path("events.db")).unwrap();
    let (decoded, offset): (String, i64) = rows
        .query_row("select decoded, event_offset from events where name is not null limit 1 offset 9", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    let decoded: serde_json::Value = serde_json::from_str(&decoded).unwrap();
    browser.fill("#search", decoded["chain_event"]["tx_hash"].as_str().unwrap()).await;
    browser.press("Search").await;
    browser.until("one event is listed", "return document.querySelectorAll('a.open').length == 1").await;
    assert_eq!(browser.offsets().await, [offset]);
    // The list shows which field matched.
    let why = browser.run("return document.querySelector('.why').innerText").await;
    assert_eq!(why, json!(format!("tx_hash: {}", decoded["chain_event"]["tx_hash"].as_str().unwrap())));
    let marked = browser.run("return document.querySelector('.why mark').innerText").await;
    assert_eq!(marked, decoded["chain_event"]["tx_hash"]);
    browser.click("a.open").await;
    browser.until("the page of the event is shown", "return !!document.querySelector('.side.signed')").await;
    browser.press("Verify again").await;
    browser.until("the event is verified again", "return document.body.innerText.includes('Verified again at')").await;
    let text = browser.text().await;
    assert!(text.contains("The proof is valid: 4 of 4") && text.contains("Signed by the network"), "{text}");
    browser.run("scrollTo(0, 0)").await;
    browser.press("Replay to").await;
    browser
        .until("the console asks for confirmation", "return document.body.innerText.includes('Replay the event?')")
        .await;
    browser.press("Replay the event").await;
    browser
        .until("the replayed event arrives", "return document.body.innerText.includes('Replayed to local at')")
        .await;
    browser
        .until("the history shows the replay", "return document.body.innerText.includes('requested by an operator')")
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn filters_are_kept_in_the_url() {
    let Some(browser) = Browser::start().await else { return };
    let (_simulator, setup) = with_table(60).await;
    let daemon = daemon_with_rows(&setup, 60).await;
    let console = setup.console(&[]).await;
    browser.enter(&console.address).await;
    for (facet, value) in [("type", "watcher.event"), ("verdict", "verified")] {
        browser.run(&format!("document.querySelector('input[name={facet}]').closest('details').open = true")).await;
        browser.click(&format!("input[name={facet}][value='{value}']")).await;
        browser.run(&format!("document.querySelector('input[name={facet}]').closest('form').requestSubmit()")).await;
        let chosen = format!("return new URLSearchParams(location.search).getAll('{facet}').join() == '{value}'");
        browser.until("the value is in the address", &chosen).await;
    }
    let offsets = browser.offsets().await;
    assert!(!offsets.is_empty() && offsets.len() < 60, "{offsets:?}");
    let address = browser.run("return location.href").await;
    browser.go(address.as_str().unwrap()).await;
    assert_eq!(browser.offsets().await, offsets, "the address contains all filters");
    let others =
        "return [...document.querySelectorAll('td[data-label=Type]')].every(cell => cell.innerText == 'watcher.event')";
    browser.until("only events of the chosen type are listed", others).await;
    // The key `j` moves to the next event.
    browser.run("document.activeElement.blur()").await;
    browser.type_keys("jj").await;
    let second = "return document.activeElement === document.querySelectorAll('a.open')[1]";
    browser.until("the second event has the focus", second).await;
    browser.type_keys("?").await;
    let sheet = "return document.querySelector('dialog[open]')?.innerText.includes('Next row') == true";
    browser.until("the shortcuts of the page are listed", sheet).await;
    browser.click("dialog button").await;
    browser.until("the list of shortcuts is closed", "return !document.querySelector('dialog')").await;
    let second = offsets[1];
    browser.click(&format!("a.open[href$='/{second}']")).await;
    let heading =
        |at: &str| format!("return document.querySelector('.heading .sub')?.innerText.includes('{at}') == true");
    browser.until("the event is shown", &heading(&format!("offset {second} "))).await;
    browser.run("document.activeElement.blur()").await;
    browser.type_keys("j").await;
    browser.until("the older event is shown", &heading(&format!("offset {} ", second - 1))).await;
    browser.run("document.activeElement.blur()").await;
    browser.type_keys("\u{e00c}").await;
    browser
        .until("Esc leads back to the list", "return location.pathname == '/' && !!document.querySelector('a.open')")
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn new_events_do_not_move_the_page_being_read() {
    let Some(browser) = Browser::start().await else { return };
    let (simulator, setup) = with_table(100).await;
    let mut daemon = daemon_with_rows(&setup, 100).await;
    daemon.until_logged("batch recorded").await;
    let console = setup.console(&[]).await;
    browser.enter(&console.address).await;
    let has = |offset: i64| {
        format!("return [...document.querySelectorAll('a.open')].some(a => a.href.endsWith('/{offset}'))")
    };
    simulator.publish(0, 3);
    browser.until("new events are shown at once while the beginning of the list is visible", &has(103)).await;
    let before = browser.offsets().await;
    browser.run("scrollTo(0, 1500)").await;
    let place = "return [scrollY, Math.round(document.querySelectorAll('a.open')[40].getBoundingClientRect().top)]";
    let stood = browser.run(place).await;
    simulator.publish(0, 7);
    browser.until("the new events are announced", "const bar = document.getElementById('arrived'); return !bar.hidden && bar.innerText.includes('7 new events')").await;
    assert_eq!((browser.offsets().await, browser.run(place).await), (before, stood), "the list has not moved");
    browser.click("#arrived a").await;
    browser.until("the new events are listed", &has(110)).await;
    browser.click("#live").await;
    simulator.publish(0, 1);
    browser
        .until(
            "a paused list only counts",
            "return document.getElementById('arrived').innerText.includes('1 new event ')",
        )
        .await;
    assert_eq!(browser.run(&has(111)).await, json!(false));
    daemon.stop().await;
}

#[tokio::test]
async fn polling_retrying_and_dropping_are_labeled_buttons() {
    let Some(browser) = Browser::start().await else { return };
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in [PROVED, FORGED] {
        simulator.publish_one(0, spec);
    }
    // Otherwise the daemon could find the next event without being asked.
    let setup = into_table(Setup::reading(&simulator)).with("api.idle_wait", "10m").with("channels.c0.settle", "0s");
    let daemon = daemon_with_rows(&setup, 1).await;
    let state = async || setup.tell(&["status", "--json"]).await.json()[0]["channels"][0]["state"].clone();
    until_count(1, async || usize::from(state().await == "idle")).await;
    let console = setup.console(&[]).await;
    browser.enter(&console.address).await;
    simulator.publish(0, 1);
    browser.press("Poll now").await;
    browser.until("the page reports new events", "return document.body.innerText.includes('new events arrived')").await;

    browser.press("Show the quarantine").await;
    browser.click("a.open").await;
    browser
        .until("the quarantined event is shown", "return document.body.innerText.includes('Unverified content')")
        .await;
    browser.press("Retry").await;
    browser.press("Retry the quarantined event").await;
    browser
        .until(
            "the event stays in the quarantine",
            "return document.body.innerText.includes('still rejected and kept in the quarantine')",
        )
        .await;
    browser.click("a.open").await;
    browser.press("Drop").await;
    browser
        .until("the console asks for confirmation", "return document.body.innerText.includes('cannot be undone')")
        .await;
    browser.press("Drop the quarantined event").await;
    browser.until("the event is dropped", "return document.body.innerText.includes('The quarantine is empty')").await;
    daemon.stop().await;
}

#[tokio::test]
async fn two_browsers_survive_a_restart_of_the_daemon() {
    let Some(browser) = Browser::start().await else { return };
    let Some(other) = Browser::start().await else { return };
    let (_simulator, setup) = with_table(3).await;
    let daemon = daemon_with_rows(&setup, 3).await;
    let console = setup.console(&[]).await;
    browser.enter(&console.address).await;
    // An address works only once.
    other.go(&console.address).await;
    other
        .until("the second use of the address is refused", "return document.body.innerText.includes('already used')")
        .await;
    browser.press("Open in another browser").await;
    browser.press("Create an address").await;
    browser.until("the page shows an address", "return !!document.querySelector('.copied input')").await;
    let invited = browser.run("return document.querySelector('.copied input').value").await;
    other.enter(invited.as_str().unwrap()).await;
    assert_eq!(other.offsets().await.len(), 3);

    for browser in [&browser, &other] {
        browser.go(&format!("{}/daemon", console.base())).await;
        browser
            .until("the page shows the daemon", "return document.body.innerText.includes('Channels and their sinks')")
            .await;
    }
    daemon.stop().await;
    for browser in [&browser, &other] {
        browser
            .until(
                "the page reports that the daemon is unreachable",
                "return document.body.innerText.includes('The daemon is unreachable')",
            )
            .await;
    }
    let daemon = setup.start();
    for browser in [&browser, &other] {
        browser
            .until(
                "the page shows the daemon again",
                "return document.body.innerText.includes('Channels and their sinks')",
            )
            .await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn event_text_never_runs_as_script() {
    let Some(browser) = Browser::start().await else { return };
    let hostile = "<script>document.title='pwned'</script><img src=x onerror=document.title='pwned'>\\u202e\\u001b[31m";
    let decoded = format!(
        r#"{{"name":"{hostile}","service":"javascript:document.title='pwned'","chain_selector":"1","chain_event":{{"address":"{hostile}"}}}}"#
    );
    let (_service, setup) = serving(vec![signed(1, &decoded)]).await;
    let setup = into_table(setup);
    let daemon = daemon_with_rows(&setup, 1).await;
    let console = setup.console(&[]).await;
    browser.enter(&console.address).await;
    let is_text = "return document.body.innerText.includes('<script>') && !document.title.startsWith('pwned') && document.images.length == 0";
    browser.until("the markup is shown as text in the list", is_text).await;
    browser.click("a.open").await;
    browser
        .until(
            "the markup is shown as text on the page of the event",
            &format!("if (!document.querySelector('.side')) return false; {is_text}"),
        )
        .await;
    // The content policy blocks a script even if a page contains one.
    browser.run("const script = document.createElement('script'); script.textContent = 'document.title = \"pwned\"'; document.body.append(script)").await;
    assert_ne!(browser.run("return document.title").await, json!("pwned"));
    daemon.stop().await;
}

#[tokio::test]
async fn pages_pass_accessibility_rules_in_every_theme_and_width() {
    let Some(browser) = Browser::start().await else { return };
    let console = Console::start(&["demo", "--console"], None).await;
    browser.enter(&console.address).await;
    browser.go(console.base()).await;
    browser
        .until(
            "events are listed",
            "if (document.querySelectorAll('a.open').length > 3) return true; location.reload(); return false",
        )
        .await;
    let event = browser.run("return document.querySelector('a.open').pathname").await;
    let pages = [
        "/",
        "/?q=nowhere",
        "/?q=chain_event",
        "/daemon",
        "/held",
        "/consumers",
        "/held/quarantine/demo/10",
        event.as_str().unwrap(),
        "/do/drop?channel=demo&offset=10",
        "/do/pause?channel=demo",
        "/concepts",
        "/invite",
        "/nowhere",
    ];
    for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 2000)] {
        browser.look(scheme, width).await;
        for page in pages {
            browser.go(&format!("{}{page}", console.base())).await;
            // Open all collapsed parts except menus, so that they are checked too.
            browser
                .run("document.querySelectorAll('details').forEach(it => it.open = !it.classList.contains('menu'))")
                .await;
            let Some(found) = browser.violations().await else { return };
            assert_eq!(found, [""; 0], "{page} {scheme} {width}");
            let marks = browser.run("return document.querySelectorAll('.why mark').length > 0").await;
            assert_eq!(marks, json!(page == "/?q=chain_event"), "{page} {scheme} {width}");
            let fits = browser.run("return document.documentElement.scrollWidth <= innerWidth").await;
            assert_eq!(fits, json!(true), "{page} {scheme} {width}: the page is wider than the screen");
        }
    }
}
