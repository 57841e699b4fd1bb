//! Long names, ids and messages fit every screen.

use serde_json::json;

use super::{PROVED, daemon_with_rows, into_table};
use crate::support::{Browser, Setup};
use simulator::{EventSpec, Options, Simulator, Tampering};

const LONG_NAME: &str = "fund-administration-europe";

#[tokio::test]
async fn long_names_and_ids_do_not_leave_the_screen() {
    let Some(browser) = Browser::start().await else { return };
    let simulator = Simulator::start(Options::default()).await.unwrap();
    simulator.publish_one(0, EventSpec::Forged(Tampering::OtherOwner));
    for _ in 0..9 {
        simulator.publish_one(0, PROVED);
    }
    let mut setup = into_table(Setup::reading(&simulator));
    setup.remove("channels.c0");
    let id = simulator.announcement().channels[0].to_string();
    let setup =
        setup.with(&format!("channels.{LONG_NAME}.id"), id).with(&format!("channels.{LONG_NAME}.sinks"), vec!["local"]);
    let daemon = daemon_with_rows(&setup, 9).await;
    let console = setup.console(&[]).await;
    browser.enter(&console.address).await;
    let hidden = "const scroll = document.querySelector('.scroll'); return scroll.scrollWidth - scroll.clientWidth";
    let heights = "return [...document.querySelectorAll('.events tbody tr')].every(row => row.offsetHeight <= 62)";
    let outside = "return [...document.querySelectorAll('.verdict, .verdict *')].filter(part => part.getBoundingClientRect().right > innerWidth).length";
    for width in [360, 768, 1280, 1920] {
        browser.look("light", width).await;
        browser.go(console.base()).await;
        assert_eq!(browser.run(hidden).await, json!(0), "{width}: no column is hidden");
        assert_eq!(browser.run(heights).await, json!(true), "{width}: a row has at most two lines");
        browser.go(&format!("{}/held/quarantine/{LONG_NAME}/1", console.base())).await;
        browser.until("the verdict is shown", "return !!document.querySelector('.verdict')").await;
        assert_eq!(browser.run(outside).await, json!(0), "{width}: the verdict fits");
    }
    daemon.stop().await;
}
