//! `channeld channels pin`: proposes what a channel's events may name, from its past events, writes it, and applies it.
//!
//! # Invariants
//!
//! * **A watcher's events count only if the service describes the watcher in this channel.** Nothing is proposed from other
//!   events, and they are shown as events that would be rejected.
//! * **Nothing is removed.** Values that are already on the lists stay on them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;
use strum::VariantArray;

use crate::cli::act::quarantine;
use crate::cli::connect;
use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::output::{say_json, write_lines};
use crate::cli::shown::{printable, verified};
use crate::config::{self, Config};
use api::Filter;
use channel::{Expect, Named, RejectionReason};
use net::Chain;
use operator::Changes;
use operator::api::{Reload, Retried, RetryQuarantined};
use proof::event::{EventType, Offset};
use proof::verify::{Verdict, Verified};

mod seen;

use seen::Seen;

/// How many events are examined: the service's largest page.
const EVENTS: u16 = 200;

/// How many of the events that would be rejected are printed one by one.
const SHOWN: usize = 20;

/// Find the values that events of a channel may contain.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  channeld channels pin settlements
  channeld channels pin settlements --list workflow_id --list address --apply")]
pub(crate) enum Command {
    /// Propose the allowed values of a channel's events, and write them.
    ///
    /// Reads the last 200 signed events, and the service's descriptions of the watchers that these events name. Prints
    /// `[channels.NAME.expect]` with the values that were found and the values that are already on the lists. Also
    /// prints the events that these lists would reject. Compare the values with your own records before you write them:
    /// only the service says which events belong to this channel.
    Pin(Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The channel's name in the configuration.
    channel: String,
    /// A list to propose; repeatable [default: all lists]
    #[arg(long = "list", value_name = "LIST", value_enum)]
    lists: Vec<List>,
    /// Write the lists into the configuration file. Its comments are kept.
    #[arg(long)]
    write: bool,
    /// Write the lists, reload the running daemon, and deliver quarantined events that the lists accept.
    ///
    /// This is the same as `--write`, `channeld reload` and `channeld quarantine retry NAME --all`.
    #[arg(long, conflicts_with = "write")]
    apply: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum List {
    WorkflowId,
    ChainSelector,
    Address,
    Service,
    Name,
}

/// The proposed lists and their effect.
#[derive(Debug, Serialize)]
struct Proposal {
    channel: String,
    /// Signed events that were examined.
    events: usize,
    /// Examined events whose proof is valid.
    verified: usize,
    expect: BTreeMap<&'static str, Vec<String>>,
    /// Lists that are not proposed, because at least one verified event has no such value.
    left_out: Vec<&'static str>,
    /// Verified events that the lists of the configuration reject.
    rejected_now: usize,
    /// Verified events that the proposed lists reject.
    rejected: Vec<Rejected>,
    written: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<Applied>,
}

/// The result of applying the proposal to the running daemon.
#[derive(Debug, Serialize)]
struct Applied {
    changes: Changes,
    retried: Vec<Retried>,
}

#[derive(Debug, Serialize)]
struct Rejected {
    offset: Offset,
    reason: &'static str,
    detail: String,
}

pub(crate) async fn run(command: Command, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let Command::Pin(args) = command;
    let config = Config::load(file)?;
    let known = config.channels.iter().find(|known| *known.channel.name == args.channel);
    let Some(known) = known else {
        let names: Vec<_> = config.channels.iter().map(|known| &*known.channel.name).collect();
        let message =
            format!("channel `{}` is not configured; the configured channels are {}", args.channel, names.join(", "));
        return Err(Failure(Exit::Usage, message));
    };
    let (mut proposal, expect) = propose(&args, &config, known).await?;
    if args.write || args.apply {
        let Some(file) = file.filter(|_| !expect.is_empty()) else {
            let message = "nothing was written: no configuration file exists, or nothing can be proposed";
            return Err(Failure(Exit::Failed, message.to_owned()));
        };
        config::write_expect(file, &args.channel, &expect)
            .map_err(|error| Failure(Exit::Failed, format!("{}: {}", file.display(), Chain(&error))))?;
        proposal.written = true;
        if args.apply {
            let applied = Applied::by_daemon(file, &args.channel).await;
            let applied =
                applied.map_err(|Failure(exit, why)| Failure(exit, format!("the lists were written, but {why}")));
            proposal.applied = Some(applied?);
        }
    }
    if args.json { say_json(out, &proposal) } else { write_lines(out, proposal.lines()) }
}

async fn propose(args: &Args, config: &Config, known: &config::Channel) -> Result<(Proposal, Expect), Failure> {
    let (channel, client) = (&known.channel, connect::client(config)?);
    let types = vec![EventType::WatcherEvent, EventType::OperationStatus, EventType::QueryStatus];
    let filter = Filter { types, ..Filter::default() };
    let doing = format!("channel {} could not be searched", channel.name);
    let page = client.search(channel.id, &filter, EVENTS, None).await.map_err(Failure::api(doing))?;
    let verdicts = verified(&known.verification.verifier, page.events).await;
    let events = verdicts.len();
    let holds = |verdict| if let Verdict::Verified(verified) = verdict { Some(verified) } else { None };
    let proved: Vec<Verified> = verdicts.into_iter().filter_map(holds).collect();
    let present = &known.verification.expect;
    let mut seen = Seen::default();
    seen.watchers(&client, channel.id, &proved).await?;
    seen.events(channel.id, &proved);
    let lists =
        Named::VARIANTS.iter().filter(|what| args.lists.is_empty() || args.lists.iter().any(|list| list.is(**what)));
    let (named, left_out): (Vec<_>, Vec<_>) = lists.copied().partition(|what| !seen.unnamed.contains(what));
    let mut proposed: BTreeMap<Named, BTreeSet<String>> =
        present.lists().map(|(what, values)| (what, values.iter().cloned().collect())).collect();
    for what in named {
        proposed.entry(what).or_default().extend(seen.values.remove(&what).unwrap_or_default());
    }
    proposed.retain(|_, values| !values.is_empty());
    let expect = Expect::of(proposed.into_iter().map(|(what, values)| (what, values.into_iter().collect())));
    let check = |expect: &Expect| -> Vec<Rejected> {
        let rejected = |verified: &Verified| {
            let not = expect.check_event(channel.id, verified).err()?;
            let (offset, reason) = (verified.event().raw.offset, RejectionReason::from(&not).name());
            Some(Rejected { offset, reason, detail: not.to_string() })
        };
        proved.iter().filter_map(rejected).collect()
    };
    let proposal = Proposal {
        channel: channel.name.to_string(),
        events,
        verified: proved.len(),
        expect: expect.lists().map(|(what, values)| (what.into(), values.to_vec())).collect(),
        left_out: left_out.into_iter().map(Into::into).collect(),
        rejected_now: check(present).len(),
        rejected: check(&expect),
        written: false,
        applied: None,
    };
    Ok((proposal, expect))
}

impl List {
    fn is(self, what: Named) -> bool {
        self.to_possible_value().is_some_and(|name| name.get_name() == <&str>::from(what))
    }
}

impl Applied {
    async fn by_daemon(file: &Path, channel: &str) -> Result<Self, Failure> {
        let operator = Operator::open(Some(file))?;
        let changes = operator.ask_daemon(&Reload {}).await?;
        let all = RetryQuarantined { channel: channel.to_owned(), offsets: Vec::new(), all: true, reason: None };
        Ok(Self { changes, retried: operator.ask_daemon(&all).await? })
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let warnings = self.changes.warnings.iter().map(|warning| format!("# warning: {warning}"));
        let head = format!("# in force; {} quarantined events were verified again", self.retried.len());
        let retried = self.retried.iter().map(|one| format!("# {}", quarantine::retried(one)));
        warnings.chain([head]).chain(retried)
    }
}

impl Proposal {
    fn lines(&self) -> Vec<String> {
        let Self { channel, events, verified, rejected_now, rejected, .. } = self;
        let mut lines = vec![format!("# of the last {events} signed events, {verified} are verified"), String::new()];
        lines.push(format!("[channels.{channel}.expect]"));
        for (what, values) in &self.expect {
            let values: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
            lines.push(printable(&format!("{what} = [{}]", values.join(", "))));
        }
        let left_out = |what| format!("# {what} is omitted: not every verified event has one");
        lines.extend(self.left_out.iter().map(left_out));
        lines.push(String::new());
        lines.push(format!("# the present lists reject {rejected_now} of them, the proposed ones {}", rejected.len()));
        lines.extend(
            rejected
                .iter()
                .take(SHOWN)
                .map(|event| printable(&format!("# {:>10}  {:20}  {}", event.offset, event.reason, event.detail))),
        );
        match (&self.applied, self.written) {
            (Some(applied), _) => lines.extend(applied.lines()),
            (None, true) => lines.push(format!(
                "# written; `channeld reload` puts it in force, `channeld quarantine retry {channel} --all` delivers what it accepts"
            )),
            (None, false) => lines.push(
                "# not written: compare it with your own records; --write writes it, --apply also puts it in force".to_owned(),
            ),
        }
        lines
    }
}
