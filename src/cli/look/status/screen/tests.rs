use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_width::UnicodeWidthStr;

use super::navigation::{KeyAction, ScreenPage};
use super::*;
use crate::cli::look::status::text::table;
use channel::{Activity, ChannelStatus, Condition, LaneState, LaneStatus, Problem, SignerStatus};
use operator::{Process, Report};
use proof::event::Offset;

mod conditions;
mod pages;

/// A long error. A page must show the complete text.
const ERROR: &str = "answered 503: the upstream of the receiver at https://receiver.example/a/long/path/that/does/not/fit has said \
                     that it is not there today, and the last word is ZEBRA";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 - seconds).unwrap()
}

fn lane(sink: &str, cursor: i64, state: LaneState) -> LaneStatus {
    let error = matches!(state, LaneState::Blocked | LaneState::Retrying).then(|| Problem {
        kind: "http".to_owned(),
        message: ERROR.to_owned(),
        since: ago(300),
        times: 7,
        needs_attention: state == LaneState::Blocked,
    });
    LaneStatus {
        sink: sink.into(),
        cursor: Offset::new(cursor),
        lag_events: Some(0),
        state,
        error,
        ..LaneStatus::default()
    }
}

/// A channel without problems.
fn channel(name: &str) -> ChannelStatus {
    let signer = |number: u8| SignerStatus {
        signer: format!("0x{}", format!("{number:02x}").repeat(20)).parse().unwrap(),
        last_seen: (number > 1).then(|| ago(i64::from(number))),
    };
    ChannelStatus {
        channel: name.into(),
        activity: Activity::Idle,
        cursor: Offset::new(15_520),
        newest: Offset::new(15_520),
        lag_events: Some(0),
        last_poll: Some(ago(2)),
        signers: (1..=10).map(signer).collect(),
        required_signatures: 4,
        lanes: vec![lane("file", 15_520, LaneState::Ok), lane("hook", 15_520, LaneState::Ok)],
        ..ChannelStatus::default()
    }
}

/// A thousand channels. The last four are in trouble, waiting, behind, and paused.
fn report() -> Report {
    let mut channels: Vec<_> = (0..1_000).map(|number| channel(&format!("settlements-{number:04}"))).collect();
    channels[996].lanes[1] = lane("hook", 15_000, LaneState::Blocked);
    channels[997].lanes[1] = lane("hook", 15_000, LaneState::Retrying);
    let behind = &mut channels[998];
    (behind.activity, behind.cursor, behind.newest) = (Activity::Reading, Offset::new(69_850), Offset::new(200_028));
    (behind.lag_events, behind.events_per_second, behind.seconds_left) = (Some(130_178), Some(4_400.0), Some(30));
    channels[999].activity = Activity::Paused;
    report_of(channels)
}

/// A report about these channels, with the conditions and the reasons that follow.
fn report_of(channels: Vec<ChannelStatus>) -> Report {
    let mut report = Report {
        version: "0.1.0 (abcdef0 2026-11-23)".to_owned(),
        daemon: Some(Process { pid: 123, started: ago(10_000), log_lines_lost: 0 }),
        ready: false,
        reasons: Vec::new(),
        not_ready: Vec::new(),
        quarantine: channel::StoredEvents::default(),
        dead_letters: channel::StoredEvents::default(),
        state_error: None,
        lost: None,
        state_early_ack: None,
        warnings: Vec::new(),
        rejected_config: None,
        feed: None,
        api_keys: Vec::new(),
        api_key_expires: None,
        memory_bytes: 0,
        instances: Vec::new(),
        heartbeat_error: None,
        networks: std::collections::BTreeMap::new(),
        channels,
    };
    report.assess(Vec::new());
    report
}

fn model() -> Model {
    let mut model = Model::default();
    model.refresh(Ok(report()));
    model
}

fn press(model: &mut Model, code: KeyCode) -> KeyAction {
    model.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_in(model: &mut Model, text: &str) {
    text.chars().for_each(|c| assert_eq!(press(model, KeyCode::Char(c)), KeyAction::GoOn));
}

/// The lines of a screen of this size.
fn drawn(model: &mut Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model, now())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

#[test]
fn a_thousand_channels_fit_with_problems_first() {
    for (width, height) in [(80, 24), (140, 50)] {
        let lines = drawn(&mut model(), width, height);
        assert!(lines[0].starts_with(" NOT READY  process 123, up 2 h"), "{lines:#?}");
        assert!(lines[1].starts_with("  channel settlements-0996, sink hook: answered 503"), "{lines:#?}");
        assert_eq!(lines[2], "1,000 channels, 1 in trouble, 1 waiting, 1 lagging, 1 inactive");
        let heading = lines.iter().position(|line| line.starts_with("CHANNEL ")).unwrap();
        let rows: Vec<_> = lines[heading + 1..].iter().map(|line| line.split(' ').next().unwrap()).collect();
        let first = ["0996", "0997", "0998", "0999", "0000"].map(|number| format!("settlements-{number}"));
        assert_eq!(rows[..5], first);
        let last = lines.last().unwrap();
        assert!(last.starts_with("q quit") && last.ends_with(" of 1000"), "{last}");
        let text = lines.join("\n");
        for said in ["sink blocked", "sink retrying", "paused", "30 s", "LAG", "POLL", "QUAR"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert_eq!(text.contains("WHAT"), width == 140);
    }
}

#[test]
fn every_terminal_size_keeps_headings_and_verdict() {
    let known =
        ["CHANNEL", "STATE", "CURSOR", "NEWEST", "LAG", "RATE", "LEFT", "OLDEST", "POLL", "PEND", "QUAR", "WHAT"];
    for key in [KeyCode::Null, KeyCode::Enter, KeyCode::Char('r')] {
        let mut model = model();
        press(&mut model, key);
        for width in [1, 10, 20, 40, 60, 79, 80, 81, 100, 111, 120, 140, 300] {
            for height in [1, 2, 3, 5, 10, 24, 50] {
                let lines = drawn(&mut model, width, height);
                assert!(width < 40 || lines[0].contains("NOT READY"), "{width}x{height}: {lines:#?}");
                if let Some(heading) = lines.iter().find(|line| line.starts_with("CHANNEL ") && width >= 40) {
                    assert!(heading.split_whitespace().all(|word| known.contains(&word)), "{width}: {heading}");
                }
            }
        }
    }
}

#[test]
fn keys_sort_filter_and_search_the_list() {
    let mut model = model();
    let first = |model: &mut Model| {
        let lines = drawn(model, 80, 24);
        let heading = lines.iter().position(|line| line.starts_with("CHANNEL ")).unwrap();
        lines[heading + 1].split(' ').next().unwrap().to_owned()
    };
    type_in(&mut model, "s");
    assert_eq!(first(&mut model), "settlements-0000", "by name");
    type_in(&mut model, "s");
    assert_eq!(first(&mut model), "settlements-0998", "by lag");
    type_in(&mut model, "sss");
    type_in(&mut model, "f");
    assert_eq!(model.rows.len(), 2, "only channels with a problem or a wait");
    type_in(&mut model, "f");
    assert_eq!(
        (model.rows.len(), first(&mut model)),
        (1, "settlements-0998".to_owned()),
        "only channels that are behind"
    );
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.rows.len(), 1_000);
    type_in(&mut model, "/-09q");
    press(&mut model, KeyCode::Backspace);
    assert_eq!(model.rows.len(), 100, "q is a letter while a name is typed");
    press(&mut model, KeyCode::Enter);
    assert!(drawn(&mut model, 80, 24).last().unwrap().contains("find: -09"));
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.rows.len(), 1_000);
    press(&mut model, KeyCode::End);
    assert_eq!(drawn(&mut model, 80, 24).last().unwrap().rsplit(' ').next(), Some("1000"));
    assert_eq!(press(&mut model, KeyCode::Char('q')), KeyAction::End);
    assert_eq!(model.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), KeyAction::End);
}

#[test]
fn a_channel_page_shows_sinks_full_errors_and_signers() {
    for (width, height) in [(80, 50), (140, 50)] {
        let mut model = model();
        press(&mut model, KeyCode::Enter);
        assert_eq!(model.page, ScreenPage::Channel("settlements-0996".into()));
        let lines = drawn(&mut model, width, height);
        assert!(lines[0].contains("NOT READY"), "{lines:#?}");
        let words = lines.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("{ERROR} (7 times, for 5 min)")), "{words}");
        assert!(words.contains("SIGNERS, 4 of 10 needed LAST SEEN"), "{words}");
        assert!(words.contains(&format!("0x{} not since the start", "01".repeat(20))), "{words}");
        assert!(words.contains(&format!("0x{} 10 s ago", "0a".repeat(20))), "{words}");
        assert!(lines.iter().any(|line| line.starts_with("hook") && line.contains("blocked")), "{lines:#?}");
        press(&mut model, KeyCode::Esc);
        assert_eq!(model.page, ScreenPage::List);
    }
}

#[test]
fn a_signer_that_has_a_name_shows_it() {
    let text = "[verification.signer_names]\n\"0x0101010101010101010101010101010101010101\" = \"Ours\"\n[verification]\norg_id = \"org_1\"\n\
                [api]\napi_key = \"k\"\n[channels.a]\nid = \"7c9e6679-7425-40de-944b-e07fc1f90ae7\"\nsinks = [\"out\"]\n\
                [sinks.out]\ntype = \"stdout\"\n";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("channeld.toml");
    std::fs::write(&file, text).unwrap();
    let names = crate::config::LocalConfig::load(Some(&file)).unwrap().signer_names;
    let mut model = model();
    model.signer_names = names;
    press(&mut model, KeyCode::Enter);
    let lines = drawn(&mut model, 80, 50);
    assert!(lines.iter().any(|line| line.contains("not since the start  Ours")), "{lines:#?}");
}

#[test]
fn a_page_that_is_longer_than_the_screen_is_scrolled_to_its_end() {
    let mut model = model();
    press(&mut model, KeyCode::Enter);
    assert!(!drawn(&mut model, 80, 24).join("\n").contains(&"0a".repeat(20)));
    press(&mut model, KeyCode::End);
    let lines = drawn(&mut model, 80, 24);
    assert!(lines[0].contains("NOT READY") && lines[22].contains(&"0a".repeat(20)), "{lines:#?}");
}

#[test]
fn the_selection_stays_when_other_channels_fail() {
    let mut model = model();
    (0..3).for_each(|_| assert_eq!(press(&mut model, KeyCode::Down), KeyAction::GoOn));
    let selected = |model: &Model| model.at_selected().unwrap().channel.to_string();
    assert_eq!(selected(&model), "settlements-0999");
    let mut report = report();
    report.channels[500].activity = Activity::Gone;
    report.assess(Vec::new());
    model.refresh(Ok(report));
    assert_eq!((model.selected, selected(&model)), (4, "settlements-0999".to_owned()));
}

#[test]
fn without_an_answer_the_last_report_stays_marked() {
    let mut model = Model::default();
    assert!(drawn(&mut model, 80, 24)[0].contains("asking the daemon"));
    model.refresh(Ok(report()));
    model.refresh(Err("no daemon is running with the state in /var/lib/channeld".to_owned()));
    let lines = drawn(&mut model, 80, 24);
    assert!(lines[0].starts_with(" NO ANSWER  no daemon is running with"), "{lines:#?}");
    assert!(lines.join("\n").contains("settlements-0996"), "{lines:#?}");
}

#[test]
fn foreign_names_and_errors_are_escaped() {
    let mut odd = channel("wide-結算-結算-結算-結算-結算-結算");
    odd.activity = Activity::Waiting {
        error: Problem {
            kind: "http".to_owned(),
            message: "\u{1b}[2J\u{202e}gone".to_owned(),
            since: ago(5),
            times: 1,
            needs_attention: false,
        },
    };
    let mut model = Model::default();
    model.refresh(Ok(report_of(vec![odd])));
    for key in [KeyCode::Char('x'), KeyCode::Enter] {
        press(&mut model, key);
        let lines = drawn(&mut model, 80, 24);
        assert!(lines.iter().all(|line| !line.contains(['\u{1b}', '\u{202e}']) && line.width() <= 100), "{lines:#?}");
    }
}
