//! The configuration in force, and its replacement by another while the daemon runs.
//!
//! # Invariants
//!
//! * **All or nothing.** Where anything in the new configuration is wrong, nothing changes.
//! * **Unchanged parts go on.** Sinks whose settings did not change are kept, and their channels and lanes with them.
//! * **The file is read when an operator asks,** by SIGHUP or `channeld reload`. Secrets and certificates that it names are
//!   read again as soon as they change.

use std::path::Path;

use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::channel::SharedParts;
use crate::config::{Config, Text};
use crate::daemon::assembly::{self, Sinks};
use crate::daemon::supervisor::Wanted;
use crate::operator::Changes;
use crate::telemetry::{ALWAYS, Chain};

use super::StartError;

/// The configuration in force, and the sinks that were built from it.
pub(super) struct InForce {
    pub(super) config: Config,
    text: Text,
    sinks: Sinks,
    /// Sinks that are opening their files again.
    reopening: JoinSet<()>,
    /// The last error about changed files, so that it is logged once.
    complaint: Option<String>,
}

/// Reads a text and everything that it names, off the async threads.
pub(super) async fn load(text: &Text) -> Result<Config, StartError> {
    let text = text.clone();
    Ok(tokio::task::spawn_blocking(move || Config::of(&text, std::env::vars_os())).await??)
}

async fn read(file: Option<&Path>) -> Result<Text, StartError> {
    let file = file.map(Path::to_owned);
    Ok(tokio::task::spawn_blocking(move || Text::read(file.as_deref())).await??)
}

impl InForce {
    /// The first: nothing runs yet.
    pub(super) fn first(text: Text, config: Config, parts: &SharedParts) -> Result<(Self, Wanted), StartError> {
        let (sinks, wanted) = assemble(&config, None, parts)?;
        let (reopening, complaint) = (JoinSet::new(), None);
        Ok((Self { config, text, sinks, reopening, complaint }, wanted))
    }

    /// Reads the operator's file again and puts it in force.
    ///
    /// # Errors
    /// Nothing changes.
    pub(super) async fn reload(
        &mut self,
        file: Option<&Path>,
        parts: &SharedParts,
    ) -> Result<(Changes, Wanted), StartError> {
        let adopted = match read(file).await {
            Ok(text) => self.adopt(text, parts).await,
            Err(error) => Err(error),
        };
        match &adopted {
            Ok((changes, _)) => {
                tell(changes, "configuration read again: in force");
                self.reopen();
            }
            Err(error) => error!(target: ALWAYS, error = %Chain(&**error), "configuration rejected: nothing changes"),
        }
        adopted
    }

    /// Secrets and certificates that have changed take the place of those in force; `None` where none has, or what there
    /// is now cannot be used.
    pub(super) async fn follow_files(&mut self, parts: &SharedParts) -> Option<Wanted> {
        let files = self.config.files.clone();
        if !matches!(tokio::task::spawn_blocking(move || files.have_changed()).await, Ok(true)) {
            return None;
        }
        match self.adopt(self.text.clone(), parts).await {
            Ok((changes, wanted)) => {
                tell(&changes, "files of the configuration changed: in force");
                Some(wanted)
            }
            Err(error) => {
                let complaint = Chain(&*error).to_string();
                if self.complaint.as_ref() != Some(&complaint) {
                    error!(target: ALWAYS, error = complaint, "files of the configuration changed and cannot be used: nothing changes");
                    self.complaint = Some(complaint);
                }
                None
            }
        }
    }

    async fn adopt(&mut self, text: Text, parts: &SharedParts) -> Result<(Changes, Wanted), StartError> {
        let config = load(&text).await?;
        check_lasting(&self.config, &config)?;
        let (sinks, wanted) = assemble(&config, Some((&self.config, &self.sinks)), parts)?;
        let changes = Changes::between(&self.config, &config);
        (self.config, self.text, self.sinks, self.complaint) = (config, text, sinks, None);
        Ok((changes, wanted))
    }

    /// Lets every sink open its files again, for `logrotate`. Does not wait for them.
    fn reopen(&mut self) {
        while self.reopening.try_join_next().is_some() {}
        for (name, outlet) in &self.sinks {
            let (name, sink) = (name.clone(), outlet.sink.clone());
            self.reopening.spawn(async move {
                if let Err(error) = sink.reopen().await {
                    warn!(sink = name, error = %Chain(&error), "sink could not be opened again: it will be when it is used");
                }
            });
        }
    }
}

/// Rejects changes that need a restart.
fn check_lasting(before: &Config, after: &Config) -> Result<(), StartError> {
    let endpoint = |config: &Config| config.otlp.as_ref().map(|otlp| otlp.endpoint.clone());
    let kept = [
        ("state.path", before.state_path == after.state_path),
        ("admin.listen", before.listen == after.listen),
        ("log.format", before.log.format == after.log.format),
        ("log.otlp_endpoint", endpoint(before) == endpoint(after)),
    ];
    let changed: Vec<_> = kept.iter().filter(|(_, same)| !same).map(|(key, _)| *key).collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!("{} cannot change while channeld runs: restart it, or take the change back", changed.join(", ")).into())
}

fn assemble(
    config: &Config,
    before: Option<(&Config, &Sinks)>,
    parts: &SharedParts,
) -> Result<(Sinks, Wanted), StartError> {
    let client = assembly::client(config)?;
    let sinks = assembly::sinks(config, before)?;
    let channels = assembly::channels(config, &client, &sinks, parts);
    Ok((sinks, Wanted { channels, grace: config.shutdown_grace }))
}

fn tell(changes: &Changes, what: &'static str) {
    if changes.is_empty() {
        info!(target: ALWAYS, changes = "none", "{what}");
    } else {
        info!(target: ALWAYS, %changes, "{what}");
    }
}
