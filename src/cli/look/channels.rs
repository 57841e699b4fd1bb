//! `channeld channels`: `list` shows the channels of the organization. `pin` proposes the lists of values that a channel's
//! events may contain. The values come from past events. `pin` can also write the lists to the configuration and apply them.
//!
//! # Invariants
//!
//! * **A watcher's events are used only if the service describes the watcher in this channel.** Other events contribute no
//!   value, and are printed as events that the lists would reject.
//! * **No value is removed.** Values that are already on the lists stay there.

use std::collections::{BTreeMap, BTreeSet};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use serde_json::Value;
use strum::VariantArray;
use uuid::Uuid;

use crate::cli::act::quarantine;
use crate::cli::context::{CommandError, Context, Exit, client, configured_channel};
use crate::cli::verdict_line::{printable, verified};
use crate::config::{self, Config};
use api::{ApiError, Client, Filter};
use channel::{Expect, Names, RejectionReason, SignedField};
use net::Chain;
use operator::Changes;
use operator::api::{Reload, RetriedEvent, RetryQuarantined};
use proof::event::{ChannelId, EventType, Offset};
use proof::verify::{Verdict, Verified};

pub(crate) mod list;

/// How many events are examined: the service's largest page.
const EVENTS: u16 = 200;

/// Maximum number of watchers whose description is requested.
const WATCHERS: usize = 100;

/// How many of the events that would be rejected are printed one by one.
const SHOWN: usize = 20;

/// List the channels of the organization, or find the values that events of a channel may contain.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  channeld channels list
  channeld channels pin settlements
  channeld channels pin settlements --list workflow_id --list address --apply")]
pub(crate) enum Command {
    /// List the channels of the organization, and the names under which they are configured here.
    ///
    /// The service answers this request only if the API key has the scope for reading channels. No channel need be
    /// configured yet.
    List(list::Args),
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
    /// The channel: its name in the configuration, or its UUID.
    channel: String,
    /// A list to propose; repeatable [default: all lists]
    #[arg(long = "list", value_name = "LIST", value_parser = list())]
    lists: Vec<SignedField>,
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

fn list() -> impl TypedValueParser<Value = SignedField> {
    let parse =
        |name: String| *SignedField::VARIANTS.iter().find(|list| <&str>::from(**list) == name).expect("it is a list");
    PossibleValuesParser::new(SignedField::VARIANTS.iter().map(|list| <&str>::from(*list))).map(parse)
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
    /// Lists that are not proposed, because at least one verified event has no value for the list.
    left_out: Vec<&'static str>,
    /// Verified events that the lists of the configuration reject.
    rejected_now: usize,
    /// Verified events that the proposed lists reject.
    rejected: Vec<RejectedEvent>,
    written: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<AppliedProposal>,
}

/// The result of applying the proposal to the running daemon.
#[derive(Debug, Serialize)]
struct AppliedProposal {
    changes: Changes,
    retried: Vec<RetriedEvent>,
}

#[derive(Debug, Serialize)]
struct RejectedEvent {
    offset: Offset,
    reason: &'static str,
    detail: String,
}

pub(crate) async fn run(command: Command, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let args = match command {
        Command::List(args) => return list::run(&args, cx).await,
        Command::Pin(args) => args,
    };
    let config = cx.config()?;
    let known = configured_channel(&config, &args.channel)?;
    let (mut proposal, expect) = propose(&args, &config, known).await?;
    if args.write || args.apply {
        let Some(file) = cx.file.filter(|_| !expect.is_empty()) else {
            let message = "nothing was written: no configuration file exists, or nothing can be proposed";
            return Err(CommandError::failed(message));
        };
        config::write_expect(file, &known.channel.name, &expect, std::env::vars_os())
            .map_err(|error| CommandError::failed(format!("{}: {}", file.display(), Chain(&error))))?;
        proposal.written = true;
        if args.apply {
            let but = |CommandError(exit, why)| CommandError(exit, format!("the lists were written, but {why}"));
            proposal.applied = Some(AppliedProposal::by_daemon(cx, args.channel).await.map_err(but)?);
        }
    }
    if args.json { cx.say_json(&proposal) } else { cx.say_lines(proposal.lines()) }
}

async fn propose(args: &Args, config: &Config, known: &config::Channel) -> Result<(Proposal, Expect), CommandError> {
    let (channel, client) = (&known.channel, client(config, known.channel.id)?);
    let types = vec![EventType::WatcherEvent, EventType::OperationStatus, EventType::QueryStatus];
    let filter = Filter { types, ..Filter::default() };
    let doing = format!("channel {} could not be searched", channel.name);
    let page = client.search(channel.id, &filter, EVENTS, None).await.map_err(CommandError::api(doing))?;
    let verdicts = verified(&known.verification.verifier, page.events).await;
    let events = verdicts.len();
    let holds = |verdict| if let Verdict::Verified(verified) = verdict { Some(verified) } else { None };
    let proved: Vec<Verified> = verdicts.into_iter().filter_map(holds).collect();
    let present = &known.verification.expect;
    let mut named_values = NamedValues::default();
    named_values.watchers(&client, channel.id, &proved).await?;
    named_values.events(channel.id, &proved);
    let lists = SignedField::VARIANTS.iter().filter(|list| args.lists.is_empty() || args.lists.contains(list));
    let (named, left_out): (Vec<_>, Vec<_>) = lists.copied().partition(|what| !named_values.unnamed.contains(what));
    let mut proposed: BTreeMap<SignedField, BTreeSet<String>> =
        present.lists().map(|(what, values)| (what, values.iter().cloned().collect())).collect();
    for what in named {
        proposed.entry(what).or_default().extend(named_values.values.remove(&what).unwrap_or_default());
    }
    proposed.retain(|_, values| !values.is_empty());
    let expect = Expect::of(proposed.into_iter().map(|(what, values)| (what, values.into_iter().collect())));
    let check = |expect: &Expect| -> Vec<RejectedEvent> {
        let rejected = |verified: &Verified| {
            let not = expect.check_event(channel.id, verified).err()?;
            let (offset, reason) = (verified.event().raw.offset, RejectionReason::from(&not).name());
            Some(RejectedEvent { offset, reason, detail: not.to_string() })
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

impl AppliedProposal {
    async fn by_daemon(cx: &Context<'_>, channel: String) -> Result<Self, CommandError> {
        let operator = cx.operator()?;
        let changes = operator.ask_daemon(&Reload {}).await?;
        let all = RetryQuarantined { channel, offsets: Vec::new(), all: true, reason: None };
        Ok(Self { changes, retried: operator.ask_daemon(&all).await? })
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let warnings = self.changes.warnings.iter().map(|warning| format!("# warning: {warning}"));
        let head = format!("# applied; {} quarantined events were verified again", self.retried.len());
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
        let left_out = |what| format!("# {what} is omitted: not every verified event has this field");
        lines.extend(self.left_out.iter().map(left_out));
        lines.push(String::new());
        let proposed = rejected.len();
        lines.push(format!("# the current lists reject {rejected_now} of these events, the proposed lists {proposed}"));
        lines.extend(
            rejected
                .iter()
                .take(SHOWN)
                .map(|event| printable(&format!("# {:>10}  {:20}  {}", event.offset, event.reason, event.detail))),
        );
        match (&self.applied, self.written) {
            (Some(applied), _) => lines.extend(applied.lines()),
            (None, true) => lines.push(format!(
                "# written; `channeld reload` applies the lists, `channeld quarantine retry {channel} --all` delivers accepted events"
            )),
            (None, false) => lines.push(
                "# not written: compare the values with your own records; --write writes the lists, --apply also applies them"
                    .to_owned(),
            ),
        }
        lines
    }
}

/// The values that a channel's events and the descriptions of its watchers contain.
#[derive(Debug, Default)]
struct NamedValues {
    values: BTreeMap<SignedField, BTreeSet<String>>,
    /// The fields that at least one event does not have.
    unnamed: BTreeSet<SignedField>,
    /// The watchers that the service describes.
    described: BTreeSet<Uuid>,
}

impl NamedValues {
    /// Requests the descriptions of the watchers that the events name, and records the values in these descriptions.
    async fn watchers(&mut self, client: &Client, channel: ChannelId, events: &[Verified]) -> Result<(), CommandError> {
        let ids: BTreeSet<_> = events.iter().filter_map(watcher).collect();
        for id in ids.into_iter().take(WATCHERS) {
            let watcher = match client.watcher(channel, id).await {
                Ok(watcher) => watcher,
                Err(ApiError::NotFound(_)) => continue,
                Err(error) => return Err(CommandError::api(format!("the watcher {id} could not be read"))(error)),
            };
            self.described.insert(id);
            let description: Value = serde_json::from_slice(&watcher.json).unwrap_or_default();
            for what in
                [SignedField::WorkflowId, SignedField::ChainSelector, SignedField::Address, SignedField::Service]
            {
                description[<&str>::from(what)].as_str().into_iter().for_each(|value| self.note(what, value));
            }
            let names = description["events"].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.for_each(|name| self.note(SignedField::Name, name));
        }
        Ok(())
    }

    /// Records the values in the events of the channel.
    fn events(&mut self, channel: ChannelId, events: &[Verified]) {
        let nothing = Expect::default();
        for verified in events {
            let is_described = watcher(verified).is_none_or(|id| self.described.contains(&id));
            if !is_described || nothing.check_event(channel, verified).is_err() {
                continue;
            }
            let signed = verified.event().payload.signed.as_deref().and_then(record::decode);
            let names = Names::of(verified.proof(), signed.as_ref().map(|signed| signed.get().as_bytes()));
            for what in SignedField::VARIANTS {
                match names.get(*what) {
                    Some(value) => self.note(*what, &value),
                    None => drop(self.unnamed.insert(*what)),
                }
            }
        }
    }

    /// Records a value in its canonical form. A value that no event could match has no canonical form, and is ignored.
    fn note(&mut self, what: SignedField, value: &str) {
        self.values.entry(what).or_default().extend(what.canonical(value));
    }
}

/// The watcher of an event, according to the service.
fn watcher(verified: &Verified) -> Option<Uuid> {
    let event: Value = serde_json::from_slice(&verified.event().raw.json).ok()?;
    event["payload"]["watcher_id"].as_str()?.parse().ok()
}
