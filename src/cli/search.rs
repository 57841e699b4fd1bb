//! `channeld search`: events by filters, each with the verdict on its proof.
//!
//! # Invariants
//!
//! * **Invalid filters are refused here**, before the service is asked.
//! * **No event twice, none silently skipped**, with `--all` too: see `search/pages.rs`.
//! * **Bounded.** One page is held at a time.
//!
//! # Cancellation
//!
//! May be dropped at any point: it changes nothing.

use std::io::Write;

use clap::builder::NonEmptyStringValueParser;
use uuid::Uuid;

use super::exit::{Exit, Failure};
use super::shown::{self, Format};
use crate::api::{Client, Created, Filter};
use crate::event::{EventType, Offset};
use crate::record::ChannelRef;
use crate::verify::{Address, Verdict, Verifier};

mod pages;
#[cfg(test)]
mod tests;

pub use pages::Pages;

/// The service's own maximum.
const MAX_LIMIT: u16 = 200;

/// The service's own default.
const DEFAULT_LIMIT: u16 = 50;

/// Search a channel's events, newest first, with the verdict on the proof of each.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// What to search for.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Events a page, 1 to 200 [default: 50, with --all 200].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_LIMIT)))]
    pub limit: Option<u16>,
    /// Passed on to the service as it is; what it means on a search is not documented.
    #[arg(long, value_parser = offset)]
    pub offset: Option<Offset>,
    /// Go back through everything that matches, page by page.
    #[arg(long, conflicts_with = "offset")]
    pub all: bool,
    /// Print each record as one JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// The service's search filters. Those marked as repeatable match any of the values given.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Kind of event, such as watcher.event; repeatable.
    #[arg(long = "type", value_name = "TYPE", value_parser = NonEmptyStringValueParser::new())]
    pub types: Vec<String>,
    /// Name of the watched event (watcher.event).
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub event_name: Option<String>,
    /// Contract or wallet address (operation.status, watcher.event, wallet.status); repeatable.
    #[arg(long = "address", value_name = "ADDRESS", value_parser = address)]
    pub addresses: Vec<String>,
    /// Chain selector, a decimal number; repeatable.
    #[arg(long = "chain-selector", value_name = "SELECTOR", value_parser = chain_selector)]
    pub chain_selectors: Vec<String>,
    /// Chains of this environment only.
    #[arg(long, value_parser = ["mainnet", "testnet"])]
    pub chain_environment: Option<String>,
    /// Events of one watcher (watcher.event, watcher.status).
    #[arg(long)]
    pub watcher_id: Option<Uuid>,
    /// Events of one wallet (wallet.status).
    #[arg(long)]
    pub wallet_id: Option<Uuid>,
    /// Service of the watcher (watcher.event); repeatable.
    #[arg(long = "service", value_name = "SERVICE", value_parser = NonEmptyStringValueParser::new())]
    pub services: Vec<String>,
    /// Status, such as confirmed (every kind but watcher.event); repeatable.
    #[arg(long = "status", value_name = "STATUS", value_parser = NonEmptyStringValueParser::new())]
    pub statuses: Vec<String>,
    /// The operation's id in its wallet (operation.status).
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub wallet_operation_id: Option<String>,
    /// The operation's id (operation.status).
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub operation_id: Option<String>,
    /// The chain query's id (query.status).
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub query_id: Option<String>,
    /// Created after this Unix second.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    pub created_gt: Option<i64>,
    /// Created in this Unix second or later.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    pub created_gte: Option<i64>,
    /// Created before this Unix second.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    pub created_lt: Option<i64>,
    /// Created in this Unix second or earlier.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    pub created_lte: Option<i64>,
}

impl FilterArgs {
    /// The filter, checked as the service would check it.
    ///
    /// # Errors
    /// [`Failure::Usage`], where a filter applies to none of the types.
    pub fn filter(&self) -> Result<Filter, Failure> {
        let types = self.types.iter().map(|kind| EventType::from(kind.as_str())).collect();
        let created =
            Created { gt: self.created_gt, gte: self.created_gte, lt: self.created_lt, lte: self.created_lte };
        let filter = Filter { types, created, ..Filter::default() }
            .with("chain_selector", &self.chain_selectors)
            .with("chain_environment", &self.chain_environment)
            .with("status", &self.statuses)
            .with("watcher_id", self.watcher_id)
            .with("wallet_id", self.wallet_id)
            .with("address", &self.addresses)
            .with("wallet_operation_id", &self.wallet_operation_id)
            .with("operation_id", &self.operation_id)
            .with("query_id", &self.query_id)
            .with("event_name", &self.event_name)
            .with("service", &self.services);
        filter.check().map_err(Failure::Usage)?;
        Ok(filter)
    }
}

/// Searches and writes what is found.
///
/// # Errors
/// [`Failure`]; with `--all` what was found until then has been written.
pub async fn run(
    args: &Args,
    client: &Client,
    channel: &ChannelRef,
    verifier: &Verifier,
    out: &mut impl Write,
) -> Result<Exit, Failure> {
    let filter = args.filter.filter()?;
    if args.all {
        let mut pages = Pages::new(client, channel.id, filter, args.limit.unwrap_or(MAX_LIMIT));
        while let Some(events) = pages.next().await? {
            write_page(args, channel, &shown::verified(verifier, events).await, out)?;
        }
    } else {
        let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
        let doing = format!("channel {} could not be searched", channel.name);
        let page = client.search(channel.id, &filter, limit, args.offset).await.map_err(Failure::api(doing))?;
        write_page(args, channel, &shown::verified(verifier, page.events).await, out)?;
    }
    Ok(Exit::Done)
}

fn write_page(args: &Args, channel: &ChannelRef, verdicts: &[Verdict], out: &mut impl Write) -> Result<(), Failure> {
    let format = Format::of(args.json);
    let mut each = verdicts.iter();
    each.try_for_each(|verdict| shown::write(out, format, channel, verdict)).map_err(Failure::output)?;
    out.flush().map_err(Failure::output)
}

fn offset(text: &str) -> Result<Offset, &'static str> {
    text.parse().ok().and_then(Offset::new).ok_or("not a number from 0 on")
}

/// An address as the service takes it, in the case in which it was written.
fn address(text: &str) -> Result<String, &'static str> {
    let well_formed = text.starts_with("0x") && text.parse::<Address>().is_ok();
    if well_formed { Ok(text.to_owned()) } else { Err("not 0x and 40 hexadecimal digits") }
}

fn chain_selector(text: &str) -> Result<String, &'static str> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err("not a decimal number")
    }
}
