//! The command palette, which opens pages, channels, sinks and consumers by typing.

use serde_json::json;

use super::{daemon_with_rows, with_table};
use crate::support::Browser;

const CTRL_K: &str = "\u{e009}k\u{e000}";
const ENTER: &str = "\u{e007}";
const ARROW_DOWN: &str = "\u{e015}";

#[tokio::test]
async fn typing_a_part_of_a_name_opens_a_page_a_channel_or_a_sink() {
    let Some(browser) = Browser::start().await else { return };
    let (_simulator, setup) = with_table(5).await;
    let daemon = daemon_with_rows(&setup, 5).await;
    let console = setup.console(&[]).await;
    browser.enter(&console.address).await;
    let shown = "[...document.querySelectorAll('.palette [role=option]')].filter(option => !option.hidden)";
    let open = async || {
        browser.type_keys(CTRL_K).await;
        browser.until("the palette has entries", &format!("return {shown}.length > 5")).await;
    };
    let is_at = |place: &str| format!("return location.href.endsWith('{place}') && !document.querySelector('dialog')");

    open().await;
    for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 360)] {
        browser.look(scheme, width).await;
        let Some(found) = browser.violations().await else { break };
        assert_eq!(found, [""; 0], "{scheme} {width}");
    }
    browser.look("light", 1280).await;
    browser.type_keys("nothing-has-this").await;
    let searches =
        format!("return {shown}.map(option => option.innerText).join() == 'Search the events for “nothing-has-this”'");
    browser.until("the events are searched for another text", &searches).await;
    browser.type_keys(ENTER).await;
    browser.until("the search is shown", &is_at("/?q=nothing-has-this")).await;

    for (typed, place) in [("dead", "/held"), ("c0 events", "/?channel=c0"), ("local sink", "/daemon#sink-c0-local")] {
        open().await;
        browser.type_keys(typed).await;
        browser.type_keys(ENTER).await;
        browser.until(place, &is_at(place)).await;
    }
    let marked = "return !!document.querySelector('tr:has(:target)')";
    browser.until("the row of the sink is marked", marked).await;

    open().await;
    browser.type_keys(ARROW_DOWN).await;
    let second = format!(
        "return {shown}[1].ariaSelected == 'true' && document.getElementById('goal').getAttribute('aria-activedescendant') == {shown}[1].id"
    );
    browser.until("an arrow chooses the second entry", &second).await;
    browser.type_keys("\u{e00c}").await;
    browser.until("Esc closes the palette", "return !document.querySelector('dialog')").await;
    browser.type_keys("?").await;
    let sheet = "return document.querySelector('dialog[open]')?.innerText.includes('Ctrl+K') == true";
    browser.until("the shortcuts name the palette", sheet).await;
    assert_eq!(browser.run("return document.querySelectorAll('.palette').length").await, json!(0));
    daemon.stop().await;
}

#[tokio::test]
async fn the_palette_has_the_configured_channels_while_the_daemon_is_down() {
    let (_simulator, setup) = with_table(1).await;
    daemon_with_rows(&setup, 1).await.stop().await;
    let visitor = setup.console(&[]).await;
    let (_console, visitor) = (&visitor, visitor.enter().await);
    let answer = visitor.get("/destinations").await;
    assert!(answer.body.contains("/?channel=c0") && answer.body.contains("/consumers"), "{answer:?}");
}
