use super::*;
use channel::Refill;

/// Channels in different situations, each with the condition that every view must show.
fn situations() -> Vec<(ChannelStatus, Condition)> {
    let with = |name: &str, change: fn(&mut ChannelStatus)| {
        let mut channel = channel(name);
        change(&mut channel);
        channel
    };
    let problem = |needs_attention| Problem {
        kind: "transient".to_owned(),
        message: "reading events: 503".to_owned(),
        since: ago(5),
        times: 3,
        needs_attention,
    };
    let full = channel::StoredEvents { events: 1_000, bytes: 9, full: true };
    let waits = |needs_attention| ChannelStatus {
        activity: Activity::Waiting { error: problem(needs_attention) },
        ..channel("waits")
    };
    vec![
        (with("idle", |_| {}), Condition::Ok),
        (with("reading", |it| it.activity = Activity::Reading), Condition::Ok),
        (with("left-behind", |it| it.seconds_left = Some(30)), Condition::Behind),
        (
            with("slow-sink", |it| {
                (it.lag_events, it.lanes[1].lag_events) = (Some(3_641), Some(3_641));
                it.lanes[1].oldest_undelivered_seconds = Some(60);
            }),
            Condition::Behind,
        ),
        (
            with("refilled", |it| {
                it.lanes[0].state = LaneState::Behind;
                it.lanes[0].refill = Some(Refill { above: None, to: Offset::new(9).unwrap() });
            }),
            Condition::NotReady,
        ),
        (with("retrying", |it| it.lanes[1] = lane("hook", 7, LaneState::Retrying)), Condition::SinkRetrying),
        (with("blocked", |it| it.lanes[1] = lane("hook", 7, LaneState::Blocked)), Condition::SinkBlocked),
        (with("paused", |it| it.activity = Activity::Paused), Condition::Paused),
        (with("one-paused", |it| it.lanes[0].state = LaneState::Paused), Condition::SinkPaused),
        (ChannelStatus { quarantine: full, ..channel("quarantined") }, Condition::NotReady),
        (
            with("quarantine-full", |it| (it.activity, it.quarantine.full) = (Activity::QuarantineFull, true)),
            Condition::QuarantineFull,
        ),
        (ChannelStatus { channel: "passes".into(), ..waits(false) }, Condition::Waiting),
        (ChannelStatus { channel: "refused".into(), ..waits(true) }, Condition::Blocked),
        (with("archived", |it| it.activity = Activity::Gone), Condition::Gone),
        (with("away", |it| it.activity = Activity::Elsewhere { owner: Some("b".to_owned()) }), Condition::Elsewhere),
    ]
}

#[test]
fn the_table_the_screen_and_the_console_show_the_same_condition_of_each_channel() {
    for (channel, condition) in situations() {
        let name = channel.channel.clone();
        let report = report_of(vec![channel]);
        let channel = &report.channels[0];
        assert_eq!(channel.condition, condition, "{name}");
        // `/readyz` answers this.
        assert_eq!(report.ready, !condition.needs_action(), "{name}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["channels"][0]["condition"], <&str>::from(condition), "{name}");

        let table = anstream::adapter::strip_str(&table(&report, now()).to_string()).to_string();
        let mut rows = table.lines();
        let column = rows.next().unwrap().find("STATE").unwrap();
        let row = rows.next().unwrap();
        assert!(row[column..].starts_with(&format!("{}  ", condition.name())), "{name}: {table}");

        let page = console::testing::channel_html(channel);
        let pill = format!(">{}</span></h3>", condition.name());
        assert!(page.contains(&pill), "{pill} is not in {page}");

        let mut model = Model::default();
        model.refresh(Ok(report));
        let lines = drawn(&mut model, 140, 24);
        let row = lines.iter().find_map(|line| line.strip_prefix(&*name)).unwrap();
        assert!(row.trim_start().starts_with(&format!("{} ", condition.name())), "{name}: {row}");
    }
}
