//! `channeld cluster`: shows the instances that share the channels, and the owner of each channel.

use std::io::Write;
use std::path::Path;

use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::output::{say, say_json};
use crate::cli::shown::printable;
use crate::cli::terminal::table::{Cell, Table};
use crate::cli::terminal::{ASIDE, BAD, PASSING, styled};
use operator::api::GetCluster;
use operator::{ChannelOwner, Cluster, InstanceStatus};

/// Show the instances, and the channels that each instance owns.
///
/// Any instance can answer. It reports the other instances as of its last heartbeat. If no instance runs on this
/// machine, the command reads the database. Requires state.backend = "postgres".
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let cluster = Operator::open(config)?.ask(&GetCluster {}).await?;
    if args.json { say_json(out, &cluster) } else { say(out, text(&cluster).trim_end()) }
}

fn text(Cluster { instances, channels, heartbeat_error }: &Cluster) -> String {
    let mut lines = Vec::from_iter(
        heartbeat_error
            .as_ref()
            .map(|error| styled(BAD, &format!("no heartbeat; this is the last known status: {}", printable(error)))),
    );
    lines.extend(differences(instances));
    if !lines.is_empty() {
        lines.push(String::new());
    }
    let heading = vec![Cell::text("INSTANCE"), Cell::text("ID"), Cell::quantity(Some("CHANNELS"))];
    let instance = |it: &InstanceStatus| {
        let cells =
            vec![Cell::text(printable(&it.name)), Cell::text(it.id.to_string()), Cell::quantity(Some(it.channels))];
        (cells, if it.is_self { "answers".to_owned() } else { String::new() })
    };
    let rows = std::iter::once((heading, String::new())).chain(instances.iter().map(instance));
    lines.push(Table(rows.collect()).to_string());
    let heading = vec![Cell::text("CHANNEL"), Cell::text("OWNER")];
    let rows = std::iter::once((heading, String::new())).chain(channels.iter().map(channel));
    lines.push(Table(rows.collect()).to_string());
    lines.join("\n")
}

fn channel(ChannelOwner { channel, owner, ownerless_seconds, .. }: &ChannelOwner) -> (Vec<Cell>, String) {
    let owner = owner.as_ref().map_or_else(|| Cell::new(ASIDE, "none"), |owner| Cell::text(printable(owner)));
    let since = ownerless_seconds.map_or_else(String::new, |seconds| format!("for {seconds} s"));
    (vec![Cell::text(&**channel), owner], since)
}

/// Channels that some instances configure and others do not.
pub(crate) fn differences(instances: &[InstanceStatus]) -> impl Iterator<Item = String> {
    instances.iter().filter(|it| !it.not_configured.is_empty()).map(|it| {
        let (name, channels) = (printable(&it.name), it.not_configured.join(", "));
        styled(PASSING, &format!("instance {name} does not configure {channels}, but others do"))
    })
}
