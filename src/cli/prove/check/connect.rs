//! `channeld check --connect`: contacts the service, the channels, the sinks and the database of the state.
//!
//! # Invariants
//!
//! * **Nothing is delivered or recorded.** Pages are read and verified. Files and endpoints are only probed. Databases
//!   execute the statements of a start and of a delivery in a transaction that is rolled back.
//! * **A failure contains advice.**

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde::Serialize;

use super::samples::{self, Samples};
use crate::cli::terminal::{BAD, GOOD, styled, width_of, wrapped};
use crate::cli::verdict_line::{printable, verified};
use crate::config::{self, Config};
use crate::daemon::assembly;
use api::{AccountName, ApiError, Client, ErrorResponse, Page};
use ledger::StateError;
use net::Chain;
use net::http;
use proof::verify::{Reason, Verdict};
use record::Record;
use sink::{OpenFiles, SinkError};
use telemetry::metrics::Metrics;

/// How many events of each channel are read and verified.
const SAMPLE: u16 = 20;

/// How many channels or sinks are checked concurrently.
const AT_ONCE: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConnectionCheck {
    pub(crate) what: &'static str,
    name: String,
    pub(crate) ok: bool,
    message: String,
}

impl ConnectionCheck {
    pub(super) fn new(what: &'static str, name: &str, answer: Result<String, String>) -> Self {
        let (ok, message) = answer.map_or_else(|failure| (false, failure), |message| (true, message));
        Self { what, name: name.to_owned(), ok, message: printable(&message) }
    }

    /// Adds the beginning of the error response that `refusal` returns, if the operator asked for it.
    async fn show(&mut self, is_asked_for: bool, refusal: impl Future<Output = Option<String>>) {
        if is_asked_for && let Some(body) = refusal.await {
            self.message += &printable(&format!("; the body begins: {body}"));
        }
    }
}

/// The result as one line, with colors. On a terminal, the line is wrapped between words.
impl fmt::Display for ConnectionCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, ok, message } = self;
        let (style, word) = if *ok { (GOOD, "ok  ") } else { (BAD, "FAIL") };
        let text = format!("{what} {name}: {message}");
        let lines = wrapped(&text, width_of(&io::stdout()).map_or(usize::MAX, |width| width.saturating_sub(5)));
        write!(f, "{} {}", styled(style, word), lines.join("\n     "))
    }
}

/// Checks the service, then each channel, then each sink that a channel uses, then the database of the state.
///
/// If `state` is an error, it is added to the results. With `show_body`, an error includes the beginning of the response's
/// body.
pub(crate) async fn ask(config: &Config, state: Result<String, StateError>, show_body: bool) -> Vec<ConnectionCheck> {
    let clients = match assembly::clients(config) {
        Ok(clients) => clients,
        Err(error) => return vec![ConnectionCheck::new("service", "", Err(Chain(&error).to_string()))],
    };
    let accounts = stream::iter(&clients).map(async |(name, client)| account(config, name, client, show_body).await);
    let mut checks = accounts.buffered(AT_ONCE).collect::<Vec<_>>().await.concat();
    let of_accounts = config.channels.iter().filter_map(|channel| Some((channel, clients.get(&channel.account)?)));
    let channels = stream::iter(of_accounts).map(async |(channel, client)| {
        let (answer, newest) = match client.poll(channel.channel.id, None, SAMPLE).await {
            Ok(page) => verify(channel, page).await,
            Err(error) => (Err(advised(&error, client.account())), Vec::new()),
        };
        let mut check = ConnectionCheck::new("channel", &channel.channel.name, answer);
        check.show(show_body && !check.ok, client.refusal(Some(channel.channel.id))).await;
        (check, newest)
    });
    let (asked, newest): (Vec<_>, Vec<_>) = channels.buffered(AT_ONCE).unzip().await;
    checks.extend(asked);
    let newest = &newest;
    let in_use = config.sinks_in_use();
    let used = config.sinks.iter().filter(|(name, _)| in_use.contains(*name));
    let sinks = stream::iter(used).map(async |(name, sink)| {
        let failed = |error: SinkError| ConnectionCheck::new("sink", name, Err(Chain(&error).to_string()));
        let samples = Samples::of(config, name, newest);
        let sink = match sink.settings.build(name, &OpenFiles::default(), &Metrics::default()) {
            Ok(sink) => sink,
            Err(error) => return failed(error),
        };
        let mut check = sink
            .rehearse(&samples.deliveries())
            .await
            .map_or_else(failed, |said| ConnectionCheck::new("sink", name, Ok(said)));
        check.show(show_body, sink.refusal()).await;
        check
    });
    checks.extend(sinks.buffered(AT_ONCE).collect::<Vec<_>>().await);
    if let Some(database) = &config.state.database {
        let examined = database.examine(&config.state.path).await.map_err(|error| Chain(&error).to_string());
        checks.push(ConnectionCheck::new("database", &database.server.place(), examined));
    }
    let path = config.state.path.display().to_string();
    checks.extend(state.err().map(|error| ConnectionCheck::new("state", &path, Err(Chain(&error).to_string()))));
    checks
}

/// Checks the service of an account, and each of its keys.
async fn account(config: &Config, name: &AccountName, client: &Client, show_body: bool) -> Vec<ConnectionCheck> {
    let Some(account) = config.accounts.get(name) else { return Vec::new() };
    let of_account = name.name().map_or_else(String::new, |name| format!(" (account {name})"));
    let (url, keys) = (format!("{}{of_account}", account.client.base_url), client.keys().fingerprints().join(", "));
    let health = client.health().await.map(|()| format!("it exists and is usable; fingerprint of the API key: {keys}"));
    let mut service = ConnectionCheck::new("service", &url, health.map_err(|error| advised(&error, name)));
    service.show(show_body && !service.ok, client.refusal(None)).await;
    let mut checks = vec![service];
    let channel = config.channels.iter().find(|channel| channel.account == *name);
    if let (Some(channel), 2..) = (channel, account.client.api_keys.len()) {
        checks.extend(each_key(&account.client, channel).await);
    }
    checks
}

/// Checks each of several API keys alone, because the channels are read with the first key that works.
async fn each_key(settings: &api::Settings, channel: &config::Channel) -> Vec<ConnectionCheck> {
    let mut checks = Vec::new();
    for key in &settings.api_keys {
        let alone = api::Settings { api_keys: vec![key.clone()], ..settings.clone() };
        let answer = match Client::new(alone) {
            Ok(client) => {
                let page = client.poll(channel.channel.id, None, 1).await;
                page.map_err(|error| advised(&error, &settings.account))
            }
            Err(error) => Err(Chain(&error).to_string()),
        };
        let answer = answer.map(|_| "the service accepts the key with this fingerprint".to_owned());
        checks.push(ConnectionCheck::new("API key", &key.fingerprint(), answer));
    }
    checks
}

/// Verifies the newest events, and returns the records of the events that would be delivered. A rejection can mean that the
/// configured signers or the configured owner are wrong.
async fn verify(channel: &config::Channel, page: Page) -> (Result<String, String>, Vec<Arc<Record>>) {
    let Some(newest) = page.events.first().map(|event| event.offset) else {
        let said = "the key is accepted; the channel has no events to verify yet".to_owned();
        return (Ok(said), Vec::new());
    };
    let (name, expect) = (&channel.channel.name, &channel.verification.expect);
    let verdicts = verified(&channel.verification.verifier, page.events).await;
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut advice = None;
    for verdict in &verdicts {
        let found = match verdict {
            Verdict::Verified(verified) => match expect.check_event(channel.channel.id, verified) {
                Ok(()) => "verified",
                Err(not) => {
                    advice.get_or_insert_with(|| format!(": {not}; check channels.{name}.expect"));
                    "rejected"
                }
            },
            Verdict::Unsigned(_) => "never signed",
            Verdict::Pending(_) => "still without a proof",
            Verdict::Rejected(_, reason) => {
                advice.get_or_insert_with(|| advice_on(reason));
                "rejected"
            }
        };
        *counts.entry(found).or_default() += 1;
    }
    let each: Vec<_> = counts.iter().map(|(found, count)| format!("{count} {found}")).collect();
    let said = format!("the newest event is at offset {newest}; of the newest {}: {}", verdicts.len(), each.join(", "));
    let answer = match (counts.contains_key("rejected"), counts.contains_key("verified")) {
        (true, false) => Err(format!("{said}{}", advice.unwrap_or_default())),
        (true, true) => Ok(format!("{said} (rejected events would be quarantined)")),
        (false, _) => Ok(said),
    };
    (answer, samples::deliverable(channel, &verdicts))
}

/// Names the configuration keys that may be the cause, or the command that explains the reason.
fn advice_on(reason: &Reason) -> String {
    let keys = match reason {
        Reason::WrongOwner { .. } => "org_id and tenant_id, or workflow_owner,",
        Reason::TooFewSignatures { .. } => "valid_signers and min_required_signatures",
        _ => return format!(": {reason}; see `channeld explain {}`", reason.name()),
    };
    format!(": {reason}; check verification.{keys} of this channel")
}

fn advised(error: &ApiError, account: &AccountName) -> String {
    let advice = match error {
        ApiError::ChannelGone(_) => "; check the channel's id, and that it is not archived".to_owned(),
        ApiError::RateLimited { .. } => {
            "; try again later, and check whether another program uses the same key".to_owned()
        }
        // The messages of 401 and 403 already contain advice.
        ApiError::Refused(ErrorResponse { status: 401 | 403, .. })
        | ApiError::NotFound(_)
        | ApiError::TooLong { .. } => String::new(),
        ApiError::Refused(_) => format!("; check {account}.base_url, or ask the service's operator"),
        // A message that ends with a question already names the likely cause.
        ApiError::Malformed(answer) if answer.0.ends_with('?') => String::new(),
        ApiError::Transient { .. } | ApiError::Malformed(_) => {
            format!("; check {account}.base_url and the network in between")
        }
    };
    match http::explained(error) {
        Some(explained) => format!("the service could not be reached: {explained}"),
        None => format!("{}{advice}", Chain(error)),
    }
}
