//! The combined status of all instances that share the channels.

use crate::api::GetStatus;
use crate::others::ask_others;
use crate::{NotReady, NotReadyKind, Operations, Refusal, Report};
use channel::ChannelStatus;

impl Operations {
    /// Returns the current status of all instances, or of this instance only if `here` is set.
    pub(crate) async fn status(&self, request: &GetStatus) -> Result<Report, Refusal> {
        let mut report = self.report().await?;
        if let Some(peers) = self.cluster.as_ref().filter(|_| !request.here) {
            for (name, answer) in ask_others(peers, &GetStatus { here: true }).await {
                report.add(&name, answer);
            }
            report.channels.sort_by(|one, other| one.channel.cmp(&other.channel));
            report.sum_up();
        }
        Ok(report)
    }
}

impl Report {
    /// Adds the channels and reasons of another instance's report.
    fn add(&mut self, name: &str, answer: Result<Self, String>) {
        let (channels, reasons) = match answer {
            Ok(other) => (other.channels, known(other.not_ready, other.reasons)),
            Err(why) => (Vec::new(), vec![NotReady::new(NotReadyKind::InstanceUnknown, why)]),
        };
        self.not_ready.extend(reasons.into_iter().map(|reason| reason.of_instance(name)));
        let is_there = |channel: &ChannelStatus| channel.activity.is_here();
        for channel in channels {
            match self.channels.iter_mut().find(|known| known.channel_id == channel.channel_id) {
                Some(known) if is_there(&channel) && !is_there(known) => *known = channel,
                Some(_) => {}
                None => self.channels.push(channel),
            }
        }
    }
}

/// Returns the reasons of another instance. An instance of an earlier version has only their sentences.
fn known(reasons: Vec<NotReady>, sentences: Vec<String>) -> Vec<NotReady> {
    if reasons.len() == sentences.len() {
        return reasons;
    }
    sentences.into_iter().map(|sentence| NotReady::new(NotReadyKind::Unknown, sentence)).collect()
}
