//! `channeld channels list`: the channels of the organization, according to the service.

use std::iter;

use serde::Serialize;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::terminal::{Cell, Table};
use crate::cli::verdict_line::printable;
use crate::config::{self, ConfigText};
use api::{AccountName, ApiError, Client, ListedChannel};
use net::Chain;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The account: a table `[accounts.NAME]` of the configuration [default: the account of `[api]`]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Entry {
    #[serde(flatten)]
    channel: ListedChannel,
    /// The name of the channel in the configuration; `None` if the channel is not configured.
    configured: Option<String>,
}

pub(super) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let account = args.account.as_deref().map_or_else(AccountName::default, AccountName::new);
    let service = config::load_service(&ConfigText::read(cx.file)?, &account)?;
    let listed = listed(service.account.client).await?;
    let entry = |channel: ListedChannel| Entry { configured: service.channels.get(&channel.id()).cloned(), channel };
    let entries: Vec<_> = listed.into_iter().map(entry).collect();
    cx.say_table(args.json, &entries, "the service lists no channel of this organization", table)
}

fn table(entries: &[Entry]) -> Table {
    let row = |Entry { channel, configured }: &Entry| {
        let [name, status] = [&channel.name, &channel.status].map(|text| printable(text.as_deref().unwrap_or("-")));
        let cells = vec![Cell::whole(channel.channel_id.to_string()), Cell::text(status), Cell::text(name)];
        (cells, configured.clone().unwrap_or_else(|| "-".to_owned()))
    };
    let heading = (["ID", "STATUS", "NAME"].map(Cell::text).into(), "CONFIGURED AS".to_owned());
    Table(iter::once(heading).chain(entries.iter().map(row)).collect())
}

/// Requests the list of channels.
pub(crate) async fn listed(settings: api::Settings) -> Result<Vec<ListedChannel>, CommandError> {
    let client = Client::new(settings).map_err(|error| CommandError(Exit::Config, Chain(&error).to_string()))?;
    client.channels().await.map_err(|error| match error {
        ApiError::Refused(answer) if answer.status == 403 => CommandError::failed(format!(
            "the API key lacks the scope for reading channels ({answer}): use a key that has it, or ask for the ids of the channels"
        )),
        ApiError::Refused(answer) if answer.status == 404 => {
            CommandError::failed(format!("this service does not list channels ({answer}): ask for the ids of the channels"))
        }
        error => CommandError::api("the channels could not be listed")(error),
    })
}
