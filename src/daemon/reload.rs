//! Replaces the configuration in force with another one while the daemon runs.
//!
//! # Invariants
//!
//! * **All or nothing.** If anything in the new configuration is wrong, nothing changes.
//! * **Unchanged parts keep running.** Sinks, channels and lanes whose settings did not change are kept.
//! * **The file is read when an operator requests it,** by SIGHUP or `channeld reload`. The secrets and certificates
//!   that the file names are read again as soon as they change.
//! * **A file that hangs stops nothing else.** A blocking thread reads the files, and signals are handled meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use super::background::{discovery, names};
use super::reading::Reading;
use super::systemd::Phase;
use super::{Daemon, StartError, assembly};
use crate::config::{Channel, Config, ConfigText, Loaded};
use channel::{Handles, SignerStatus, counted};
use net::Chain;
use net::tasks::lock;
use operator::{Changes, Operations, Refusal, Reloading};
use proof::verify::Verifier;
use telemetry::ALWAYS;

/// A signer whose last signature is older than this may have been retired, so no warning names this signer.
const LATELY: Duration = Duration::from_secs(24 * 3600);

impl Daemon {
    /// Reads the operator's file again, and applies it when it is read. If the file is being read already, it is read once
    /// more afterwards, because it can have changed meanwhile.
    pub(super) fn request_reload(&mut self, reply: Option<Reloading>) {
        self.reload_requests.get_or_insert_default().extend(reply);
        self.read_again();
    }

    fn read_again(&mut self) {
        if self.reading.is_none()
            && let Some(replies) = self.reload_requests.take()
        {
            self.notifier.reloading();
            let file = self.file.clone();
            let load = move || Ok(Some(Config::of(ConfigText::read(file.as_deref())?, std::env::vars_os())?));
            self.reading = Some(Reading { loaded: spawn_blocking(load), replies: Some(replies) });
        }
    }

    /// Reads the configuration again if a file with a secret or a certificate has changed.
    pub(super) fn follow_files(&mut self) {
        if self.reading.is_some() {
            return;
        }
        let Loaded { files, text, .. } = &self.loaded;
        let (files, text, followed) = (files.clone(), text.clone(), self.followed.clone());
        let load = move || lock(&followed).read(&files, Instant::now(), || Ok(Config::of(text, std::env::vars_os())?));
        self.reading = Some(Reading { loaded: spawn_blocking(load), replies: None });
    }

    /// Applies the configuration that was read. If this fails, nothing changes.
    pub(super) fn finish_reading(&mut self, loaded: Result<Option<Loaded>, StartError>) {
        let replies = self.reading.take().and_then(|reading| reading.replies);
        let adopted = loaded.and_then(|loaded| loaded.map(|loaded| self.adopt(loaded)).transpose());
        match replies {
            Some(replies) => self.reloaded(&adopted.map(Option::unwrap_or_default), replies),
            None => self.files_followed(adopted),
        }
        self.read_again();
    }

    fn reloaded(&mut self, adopted: &Result<Changes, StartError>, replies: Vec<Reloading>) {
        self.rejections.reloaded(adopted.as_ref().err().map(|error| Chain(&**error).to_string()));
        self.show_rejections();
        match adopted {
            Ok(changes) => {
                log_changes(changes, "configuration reloaded");
                self.reopen();
                self.notifier.enter(Phase::Running);
            }
            Err(error) => {
                error!(target: ALWAYS, error = %Chain(&**error), "configuration rejected: the previous one stays in force");
                self.notifier.enter(Phase::Rejected);
            }
        }
        for reply in replies {
            let outcome = match adopted {
                Ok(changes) => Ok(changes.clone()),
                Err(error) => Err(Refusal::Config(Chain(&**error).to_string())),
            };
            // The send fails if the command has ended meanwhile, which is fine.
            let _ = reply.send(outcome);
        }
    }

    /// Logs the outcome of reading changed files. If they cannot be used, the current ones stay in force.
    fn files_followed(&mut self, adopted: Result<Option<Changes>, StartError>) {
        let error = adopted.as_ref().err().map(|error| Chain(&**error).to_string());
        if let Some(error) = &error {
            lock(&self.followed).rejected(error, Instant::now());
        }
        let is_new = self.rejections.followed(error.clone());
        self.show_rejections();
        if let Ok(Some(changes)) = adopted {
            log_changes(&changes, "files of the configuration changed: reloaded");
        }
        if is_new {
            error!(target: ALWAYS, error, "files of the configuration changed and cannot be used: the previous ones stay in force");
        }
    }

    /// Shows in the status and in the metrics whether the configuration that was read last was rejected.
    fn show_rejections(&self) {
        let rejected_config = self.rejections.shown();
        let has_changed = self.operations.send_if_modified(|now| {
            let has_changed = now.rejected_config.as_ref() != rejected_config;
            if has_changed {
                let rejected_config = rejected_config.cloned();
                *now = Arc::new(Operations { rejected_config, ..(**now).clone() });
            }
            has_changed
        });
        match rejected_config {
            Some(_) => self.parts.metrics.config_rejected(),
            None if has_changed => self.parts.metrics.config_in_force(),
            None => {}
        }
    }

    fn adopt(&mut self, loaded: Loaded) -> Result<Changes, StartError> {
        let (before, config) = (&self.loaded.config, &loaded.config);
        check_lasting(before, config)?;
        let (clients, sinks, channels) =
            assembly::assemble(config, Some((before, &self.clients, &self.sinks)), &self.parts)?;
        let served = match &self.feed {
            Some(feed) => assembly::feed_after(&feed.borrow(), (before, &self.sinks), (config, &sinks))?,
            None => None,
        };
        let warnings = warnings(before, config, &self.parts.handles);
        for warning in &warnings {
            warn!(target: ALWAYS, warning, "the new configuration rejects events that were verified recently");
        }
        let lanes = lane_changes(before, config, &self.parts.handles);
        for lane in &lanes {
            info!(target: ALWAYS, lane, "the configuration changed a lane");
        }
        let changes = Changes { warnings, lanes, ..before.changes_to(config) };
        self.logs.set(&config.log);
        if let (Some(served), Some(feed)) = (served, &self.feed) {
            feed.send_replace(Arc::new(served));
        }
        self.trace_export.follow(config.otlp.as_ref());
        let configured = config.channels.iter().map(Channel::for_operator).collect();
        let api_keys = assembly::api_keys(config, &clients);
        self.operations
            .send_modify(|now| *now = Arc::new(Operations { channels: configured, api_keys, ..(**now).clone() }));
        self.parts.metrics.config_in_force();
        if self.clients != clients {
            self.background.send_replace(names::counted(&clients, &self.parts.handles));
        }
        self.discovery.send_replace(discovery::DiscoveryPlan::of(config, &self.background.borrow()));
        (self.loaded, self.clients, self.sinks) = (loaded, clients, sinks);
        self.follow(channels);
        Ok(changes)
    }

    /// Makes every sink open its files again, for `logrotate`. Does not wait for the sinks.
    fn reopen(&mut self) {
        while self.reopening.try_join_next().is_some() {}
        for (name, lane_settings) in &self.sinks {
            let (name, sink) = (name.clone(), lane_settings.sink.clone());
            self.reopening.spawn(async move {
                if let Err(error) = sink.reopen().await {
                    warn!(sink = name, error = %Chain(&error), "sink could not be reopened: the next delivery tries again");
                }
            });
        }
    }
}

/// Rejects changes that need a restart.
fn check_lasting(before: &Config, after: &Config) -> Result<(), StartError> {
    let endpoint = |config: &Config| config.otlp.as_ref().map(|otlp| otlp.endpoint.clone());
    let feed = |config: &Config| config.feed.as_ref().map(|feed| (feed.listen.clone(), feed.sink.clone()));
    let kept = [
        ("state.path", before.state.path == after.state.path),
        ("[state] and [cluster]", before.state.database == after.state.database),
        ("admin.listen", before.listen == after.listen),
        ("admin.hosts", before.hosts == after.hosts),
        ("feed.listen and feed.sink", feed(before) == feed(after)),
        ("log.format", before.log.format == after.log.format),
        ("log.otlp_endpoint", endpoint(before) == endpoint(after)),
    ];
    let changed: Vec<_> = kept.iter().filter(|(_, same)| !same).map(|(key, _)| *key).collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!("{} cannot change while channeld is running: restart channeld, or undo the change", changed.join(", "))
        .into())
}

fn log_changes(changes: &Changes, what: &'static str) {
    if changes.is_empty() {
        info!(target: ALWAYS, changes = "none", "{what}");
    } else {
        info!(target: ALWAYS, %changes, "{what}");
    }
}

/// Describes the lanes that were added or removed, for the channels that this process runs. For a removed lane, names
/// the cursor and the number of events that the state keeps. For an added lane, names the offset at which delivery
/// begins.
fn lane_changes(before: &Config, after: &Config, handles: &Handles) -> Vec<String> {
    let mut sentences = Vec::new();
    for Channel { channel, sinks: known, .. } in &before.channels {
        let Some(owned) = handles.of(channel.id).owned() else { continue };
        let (ledger, name) = (owned.leased.ledger(), &channel.name);
        let kept = after.channels.iter().find(|kept| kept.channel.id == channel.id);
        let wanted = kept.map_or(&[][..], |kept| &kept.sinks);
        for sink in known.iter().filter(|sink| !wanted.contains(sink)) {
            let cursor =
                ledger.cursor(sink).map_or_else(|| "no cursor".to_owned(), |cursor| format!("its cursor ({cursor})"));
            let pending = counted(ledger.owed(sink).count() as u64, "pending event");
            let dead_letters = ledger.dead_letters().keys().filter(|(_, of)| **of == **sink).count();
            let dead_letters = counted(dead_letters as u64, "dead letter");
            sentences.push(format!(
                "Channel {name} no longer delivers to sink {sink}. The state keeps {cursor}, {pending} and {dead_letters}: if the channel gets a sink with this name again, delivery continues from this state."
            ));
        }
        for sink in wanted.iter().filter(|sink| !known.contains(sink)) {
            let begins = ledger.cursor(sink).map_or_else(
                || "at the position that the sink reports or, if it has none, at the channel's start".to_owned(),
                |cursor| format!("after its recorded cursor {cursor}"),
            );
            sentences.push(format!("Delivery of channel {name} to sink {sink} begins {begins}."));
        }
    }
    sentences
}

/// Returns warnings if the new configuration would reject events like the recently verified ones: one sentence for each
/// channel and reason.
fn warnings(before: &Config, after: &Config, handles: &Handles) -> Vec<String> {
    let mut warnings = Vec::new();
    for Channel { channel, verification, .. } in &after.channels {
        let Some(known) = before.channels.iter().find(|known| known.channel.id == channel.id) else { continue };
        let seen = handles.of(channel.id).board().signers_seen_since(Timestamp::now() - LATELY);
        let rejected = newly_rejected(&known.verification.verifier, &verification.verifier, &seen);
        warnings.extend(rejected.into_iter().map(|what| format!("channel {}: {what}", channel.name)));
    }
    warnings
}

fn newly_rejected(before: &Verifier, after: &Verifier, seen: &[SignerStatus]) -> Vec<String> {
    let mut rejected = Vec::new();
    if seen.is_empty() {
        return rejected;
    }
    let (owner, new_owner) = (before.workflow_owner, after.workflow_owner);
    if owner != new_owner {
        rejected.push(format!(
            "the workflow owner is now {new_owner}, but all events verified recently belong to {owner}: further events of {owner} will be rejected (wrong-owner)"
        ));
    }
    let (required, newly_required) = (before.signers.required(), after.signers.required());
    if newly_required > required {
        rejected.push(format!(
            "{newly_required} signatures are now required instead of {required}: events with fewer than {newly_required} will be rejected (too-few-signatures)"
        ));
    }
    let is_gone = |signer: &&SignerStatus| !after.signers.addresses().contains(&signer.signer);
    let gone: Vec<_> = seen.iter().filter(is_gone).map(|gone| gone.signer.to_string()).collect();
    if !gone.is_empty() {
        rejected.push(format!(
            "valid_signers no longer contains {}, which signed events recently: events that need their signatures will be rejected (too-few-signatures)",
            gone.join(", ")
        ));
    }
    rejected
}
