//! The page about the daemon: whether it is ready, advice for each reason why it is not, its channels and sinks, the
//! signers and the instances.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{Markup, html};

use super::page::{PageRequest, advice_with, ago, events, form, signer, table, time, with_commands};
use super::palette::{channel_anchor, sink_anchor};
use super::state::State;
use super::text::{or_dash, text, whole};
use channel::{Activity, ChannelStatus, LaneStatus, Level, Problem, Sample, counted, grouped, span};
use ledger::Pause;
use operator::SignerNames;
use operator::api::GetCluster;
use operator::runbook::split_remedy;
use operator::{ChannelOwner, Cluster, InstanceStatus, Report};
use proof::event::Offset;
use proof::verify::Address;

mod last_hour;

/// The largest number of channels with charts. Channels that need attention come first.
const MOST_CHARTS: usize = 40;

pub(super) async fn show(request: PageRequest) -> Response {
    let content = content(&request.state, request.visitor.read_only).await;
    request.page("Daemon", "/daemon", &html! { div #now data-again="/daemon/now" { (content) } }).await
}

/// Returns the part of the page that the browser refreshes.
pub(super) async fn now(request: PageRequest) -> Response {
    content(&request.state, request.visitor.read_only).await.into_response()
}

async fn content(state: &State, read_only: bool) -> Markup {
    let report = match state.daemon.report().await {
        Ok(report) => report,
        Err(why) => {
            return html! {
                h1 { "Daemon" }
                div.notice.bad role="alert" { p { strong { (whole(&why)) } }
                    p { "Start the daemon with " code { "channeld run" } " or " code { "systemctl start channeld" } ". The daemon's log shows why it stopped." } }
            };
        }
    };
    let cluster = if report.instances.is_empty() { None } else { state.daemon.ask(&GetCluster {}).await.ok() };
    let mut channels: Vec<_> = report.channels.iter().collect();
    channels.sort_by_key(|channel| (!channel.condition.needs_action(), channel.channel.clone()));
    let charted: Vec<_> = channels.iter().take(MOST_CHARTS).map(|known| known.channel.to_string()).collect();
    let hours = if charted.is_empty() { Ok(BTreeMap::new()) } else { state.daemon.last_hour(charted).await };
    html! {
        (head(&report, read_only))
        section aria-labelledby="channels" {
            h2 #channels { "Channels and their sinks" }
            p.sub { "The daemon reads events from channels and delivers them to sinks." }
            @if let Err(why) = &hours { p.notice.warn { "The charts of the last hour are unavailable: " (whole(why)) } }
            @for known in &channels {
                @let hour = hours.as_ref().ok().and_then(|hours| hours.get(&*known.channel));
                @let owner = cluster.iter().flat_map(|cluster| &cluster.channels).find(|owned| owned.channel_id == known.channel_id);
                (channel(known, hour, owner.and_then(|owned| owned.owner.as_deref()), read_only))
            }
        }
        (signers(&report, &state.signer_names))
        @if let Some(cluster) = &cluster { (instances(cluster)) }
    }
}

fn head(report: &Report, read_only: bool) -> Markup {
    html! {
        div.heading {
            div {
                h1 { "Daemon " @if report.ready { span.pill.good { "ready" } } @else { span.pill.bad { "not ready" } } }
                @if let Some(daemon) = &report.daemon {
                    p.sub { "channeld " (report.version) ", process " (daemon.pid) ", since " (time(Some(daemon.started))) " UTC, "
                        (ago(daemon.started)) }
                }
            }
            div.actions { @if !read_only { a.button href="/do/reload" { "Reload the configuration…" } } }
        }
        p.lead { (summary(report)) }
        @if !report.not_ready.is_empty() {
            ul.reasons {
                @for reason in &report.not_ready {
                    @let (problem, remedy) = reason.with_remedy();
                    li { p { strong { (with_commands(&problem)) } } @if let Some(remedy) = remedy { (advice_with(reason.kind.into(), &remedy)) } }
                }
            }
        }
        @for warning in &report.warnings { p { strong { "Warning: " } (whole(warning)) } }
        @if report.lost.is_some() && !read_only { p { a.button href="/do/acknowledge" { "Acknowledge the loss…" } } }
        dl.numbers {
            div { dt { "Quarantine" } dd { (grouped(report.quarantine.events)) @if report.quarantine.full { " " span.bad { "full" } } } }
            div { dt { "Dead letters" } dd { (grouped(report.dead_letters.events)) @if report.dead_letters.full { " " span.bad { "full" } } } }
            div { dt { "Channels" } dd { (report.channels.len()) } }
            div { dt { "Memory used by events in progress" } dd { (mebibytes(report.memory_bytes)) } }
            @if let Some(daemon) = report.daemon.filter(|daemon| daemon.log_lines_lost > 0) {
                div { dt { "Log lines lost" } dd { (grouped(daemon.log_lines_lost)) } }
            }
        }
    }
}

/// The state of the daemon in one or two sentences.
fn summary(report: &Report) -> Markup {
    let channels = &report.channels;
    let troubled: Vec<_> =
        channels.iter().filter(|known| known.condition.needs_action()).map(|known| &*known.channel).collect();
    let is_paused =
        |known: &&ChannelStatus| known.paused.is_some() || known.lanes.iter().any(|lane| lane.paused.is_some());
    let paused: Vec<_> = channels.iter().filter(is_paused).map(|known| &*known.channel).collect();
    let undelivered = report.quarantine.events + report.dead_letters.events;
    html! {
        @if !troubled.is_empty() {
            (listed(&troubled)) @if troubled.len() == 1 { " needs" } @else { " need" } " attention. See the reasons below."
        } @else if !report.ready {
            "Not ready. See the reasons below."
        } @else if !paused.is_empty() {
            "Paused by an operator, fully or partly: " (listed(&paused)) ". Everything else is running."
        } @else {
            "Ready: all channels are polled, and verified events are delivered."
        }
        @if undelivered > 0 { " Quarantine and dead letters: " a href="/held" { (events(undelivered)) } "." }
    }
}

fn listed(names: &[&str]) -> Markup {
    const FEW: usize = 5;
    html! {
        @for (at, name) in names.iter().take(FEW).enumerate() { @if at > 0 { ", " } (text(name)) }
        @if names.len() > FEW { " and " (grouped((names.len() - FEW) as u64)) " more" }
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20)
}

fn class(level: Level) -> &'static str {
    match level {
        Level::Good => "good",
        Level::Aside => "aside",
        Level::Behind | Level::Passing => "warn",
        Level::NeedsAction => "bad",
    }
}

pub(crate) fn channel(
    known: &ChannelStatus,
    hour: Option<&Vec<Sample>>,
    owner: Option<&str>,
    read_only: bool,
) -> Markup {
    let name = &*known.channel;
    let mut columns = vec![
        ("Sink", ""),
        ("State", ""),
        ("Cursor", "number"),
        ("Lag", "number"),
        ("Oldest undelivered", "number"),
        ("Pending", "number"),
        ("Details", ""),
    ];
    if !read_only {
        columns.push(("Actions", "change"));
    }
    let lanes = known.lanes.iter().map(|lane| {
        vec![
            html! { span id=(sink_anchor(name, &lane.sink)) { (text(&lane.sink)) } },
            html! { span.pill.(class(lane.condition.level())) { (lane.condition.name_of_sink()) } },
            html! { (offset(lane.cursor)) },
            html! { (lane.lag_events.map_or_else(|| "–".to_owned(), grouped)) },
            html! { (oldest(lane.oldest_undelivered_seconds)) },
            html! { (lane.late_deliveries) },
            html! { (paused(lane.paused)) @if let Some(problem) = &lane.error { (trouble_of_sink(problem)) } (dead_letters(name, lane)) },
            pause(name, Some(&lane.sink), lane.paused),
        ]
    });
    html! {
        article.channel id=(channel_anchor(name)) {
            header {
                h3 { (text(name)) " " span.pill.(class(known.condition.level())) { (known.condition.name()) } }
                @if !read_only && known.activity.is_here() { (pause(name, None, known.paused)) }
            }
            @if let Some(activity) = activity(known) { p.sub { (text(&activity)) } }
            @if let Some(owner) = owner { p.sub.owner { "Runs in instance " (text(owner)) } }
            @if known.discovered { p.sub { "Added automatically ([discover])." } }
            @if known.watchers.iter().any(|watcher| watcher.name.is_some()) { p.sub { "Watchers: " (text(&watchers(known))) } }
            (paused(known.paused))
            @if let Some(problem) = known.activity.problem() { (trouble(problem)) }
            @if let Some(problem) = &known.pending_error { p.sub { "Pending proofs: " } (trouble(problem)) }
            @if let Some(problem) = &known.gap_error { p.sub { "Gaps: " } (trouble(problem)) }
            @for replay in &known.replays {
                p.sub {
                    "Replay " (replay.id) " to " (text(&replay.sinks.join(", "))) ": " (<&str>::from(replay.state))
                    ", offsets read: " (replay.progress().to_string())
                }
            }
            @if let Some(problem) = &known.replay_error { p.sub { "Replays: " } (trouble(problem)) }
            @if let Some(problem) = &known.compare_error { p.sub { "Comparison: " } (trouble(problem)) }
            dl.numbers {
                div { dt { "Cursor" } dd { (offset(known.cursor)) } }
                div { dt { "Newest offset" } dd { (offset(known.newest)) } }
                div { dt { "Lag" } dd { (known.lag_events.map_or_else(|| "–".to_owned(), grouped)) } }
                div { dt { "Oldest undelivered" } dd { (oldest(known.oldest_undelivered_seconds)) } }
                div { dt { "Last poll" } dd { (known.last_poll.map_or_else(|| "–".to_owned(), ago)) } }
                div { dt { "Pending" } dd { (known.pending) } }
                div { dt { "Quarantined" } dd { @if known.quarantined > 0 { a href="/held" { (known.quarantined) } } @else { "0" } } }
            }
            @if let Some(hour) = hour { (last_hour::charts(hour, Timestamp::now().as_second())) }
            (table(&format!("Sinks of channel {name}"), "lanes", &columns, lanes))
        }
    }
}

/// The watchers of a channel that have names, each with its network.
fn watchers(known: &ChannelStatus) -> String {
    let named = known.watchers.iter().filter_map(|watcher| {
        let network = watcher.network.as_ref().map(|network| format!(" ({network})"));
        Some(format!("{}{}", watcher.name.as_ref()?, network.unwrap_or_default()))
    });
    named.collect::<Vec<_>>().join(", ")
}

fn pause(channel: &str, sink: Option<&str>, paused: Option<Pause>) -> Markup {
    let mut members = vec![("channel", channel)];
    members.extend(sink.map(|sink| ("sink", sink)));
    let members = form(&members);
    html! {
        @if paused.is_some() { a.button.small href={ "/do/resume?" (members) } { "Resume…" } }
        @else { a.button.small href={ "/do/pause?" (members) } { "Pause…" } }
    }
}

fn paused(pause: Option<Pause>) -> Markup {
    html! {
        @if let Some(Pause { since, until }) = pause {
            p.sub { "Paused " (ago(since)) ", " @match until { Some(until) => { "until " (time(Some(until))) " UTC" } None => "until resumed" } "." }
        }
    }
}

/// The number of dead letters of a sink that refuses one event after another.
fn dead_letters(channel: &str, lane: &LaneStatus) -> Markup {
    let (events, list) =
        (lane.dead_letters_in_a_row, form(&[("list", "dead"), ("channel", channel), ("sink", &lane.sink)]));
    html! { @if events > 0 { p.sub { a href={ "/held?" (list) } { (counted(events, "dead letter")) } " in a row" } } }
}

/// The problem of a sink, without its remedy. The page shows the remedy with the reasons not to be ready.
fn trouble_of_sink(problem: &Problem) -> Markup {
    let message = if problem.needs_attention { split_remedy(&problem.message).0 } else { &problem.message };
    trouble(&Problem { message: message.trim_end_matches('.').to_owned(), ..problem.clone() })
}

fn trouble(problem: &Problem) -> Markup {
    html! {
        p.trouble { (with_commands(&problem.message)) " " span.sub { "(" (counted(problem.times.into(), "time")) ", since " (time(Some(problem.since))) ")" } }
    }
}

/// A sentence about the activity of a channel; `None` if the name of the channel's condition already says the same.
fn activity(known: &ChannelStatus) -> Option<String> {
    match &known.activity {
        Activity::Elsewhere { owner: Some(owner) } => Some(format!("Runs in instance {owner}.")),
        Activity::Elsewhere { owner: None } => Some("No instance has the lease of this channel.".to_owned()),
        Activity::AwaitingProof { offset } => Some(format!("Waiting for the proof of offset {offset}.")),
        other => {
            let word = <&str>::from(other).replace('_', " ");
            (word != known.condition.name()).then(|| format!("Reading: {word}."))
        }
    }
}

fn offset(offset: Option<Offset>) -> String {
    offset.map_or_else(|| "–".to_owned(), |offset| offset.to_string())
}

fn oldest(seconds: Option<u64>) -> String {
    seconds.filter(|seconds| *seconds > 0).map_or_else(|| "–".to_owned(), span)
}

/// A key that sorts texts with numbers in the order of the numbers: "Oracle 2" before "Oracle 10".
fn numbers_in_order(text: &str) -> String {
    const DIGITS: usize = 20;
    let mut key = String::new();
    for part in text.split_inclusive(|character: char| !character.is_ascii_digit()) {
        let number = part.trim_end_matches(|character: char| !character.is_ascii_digit());
        if !number.is_empty() {
            key.extend(std::iter::repeat_n('0', DIGITS.saturating_sub(number.len())));
        }
        key.push_str(part);
    }
    key
}

/// The configured signers of all channels, each with the time of its latest signature in any channel.
fn signers(report: &Report, names: &SignerNames) -> Markup {
    let mut signers: BTreeMap<Address, (usize, Option<Timestamp>)> = BTreeMap::new();
    for signer in report.channels.iter().flat_map(|channel| &channel.signers) {
        let (channels, last_seen) = signers.entry(signer.signer).or_default();
        *channels += 1;
        *last_seen = (*last_seen).max(signer.last_seen);
    }
    let required = report.channels.iter().map(|channel| channel.required_signatures).max().unwrap_or(0);
    let columns = [("Signer", ""), ("Last seen", ""), ("Channels", "number")];
    // Signers with a name come first, in the order of their names.
    let mut signers: Vec<_> = signers.into_iter().collect();
    signers.sort_by_cached_key(|(address, _)| {
        names.get(address).map_or((true, String::new()), |name| (false, numbers_in_order(name)))
    });
    let rows = signers.iter().map(|(address, (channels, last_seen))| {
        let never = || html! { span.none { "not since the daemon started" } };
        let last_seen = last_seen.map_or_else(never, |at| html! { (ago(at)) });
        vec![signer(address, names), last_seen, html! { (channels) }]
    });
    html! {
        @if !signers.is_empty() {
            section aria-labelledby="signers" {
                h2 #signers { "Signers" }
                p.sub { "The configured members of the oracle network. Each event needs signatures from " (required) " of them. A member that was removed from the network no longer signs." }
                (table("Table of signers", "", &columns, rows))
            }
        }
    }
}

fn instances(Cluster { instances, channels, heartbeat_error }: &Cluster) -> Markup {
    let columns = [("Instance", ""), ("Channels", "number"), ("Channels not configured", "")];
    let rows = instances.iter().map(|InstanceStatus { name, is_self, channels, not_configured, .. }| {
        vec![
            html! { (text(name)) @if *is_self { " " span.pill.aside { "this instance" } } },
            html! { (channels) },
            or_dash(Some(&not_configured.join(", "))),
        ]
    });
    let owners = channels.iter().map(|ChannelOwner { channel, owner, ownerless_seconds, .. }| {
        let owner = html! {
            @match owner { Some(owner) => (text(owner)), None => span.bad { "none" } }
            @if let Some(seconds) = ownerless_seconds { " for " (span(*seconds)) }
        };
        vec![text(channel), owner]
    });
    html! {
        section aria-labelledby="instances" {
            h2 #instances { "Instances" }
            @if let Some(error) = heartbeat_error { p.notice.bad { "The latest heartbeat failed, so this status is out of date. The error: " (whole(error)) } }
            (table("Table of instances", "", &columns, rows))
            (table("Owners of channels", "", &[("Channel", ""), ("Owner", "")], owners))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::numbers_in_order;

    #[test]
    fn numbers_in_names_are_in_the_order_of_the_numbers() {
        let mut names = ["Oracle 10", "Oracle 2", "Oracle 2b", "Ada", "Oracle 1", "7"];
        names.sort_by_cached_key(|name| numbers_in_order(name));
        assert_eq!(names, ["7", "Ada", "Oracle 1", "Oracle 2", "Oracle 2b", "Oracle 10"]);
    }
}
