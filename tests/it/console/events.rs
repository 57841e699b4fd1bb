//! The list with its filters and pages, the count of new events, the page of one event, and exports.

use std::collections::BTreeSet;

use reqwest::StatusCode;
use serde_json::Value;
use simulator::Options;
use simulator::Simulator;

use super::{daemon_with_rows, into_table, with_table};
use crate::support::{Answer, Setup, Visitor, serving, signed};

/// The offsets on all pages of a list.
async fn all(visitor: &Visitor, first: &str) -> Vec<i64> {
    let (mut offsets, mut next) = (Vec::new(), Some(first.to_owned()));
    while let Some(path) = next {
        let page = visitor.get(&path).await;
        assert_eq!(page.status, StatusCode::OK, "{page:?}");
        offsets.extend(page.offsets());
        next = page.next_page();
        assert!(offsets.len() < 10_000, "the pages do not end");
    }
    offsets
}

#[tokio::test]
async fn pages_list_every_event_once_and_filters_apply() {
    let (_simulator, setup) = with_table(150).await;
    let daemon = daemon_with_rows(&setup, 150).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let offsets = all(&visitor, "/?rows=20").await;
    assert_eq!(offsets.iter().collect::<BTreeSet<_>>().len(), 150, "{offsets:?}");
    assert_eq!(offsets.len(), 150);

    // Filter by the most frequent values of each column, one at a time and all together.
    let rows = rusqlite::Connection::open(setup.path("events.db")).unwrap();
    for (facet, column) in [
        ("verdict", "verification"),
        ("type", "type"),
        ("name", "name"),
        ("source", "source"),
        ("service", "service"),
        ("network", "network"),
        ("status", "status"),
        ("channel", "channel"),
    ] {
        let sql = format!(
            "select {column}, count(*) from events where {column} is not null group by 1 order by 2 desc limit 3"
        );
        let mut statement = rows.prepare(&sql).unwrap();
        let values = statement
            .query_map([], |row| Ok((row.get::<_, String>(0)?, usize::try_from(row.get::<_, u32>(1)?).unwrap())))
            .unwrap();
        let values: Vec<_> = values.collect::<Result<_, _>>().unwrap();
        assert!(!values.is_empty(), "{column}");
        let mut both = Vec::new();
        for (value, count) in &values {
            let query = url::form_urlencoded::Serializer::new(String::new()).append_pair(facet, value).finish();
            assert_eq!(all(&visitor, &format!("/?{query}")).await.len(), *count, "{facet} {value}");
            both.push((facet, value.as_str()));
        }
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(both).finish();
        let expected: usize = values.iter().map(|(_, count)| count).sum();
        assert_eq!(all(&visitor, &format!("/?{query}")).await.len(), expected, "several of {facet}");
    }

    let time: String =
        rows.query_row("select time from events order by time limit 1 offset 70", [], |row| row.get(0)).unwrap();
    let later: u32 = rows.query_row("select count(*) from events where time >= ?1", [&time], |row| row.get(0)).unwrap();
    assert_eq!(all(&visitor, &format!("/?from={time}")).await.len(), usize::try_from(later).unwrap());
    assert!(visitor.get("/?from=yesterday").await.body.contains("is not a valid time"));

    // A word of the signed content finds the event.
    let (decoded, offset): (String, i64) = rows
        .query_row("select decoded, event_offset from events where name is not null limit 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    let decoded: Value = serde_json::from_str(&decoded).unwrap();
    let word = decoded["chain_event"]["tx_hash"].as_str().unwrap();
    assert_eq!(all(&visitor, &format!("/?q={word}")).await, [offset]);
    assert_eq!(all(&visitor, &format!("/?q={}", &word[..20])).await, [offset], "the beginning of a word");
    assert_eq!(all(&visitor, &format!("/?q={}", &word[2..20])).await, [offset], "digits without 0x");
    assert_eq!(all(&visitor, &format!("/?q={}", &word[54..])).await, [offset], "the end of a hash");
    let (begun, rest) = word.split_at(20);
    for (searched, shown) in [(word, format!("<mark>{word}</mark>")), (begun, format!("<mark>{begun}</mark>{rest}"))] {
        let (path, shown) = (format!("/?q={}", searched.to_uppercase()), format!("<bdi>tx_hash</bdi>: <bdi>{shown}"));
        visitor.until(&path, "the matching field is shown", |page| page.body.contains(&shown)).await;
    }
    assert!(!visitor.get("/").await.body.contains("<mark>"), "nothing was searched");
    // The page shows the total number of hits, even if it cannot list all of them.
    let count: u32 = rows
        .query_row("select count(*) from events_search where events_search match 'params*'", [], |row| row.get(0))
        .unwrap();
    let said = format!("{count} events with these words");
    assert!(count > 20, "{count}");
    let is_full = |page: &Answer| page.body.contains(&said) && page.body.matches("<mark>params</mark>").count() == 20;
    visitor.until("/?rows=20&q=params", "all hits are counted", is_full).await;
    let said = "the newest 20 events with these words";
    visitor.until("/?rows=20&q=params&channel=c0", said, |page| page.body.contains(said)).await;
    assert_eq!(all(&visitor, "/?q=nowhere").await, [0_i64; 0]);
    visitor.until("/?q=nowhere", "the search is complete", |page| page.body.contains("No event matches")).await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_shown_events_can_be_exported_as_records_and_csv() {
    let (_simulator, setup) = with_table(40).await;
    let daemon = daemon_with_rows(&setup, 40).await;
    let visitor = setup.console(&[]).await;
    let (console, visitor) = (&visitor, visitor.enter().await);
    let lines = visitor.get("/export?as=jsonl&verdict=verified").await.body;
    assert!(lines.lines().count() > 20);
    let file = setup.path("exported.jsonl");
    std::fs::write(&file, &lines).unwrap();
    let told = setup.tell(&["verify", file.to_str().unwrap(), "--json"]).await;
    assert!(told.each("status").iter().all(|status| status == "verified"), "{told:?}");
    let sheet = visitor.get("/export?as=csv").await;
    assert_eq!(sheet.headers["content-type"], "text/csv; charset=utf-8");
    assert_eq!(sheet.body.lines().count(), 41);
    assert!(sheet.body.starts_with("verdict,type,name,source"), "{sheet:?}");
    let _ = console;
    daemon.stop().await;
}

#[tokio::test]
async fn an_export_of_a_table_that_fails_is_aborted_and_says_so() {
    let (_simulator, setup) = with_table(3).await;
    let daemon = daemon_with_rows(&setup, 3).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    daemon.stop().await;
    rusqlite::Connection::open(setup.path("events.db")).unwrap().execute_batch("drop table events").unwrap();
    for (kind, begins) in [("csv", "verdict,type,"), ("jsonl", "{\"error\":\"INCOMPLETE: ")] {
        let received = incomplete(&visitor, &format!("/export?as={kind}")).await;
        assert!(received.starts_with(begins), "{received}");
    }
}

/// Downloads a file whose transfer is aborted, and returns the received part.
async fn incomplete(visitor: &Visitor, path: &str) -> String {
    let mut answer = visitor.ask(reqwest::Method::GET, path).send().await.unwrap();
    let mut received = Vec::new();
    let failed = loop {
        match answer.chunk().await {
            Ok(Some(part)) => received.extend(part),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    let received = String::from_utf8(received).unwrap();
    assert!(failed, "the transfer is aborted: {received}");
    assert!(received.lines().last().unwrap().contains("INCOMPLETE: this export ends here"), "{received}");
    received
}

#[tokio::test]
async fn a_manual_poll_is_immediate_and_counts_new_events() {
    let (simulator, setup) = with_table(5).await;
    let setup = setup.with("api.idle_wait", "10m");
    let mut daemon = daemon_with_rows(&setup, 5).await;
    daemon.until_logged("batch recorded").await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let page = visitor.until("/", "all events are listed", |page| page.offsets().len() == 5).await;
    let new = format!("/new?mark={}", page.attribute("data-mark"));
    assert_eq!(visitor.get(&new).await.body, r#"{"count":0,"most":false}"#);

    simulator.publish(0, 3);
    let polled = visitor.submit("/", "/poll", &[("back", "verdict=verified")]).await;
    assert_eq!(
        (polled.status, &polled.headers["location"]),
        (StatusCode::SEE_OTHER, &"/?verdict=verified".parse().unwrap())
    );
    let page = visitor.get("/").await;
    assert!(page.body.contains("new events arrived"), "{page:?}");
    visitor.until(&new, "the new events are counted", |new| new.body == r#"{"count":3,"most":false}"#).await;
    assert_eq!(visitor.get("/").await.offsets().len(), 8);
    assert!(!visitor.get("/").await.body.contains("new events arrived"), "the notice is shown once");

    visitor.submit("/", "/poll", &[]).await;
    assert!(visitor.get("/").await.body.contains("no new events"));
    let log = daemon.stop().await;
    let asked = log.lines("requested by an operator");
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!((&asked[0]["request"], &asked[0]["channel"]), (&"/poll".into(), &"c0".into()));
    assert!(asked[0]["by"].as_str().unwrap().ends_with("in the console, browser 1"), "{asked:?}");
}

#[tokio::test]
async fn an_event_page_shows_signed_content_signers_and_tampering() {
    let (simulator, setup) = with_table(0).await;
    simulator.publish_one(0, super::PROVED);
    let daemon = daemon_with_rows(&setup, 1).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let path = visitor.get("/").await.link("class=\"open\" href=\"").unwrap();
    let page = visitor.get(&format!("{path}?verify=1")).await;
    for said in [
        "Verified again at",
        "The proof is valid: 4 of 4",
        "Signed by the network",
        "Not signed",
        "as expected",
        "Delivered to",
    ] {
        assert!(page.body.contains(said), "{said}: {page:?}");
    }
    assert_eq!(page.body.matches(">counted<").count(), 4);
    let signers: usize =
        simulator.announcement().valid_signers.iter().filter(|signer| page.body.contains(&signer.to_string())).count();
    assert_eq!(signers, 4);
    let raw = visitor.get(&format!("{path}/raw")).await.body;
    let file = setup.path("raw.json");
    std::fs::write(&file, raw).unwrap();
    assert_eq!(setup.tell(&["verify", file.to_str().unwrap()]).await.code, Some(0));
    daemon.stop().await;

    let rows = rusqlite::Connection::open(setup.path("events.db")).unwrap();
    rows.execute(
        "update events set record = replace(record, '\"offset\":1,\"event_id\"', '\"offset\":2,\"event_id\"')",
        [],
    )
    .unwrap();
    let page = visitor.get(&path).await;
    assert!(page.body.contains("the row was changed"), "{page:?}");
    let cut = "instr(record, '\"verifiable_event\":\"') + 60";
    let change = format!("update events set record = substr(record, 1, {cut}) || 'AAAA' || substr(record, {cut} + 5)");
    rows.execute(&change, []).unwrap();
    let page = visitor.get(&path).await;
    assert!(page.body.contains("The proof is invalid"), "{page:?}");
    assert!(page.body.contains("At delivery, the verdict was"), "{page:?}");
}

#[tokio::test]
async fn an_event_is_shown_with_its_confidence_and_its_report() {
    let decoded = |confidence: &str| {
        format!(
            r#"{{"name":"Transfer","service":"dvp","chain_selector":"1","chain_event":{{"address":"0x1"{confidence}}}}}"#
        )
    };
    let confidences = ["", r#","confidence":"safe""#, r#","confidence":"finalized""#];
    let events = confidences.iter().zip(1..).map(|(confidence, offset)| signed(offset, &decoded(confidence)));
    let (_service, setup) = serving(events.collect()).await;
    let setup = into_table(setup);
    let daemon = daemon_with_rows(&setup, 3).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let list = visitor.until("/", "the events are listed", |page| page.offsets() == [3, 2, 1]).await;
    let cell = |level: &str| format!("<span title=\"Confidence: how final the block is\">{level}</span>");
    for level in ["safe", "finalized"] {
        assert_eq!(list.body.matches(&cell(level)).count(), 1, "{level}: {list:?}");
    }
    for (offset, said) in [
        (1, ">not final</span> Confidence: none is signed, so the chain may still drop this event."),
        (2, ">not final</span> Confidence: safe. The chain may still drop this event."),
        (3, ">final</span> Confidence: finalized."),
    ] {
        let link = list.body.split("class=\"open\" href=\"").skip(1).nth(3 - offset).unwrap();
        let page = visitor.get(&link.split_once('"').unwrap().0.replace("&amp;", "&")).await;
        assert!(page.body.contains(said), "{said}: {page:?}");
        // The fields of the report, as `signed` writes them.
        for shown in ["DON 1, configuration 1", "0123456789", "version 1, id 0x0001, 141 bytes", "2025-06-15 15:06:40"]
        {
            assert!(page.body.contains(shown), "{shown}: {page:?}");
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn event_text_is_shown_as_text() {
    let hostile = "<script>pwned()</script><img src=x onerror=pwned()>\\u001b[31m\\u202egnp\\u0000'\\\"&";
    let note = "only <script>\u{202e}here";
    let decoded = format!(
        r#"{{"name":"{hostile}","service":"{hostile}","chain_selector":"1","chain_event":{{"address":"{hostile}","params":{{"{hostile}":"{hostile}","<img>":"{note}"}}}}}}"#
    );
    let (_service, setup) = serving(vec![signed(1, &decoded)]).await;
    let setup = into_table(setup);
    let daemon = daemon_with_rows(&setup, 1).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let list = visitor.until("/", "the event is listed", |page| page.offsets() == [1]).await;
    let one = visitor.get(&list.link("class=\"open\" href=\"").unwrap()).await;
    let search = visitor.get("/?q=%3Cscript%3E%22%27&type=%3Cscript%3E").await;
    let is_found =
        |page: &Answer| page.body.contains("<bdi>&lt;img&gt;</bdi>: <bdi><mark>only</mark> &lt;script&gt;<span");
    let found = visitor.until("/?q=only", "the event is found", is_found).await;
    for page in [&list, &one, &search, &found] {
        assert_eq!(page.status, StatusCode::OK);
        assert!(!page.body.contains("<script>") && !page.body.contains("<img"), "{page:?}");
        // Ignore the values of form fields: they are sent back, not displayed.
        let shown = page.body.split(" value=\"").map(|part| part.split_once('"').map_or(part, |(_, rest)| rest));
        let shown = shown.collect::<String>();
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{page:?}");
    }
    assert!(found.body.contains(">U+202E</span>here</bdi>"), "{found:?}");
    assert!(list.body.contains("␛") && list.body.contains("U+202E"), "invisible characters are visible: {list:?}");
    let sheet = visitor.get("/export?as=csv").await;
    assert_eq!(sheet.status, StatusCode::OK);
    daemon.stop().await;
}

#[tokio::test]
async fn without_a_table_the_service_is_searched_and_the_page_says_so() {
    let simulator = Simulator::start(Options { events: 30, forged: 0.2, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let page = visitor.get("/").await;
    assert!(page.body.contains("No table can be read") && page.body.contains("Without a table"), "{page:?}");
    assert!(page.body.contains(">verified<") && page.body.contains("rejected"), "{page:?}");
    let path = page.link("class=\"open\" href=\"/at-service").unwrap();
    let one = visitor.get(&format!("/at-service{path}")).await;
    assert_eq!(one.status, StatusCode::OK, "{one:?}");
    assert!(one.body.contains("current response"), "{one:?}");
    let watchers = visitor.get("/?type=watcher.event").await;
    assert!(!watchers.body.contains("<bdi>query.status</bdi></td>"), "{watchers:?}");
    assert!(visitor.get("/daemon").await.body.contains("The daemon is unreachable"));
}

#[tokio::test]
async fn without_a_table_an_export_contains_every_event_of_the_chosen_channels() {
    let options = Options { channels: 2, events: 450, unsigned: 0.2, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let offsets = |channel| simulator.offsets(channel).into_iter().map(|(offset, _)| offset).rev().collect::<Vec<_>>();
    for (query, channels) in [("", &[0][..]), ("&channel=c1", &[1]), ("&channel=c0&channel=c1", &[0, 1])] {
        let file = visitor.get(&format!("/export?as=jsonl{query}")).await.body;
        let exported: Vec<_> = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
        let exported: Vec<_> = exported.iter().map(|line| (&line["channel"], line["offset"].as_i64())).collect();
        let names = ["c0", "c1"].map(Value::from);
        let expected = channels
            .iter()
            .flat_map(|channel| offsets(*channel).into_iter().map(|offset| (&names[*channel], Some(offset))));
        assert_eq!(exported, expected.collect::<Vec<_>>(), "{query}");
        let sheet = visitor.get(&format!("/export?as=csv{query}")).await.body;
        assert_eq!(sheet.lines().count(), 1 + exported.len(), "{query}");
    }
    let (named, both) = ("&name=SettlementAccepted", "&name=SettlementAccepted&name=SettlementExecuted");
    let [one, both] = [named, both].map(async |query| visitor.get(&format!("/export?as=csv{query}")).await.body);
    let (one, both) = (one.await.lines().count(), both.await.lines().count());
    assert!(1 < one && one < both && both < 451, "{one} {both}");
}

#[tokio::test]
async fn without_a_table_an_export_that_cannot_continue_is_aborted_and_says_so() {
    let simulator = Simulator::start(Options { events: 0, ..Options::default() }).await.unwrap();
    // More events than a page were created in each second, so the service cannot be asked for the older ones.
    simulator.publish(0, 1_500);
    let setup = Setup::reading(&simulator);
    setup.write();
    let console = setup.console(&[]).await;
    let received = incomplete(&console.enter().await, "/export?as=csv").await;
    assert_eq!(received.lines().count(), 1 + 200 + 1, "the head, a page and the error");
    assert!(received.contains("complete down to offset 1301"), "{received}");
}
