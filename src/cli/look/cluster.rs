//! `channeld cluster`: shows the instances that share the channels, and the owner of each channel.

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::terminal::{ASIDE, BAD, Cell, PASSING, Table, styled};
use crate::cli::verdict_line::printable;
use operator::api::GetCluster;
use operator::{ChannelOwner, Cluster, InstanceStatus};

/// Show the instances, and the channels that each instance owns.
///
/// An instance on this machine answers, and reports the other instances as of its own last heartbeat. If no instance
/// runs on this machine, the command reads the database. Requires state.backend = "postgres".
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let cluster = cx.operator()?.ask(&GetCluster {}).await?;
    if args.json { cx.say_json(&cluster) } else { cx.say(text(&cluster).trim_end()) }
}

fn text(Cluster { instances, channels, heartbeat_error }: &Cluster) -> String {
    let last_known = |error| format!("no heartbeat; this is the last known status: {}", printable(error));
    let mut lines: Vec<_> = heartbeat_error.iter().map(|error| styled(BAD, &last_known(error))).collect();
    lines.extend(differences(instances));
    if !lines.is_empty() {
        lines.push(String::new());
    }
    let heading = vec![Cell::text("INSTANCE"), Cell::text("ID"), Cell::quantity(Some("CHANNELS"))];
    let mut rows = vec![(heading, String::new())];
    for it in instances {
        let (name, id) = (Cell::text(printable(&it.name)), Cell::text(it.id.to_string()));
        let answers = if it.is_self { "answers" } else { "" };
        rows.push((vec![name, id, Cell::quantity(Some(it.channels))], answers.to_owned()));
    }
    lines.push(Table(rows).to_string());
    let mut rows = vec![(vec![Cell::text("CHANNEL"), Cell::text("OWNER")], String::new())];
    for ChannelOwner { channel, owner, ownerless_seconds, .. } in channels {
        let owner = owner.as_ref().map_or_else(|| Cell::new(ASIDE, "none"), |owner| Cell::text(printable(owner)));
        let since = ownerless_seconds.map_or_else(String::new, |seconds| format!("for {seconds} s"));
        rows.push((vec![Cell::text(&**channel), owner], since));
    }
    lines.push(Table(rows).to_string());
    lines.join("\n")
}

/// Channels that some instances configure and others do not.
pub(crate) fn differences(instances: &[InstanceStatus]) -> impl Iterator<Item = String> {
    instances.iter().filter(|it| !it.not_configured.is_empty()).map(|it| {
        let (name, channels) = (printable(&it.name), it.not_configured.join(", "));
        styled(PASSING, &format!("instance {name} does not configure {channels}, but others do"))
    })
}
