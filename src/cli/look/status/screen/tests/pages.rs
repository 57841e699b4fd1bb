use super::*;
use channel::Sample;
use ledger::Pause;
use operator::api::SetPaused;

/// Two channels, each with two sinks.
fn few() -> Report {
    let mut blocked = channel("settlements");
    blocked.lanes[1] = lane("hook", 7, LaneState::Blocked);
    let mut paused = channel("treasury");
    paused.lanes[0].paused = Some(Pause { since: ago(60), until: None });
    report_of(vec![blocked, paused])
}

fn screen(report: Report) -> Model {
    let mut model = Model::default();
    model.refresh(Ok(report));
    model
}

#[test]
fn sinks_are_under_their_channels_if_all_of_them_fit() {
    let mut model = screen(few());
    let first_words = |model: &mut Model, height| {
        let lines = drawn(model, 80, height);
        let heading = lines.iter().position(|line| line.starts_with("CHANNEL ")).unwrap();
        let words = |line: &String| line.split_whitespace().next().unwrap_or_default().to_owned();
        lines[heading + 1..].iter().map(words).take_while(|word| !word.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(first_words(&mut model, 24), ["settlements", "file", "hook", "treasury", "file", "hook"]);
    let lines = drawn(&mut model, 80, 24);
    let hook = lines.iter().find(|line| line.starts_with("  hook ")).unwrap();
    assert!(hook.contains(" blocked ") && hook.contains(" 7 "), "{hook}");
    assert_eq!(first_words(&mut model, 10)[..2], ["settlements", "treasury"], "too little room for the sinks");
    press(&mut model, KeyCode::Down);
    assert_eq!(&*model.at_selected().unwrap().channel, "treasury", "the selection skips sinks");
}

#[test]
fn a_pause_by_key_needs_a_confirmation() {
    let mut model = screen(few());
    let sent = |sink: Option<&str>, paused| {
        let sink = sink.map(str::to_owned);
        KeyAction::Send(SetPaused { channel: "settlements".to_owned(), sink, paused, ..SetPaused::default() })
    };
    let bottom = |model: &mut Model| drawn(model, 100, 24).pop().unwrap();
    assert_eq!(press(&mut model, KeyCode::Char('p')), KeyAction::GoOn);
    let question = "y pause settlements  1 pause sink file  2 pause sink hook  esc cancel";
    assert!(bottom(&mut model).starts_with(question), "{}", bottom(&mut model));
    for cancels in [KeyCode::Esc, KeyCode::Enter, KeyCode::Char('p'), KeyCode::Char('3'), KeyCode::Char('q')] {
        assert_eq!(press(&mut model, cancels), KeyAction::GoOn, "{cancels:?}");
        assert!(model.question.is_none(), "{cancels:?}");
        press(&mut model, KeyCode::Char('p'));
    }
    assert_eq!(press(&mut model, KeyCode::Char('y')), sent(None, true));
    press(&mut model, KeyCode::Char('p'));
    assert_eq!(press(&mut model, KeyCode::Char('2')), sent(Some("hook"), true));
    assert_eq!(press(&mut model, KeyCode::Char('y')), KeyAction::GoOn, "the question was answered");

    model.notice = Some("settlements: paused".to_owned());
    assert_eq!(bottom(&mut model), "settlements: paused");
    press(&mut model, KeyCode::Down);
    assert!(bottom(&mut model).starts_with("q quit "), "the next key removes the notice");

    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Char('p'));
    let question = "y pause treasury  1 resume sink file  2 pause sink hook  esc cancel";
    assert!(bottom(&mut model).starts_with(question), "{}", bottom(&mut model));
}

#[test]
fn the_last_hour_of_the_selected_channel_is_drawn() {
    let mut model = screen(few());
    let sample = |minute: u32| Sample {
        at: i64::from(minute) * 60,
        lag_events: Some(minute * 1_000),
        events_per_second: Some(10.0),
        delivery_seconds: None,
    };
    assert!(model.channel_without_hour().is_some());
    model.hour = Some(("settlements".into(), (0..=30).map(sample).collect()));
    assert!(model.channel_without_hour().is_none());
    for page in [KeyCode::Null, KeyCode::Enter] {
        press(&mut model, page);
        let text = drawn(&mut model, 80, 50).join("\n");
        for said in ["last 30 min", "10/s now, at most 10/s", "30,000 now, at most 30,000", "▁▂▂▂▂▃"] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
    press(&mut model, KeyCode::Esc);
    assert!(!drawn(&mut model, 80, 14).join("\n").contains("at most"), "too little room");
    press(&mut model, KeyCode::Down);
    assert!(!drawn(&mut model, 80, 50).join("\n").contains("at most"), "the hour is of another channel");
}

#[test]
fn the_help_explains_every_column_and_key() {
    let mut model = screen(few());
    press(&mut model, KeyCode::Char('?'));
    let lines = drawn(&mut model, 80, 50);
    for named in
        ["p  ", "?  ", "STATE", "CURSOR", "NEWEST", "LAG", "RATE", "LEFT", "OLDEST", "POLL", "PEND", "QUAR", "WHAT"]
    {
        assert!(lines.iter().any(|line| line.starts_with(named)), "{named}: {lines:#?}");
    }
    press(&mut model, KeyCode::Char('?'));
    assert_eq!(model.page, ScreenPage::List);
}

#[test]
fn the_page_of_a_channel_says_what_to_do_and_separates_its_columns() {
    let mut blocked = channel("settlements");
    blocked.lanes[1] = lane("hook", 7, LaneState::Blocked);
    blocked.lanes[1].error.as_mut().unwrap().message = "answered 401".to_owned();
    let mut model = screen(report_of(vec![blocked]));
    for page in [KeyCode::Enter, KeyCode::Char('r')] {
        press(&mut model, page);
        let text = drawn(&mut model, 140, 50).join("\n");
        assert!(text.contains("what to do: `401`, `403`: the endpoint does not accept"), "{text}");
        assert_eq!(text.contains("  OLDEST PENDING QUEUED  PACE"), page == KeyCode::Enter, "{text}");
        press(&mut model, KeyCode::Esc);
    }
}
