//! Poll interprets `offset` as the options say (spec/wire.md, "`offset` on poll").

use simulator::{ApiVersion, HasMore, Options, Simulator, Window};

use super::client::{Client, backlog, on_each_version};

on_each_version! {
    the_meaning_of_offset_is_an_option,
    without_an_offset_the_newest_events_repeat,
    has_more_can_refer_to_older_events,
}

async fn the_meaning_of_offset_is_an_option(version: ApiVersion) {
    for window in [Window::Oldest, Window::Newest] {
        for inclusive in [false, true] {
            for sparse in [false, true] {
                let simulator =
                    Simulator::start(Options { window, inclusive, sparse, ..backlog(version, 40) }).await.unwrap();
                let client = Client::of(&simulator);
                let all: Vec<_> = simulator.offsets(0).into_iter().map(|(offset, _)| offset).collect();
                assert_eq!(all.windows(2).any(|pair| pair[1] > pair[0] + 1), sparse);
                assert!(all[0] >= 1 && (sparse || all[0] == 1));
                for (offset, limit) in [(all[4], 10), (all[29], 10), (all[30], 10), (all[39], 1), (all[39] + 9, 3)] {
                    let page = client.poll(&format!("offset={offset}&limit={limit}")).await;
                    let above: Vec<_> =
                        all.iter().copied().filter(|o| *o > offset || (inclusive && *o == offset)).collect();
                    let held = above.len().min(limit);
                    let expected = match window {
                        Window::Oldest => &above[..held],
                        Window::Newest => &above[above.len() - held..],
                    };
                    let ascending: Vec<_> = page.offsets.iter().rev().copied().collect();
                    assert_eq!(ascending, expected, "{window:?} inclusive={inclusive} sparse={sparse} {offset}");
                    assert_eq!(page.has_more, above.len() > limit);
                }
            }
        }
    }
}

async fn without_an_offset_the_newest_events_repeat(version: ApiVersion) {
    let simulator = Simulator::start(backlog(version, 300)).await.unwrap();
    let client = Client::of(&simulator);
    for _ in 0..2 {
        let page = client.poll("").await;
        assert_eq!((page.offsets.len(), page.offsets[0], page.has_more), (200, 300, true));
    }
    simulator.publish(0, 2);
    let page = client.poll("limit=3").await;
    assert_eq!(page.offsets, [302, 301, 300]);
    assert_eq!(client.search("").await.offsets.len(), 50);
}

async fn has_more_can_refer_to_older_events(version: ApiVersion) {
    let simulator = Simulator::start(Options { has_more: HasMore::Older, ..backlog(version, 30) }).await.unwrap();
    let client = Client::of(&simulator);
    assert!(client.poll("offset=25").await.has_more);
    assert!(!client.poll("offset=0&limit=5").await.has_more);
}
