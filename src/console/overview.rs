//! The daemon's page: whether it is ready, advice if it is not, its channels and sinks, signers and instances.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Extension, State as Of};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{Markup, html};

use super::access::Visitor;
use super::page::{Shell, advice, ago, events, form, number, span, time};
use super::state::State;
use super::text::{or_dash, text, whole};
use channel::{Activity, ChannelStatus, LaneStatus, Level, Problem, Sample};
use ledger::Pause;
use operator::SignerNames;
use operator::api::GetCluster;
use operator::{ChannelOwner, Cluster, InstanceStatus, Report};
use proof::event::Offset;
use proof::verify::Address;

mod picture;

/// The largest number of channels with charts. Channels that need attention come first.
const WITH_PICTURES: usize = 40;

/// Shows the page.
pub(super) async fn show(Of(state): Of<Arc<State>>, Extension(visitor): Extension<Visitor>) -> Response {
    let content = content(&state, visitor.read_only).await;
    let shell = Shell::of(&state, &visitor, "Daemon", "/daemon").await;
    shell.page(&html! { div #now data-again="/daemon/now" { (content) } })
}

/// Returns the part of the page that changes.
pub(super) async fn now(Of(state): Of<Arc<State>>, Extension(visitor): Extension<Visitor>) -> Response {
    content(&state, visitor.read_only).await.into_response()
}

async fn content(state: &State, read_only: bool) -> Markup {
    let report = match state.link.report().await {
        Ok(report) => report,
        Err(why) => {
            return html! {
                h1 { "Daemon" }
                div.notice.bad role="alert" { p { strong { (whole(&why)) } }
                    p { "Start it with " code { "channeld run" } " or " code { "systemctl start channeld" } ". Its log shows why it ended." } }
            };
        }
    };
    let cluster = if report.instances.is_empty() { None } else { state.link.ask(&GetCluster {}).await.ok() };
    let mut channels: Vec<_> = report.channels.iter().collect();
    channels.sort_by_key(|channel| (!channel.condition.needs_action(), channel.channel.clone()));
    let pictured: Vec<_> = channels.iter().take(WITH_PICTURES).map(|known| known.channel.to_string()).collect();
    let hours = if pictured.is_empty() { Ok(BTreeMap::new()) } else { state.link.last_hour(pictured).await };
    html! {
        (head(&report, read_only))
        section aria-labelledby="channels" {
            h2 #channels { "Channels and their sinks" }
            p.sub { "Events are read from channels and delivered to sinks." }
            @if let Err(why) = &hours { p.notice.warn { "The last hour cannot be drawn: " (whole(why)) } }
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
                    li { p { strong { (whole(&reason.to_string())) } } (advice(reason.kind.into())) }
                }
            }
        }
        @if report.lost.is_some() && !read_only { p { a.button href="/do/acknowledge" { "Acknowledge the loss…" } } }
        dl.numbers {
            div { dt { "Quarantine" } dd { (number(report.quarantine.events)) @if report.quarantine.full { " " span.bad { "full" } } } }
            div { dt { "Dead letters" } dd { (number(report.dead_letters.events)) @if report.dead_letters.full { " " span.bad { "full" } } } }
            div { dt { "Channels" } dd { (report.channels.len()) } }
            div { dt { "Memory of events in progress" } dd { (mebibytes(report.memory_bytes)) } }
        }
    }
}

/// The state of the daemon in one sentence.
fn summary(report: &Report) -> Markup {
    let channels = &report.channels;
    let troubled: Vec<_> =
        channels.iter().filter(|known| known.condition.needs_action()).map(|known| &*known.channel).collect();
    let is_paused =
        |known: &&ChannelStatus| known.paused.is_some() || known.lanes.iter().any(|lane| lane.paused.is_some());
    let paused: Vec<_> = channels.iter().filter(is_paused).map(|known| &*known.channel).collect();
    let held_back = report.quarantine.events + report.dead_letters.events;
    html! {
        @if !troubled.is_empty() {
            "Not well: " (listed(&troubled)) @if troubled.len() == 1 { " needs" } @else { " need" } " attention. The reasons are below."
        } @else if !report.ready {
            "Not ready: see the reasons below."
        } @else if !paused.is_empty() {
            "Paused by an operator, completely or partly: " (listed(&paused)) ". Everything else is running."
        } @else {
            "Ready: every channel is read, and verified events are delivered."
        }
        @if held_back > 0 { " Waiting for your decision: " a href="/held" { (events(held_back)) } "." }
    }
}

/// Lists the first few names.
fn listed(names: &[&str]) -> Markup {
    const FEW: usize = 5;
    html! {
        @for (at, name) in names.iter().take(FEW).enumerate() { @if at > 0 { ", " } (text(name)) }
        @if names.len() > FEW { " and " (number((names.len() - FEW) as u64)) " more" }
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

/// Shows a channel and its sinks.
pub(crate) fn channel(
    known: &ChannelStatus,
    hour: Option<&Vec<Sample>>,
    owner: Option<&str>,
    read_only: bool,
) -> Markup {
    let name = &*known.channel;
    html! {
        article.channel {
            header {
                h3 { (text(name)) " " span.pill.(class(known.condition.level())) { (known.condition.name()) } }
                @if !read_only && known.activity.is_here() { (pause(name, None, known.paused)) }
            }
            @if let Some(activity) = activity(known) { p.sub { (text(&activity)) } }
            @if let Some(owner) = owner { p.sub.owner { "Works in instance " (text(owner)) } }
            (paused(known.paused))
            @if let Some(problem) = known.activity.problem() { (trouble(problem)) }
            @if let Some(problem) = &known.late_error { p.sub { "Late proofs: " } (trouble(problem)) }
            dl.numbers {
                div { dt { "Delivered up to" } dd { (offset(known.processed)) } }
                div { dt { "Newest" } dd { (offset(known.newest)) } }
                div { dt { "Behind" } dd { (known.lag_events.map_or_else(|| "–".to_owned(), number)) } }
                div { dt { "Oldest waits for" } dd { (oldest(known.oldest_undelivered_seconds)) } }
                div { dt { "Last poll" } dd { (known.last_poll.map_or_else(|| "–".to_owned(), ago)) } }
                div { dt { "Waiting for a proof" } dd { (known.late) } }
                div { dt { "Quarantined" } dd { @if known.quarantined > 0 { a href="/held" { (known.quarantined) } } @else { "0" } } }
            }
            @if let Some(hour) = hour { (picture::last_hour(hour, Timestamp::now().as_second())) }
            div.scroll role="region" aria-label={ "Sinks of channel " (name) } tabindex="0" {
                table.lanes {
                    thead { tr { th scope="col" { "Sink" } th scope="col" { "State" } th scope="col" { "Delivered up to" } th scope="col" { "Behind" }
                        th scope="col" { "Oldest waits for" } th scope="col" { "Pending" } th scope="col" { "Why" }
                        @if !read_only { th scope="col" { span.hidden { "Change" } } } } }
                    tbody { @for lane in &known.lanes { (lane_row(name, lane, read_only)) } }
                }
            }
        }
    }
}

fn lane_row(channel: &str, lane: &LaneStatus, read_only: bool) -> Markup {
    html! {
        tr {
            td data-label="Sink" { (text(&lane.sink)) }
            td data-label="State" { span.pill.(class(lane.condition.level())) { (lane.condition.name_of_sink()) } }
            td.number data-label="Delivered up to" { (offset(lane.cursor)) }
            td.number data-label="Behind" { (lane.lag_events.map_or_else(|| "–".to_owned(), number)) }
            td.number data-label="Oldest waits for" { (oldest(lane.oldest_undelivered_seconds)) }
            td.number data-label="Pending" { (lane.owed) }
            td data-label="Why" { (paused(lane.paused)) @if let Some(problem) = &lane.error { (trouble(problem)) } }
            @if !read_only { td data-label="Change" { (pause(channel, Some(&lane.sink), lane.paused)) } }
        }
    }
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
            p.sub { "Paused " (ago(since)) ", " @match until { Some(until) => { "until " (time(Some(until))) " UTC" } None => "until it is resumed" } "." }
        }
    }
}

fn trouble(problem: &Problem) -> Markup {
    html! {
        p.trouble { (whole(&problem.message)) " " span.sub { "(" (problem.times) " times, since " (time(Some(problem.since))) ")" } }
    }
}

/// A sentence about the activity of a channel's reading, unless its condition says the same.
fn activity(known: &ChannelStatus) -> Option<String> {
    match &known.activity {
        Activity::Elsewhere { owner: Some(owner) } => Some(format!("In instance {owner}.")),
        Activity::Elsewhere { owner: None } => Some("No instance owns it.".to_owned()),
        Activity::AwaitingProof { offset } => Some(format!("Waiting for the proof of {offset}.")),
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

/// Every signer that a channel configures, with the time at which any channel last saw it.
fn signers(report: &Report, names: &SignerNames) -> Markup {
    let mut signers: BTreeMap<Address, (usize, Option<Timestamp>)> = BTreeMap::new();
    for signer in report.channels.iter().flat_map(|channel| &channel.signers) {
        let (channels, last_seen) = signers.entry(signer.signer).or_default();
        *channels += 1;
        *last_seen = (*last_seen).max(signer.last_seen);
    }
    let required = report.channels.iter().map(|channel| channel.required_signatures).max().unwrap_or(0);
    html! {
        @if !signers.is_empty() {
            section aria-labelledby="signers" {
                h2 #signers { "Signers" }
                p.sub { "The configured members of the oracle network. An event needs " (required) " of them. A member that was rotated out stops signing." }
                div.scroll role="region" aria-label="Table of signers" tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "Signer" } th scope="col" { "Last counted" } th scope="col" { "Channels" } } }
                        tbody {
                            @for (signer, (channels, last_seen)) in &signers {
                                tr {
                                    td data-label="Signer" { span.mono.long { (signer.to_string()) } @if let Some(name) = names.get(signer) { " " strong { (text(name)) } } }
                                    td data-label="Last counted" {
                                        @match last_seen { Some(at) => { (ago(*at)) } None => span.none { "not since the daemon's start" } }
                                    }
                                    td.number data-label="Channels" { (channels) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn instances(Cluster { instances, channels, heartbeat_error }: &Cluster) -> Markup {
    html! {
        section aria-labelledby="instances" {
            h2 #instances { "Instances" }
            @if let Some(error) = heartbeat_error { p.notice.bad { "No heartbeat; this is the last known status: " (whole(error)) } }
            div.scroll role="region" aria-label="Table of instances" tabindex="0" {
                table {
                    thead { tr { th scope="col" { "Instance" } th scope="col" { "Channels" } th scope="col" { "Does not configure" } } }
                    tbody {
                        @for InstanceStatus { name, is_self, channels, not_configured, .. } in instances {
                            tr {
                                td data-label="Instance" { (text(name)) @if *is_self { " " span.pill.aside { "answers" } } }
                                td.number data-label="Channels" { (channels) }
                                td data-label="Does not configure" { (or_dash(Some(&not_configured.join(", ")))) }
                            }
                        }
                    }
                }
            }
            div.scroll role="region" aria-label="Owners of channels" tabindex="0" {
                table {
                    thead { tr { th scope="col" { "Channel" } th scope="col" { "Owner" } } }
                    tbody {
                        @for ChannelOwner { channel, owner, ownerless_seconds, .. } in channels {
                            tr {
                                td data-label="Channel" { (text(channel)) }
                                td data-label="Owner" {
                                    @match owner { Some(owner) => (text(owner)), None => span.bad { "none" } }
                                    @if let Some(seconds) = ownerless_seconds { " for " (span(*seconds)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
