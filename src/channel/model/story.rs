//! Formats a history for people, with one fact per line. Values that are the same as in a plain history are left out.

use std::fmt;

use super::history::{Event, EventKind, HasMore, History, ReplayPlan, Restored, SinkPlan};

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::plain();
        let which = if self.newest { "the newest" } else { "the oldest" };
        let own = if self.inclusive { "with" } else { "without" };
        writeln!(f, "a page holds {which} {} events above an offset, {own} its own", self.limit())?;
        if self.has_more != HasMore::Rest {
            writeln!(f, "has_more speaks of {:?}", self.has_more)?;
        }
        self.write_events(f)?;
        let backlog = self.backlog.min(self.events.len());
        writeln!(f, "{backlog} events are there when reading begins")?;
        let mut request = 0;
        for (after, more) in &self.arrivals {
            request += after;
            writeln!(f, "{more} events come at request {request}")?;
        }
        if !self.delays.is_empty() {
            writeln!(f, "answers take {:?} ms in rotation", self.delays)?;
        }
        for (request, fault) in &self.faults {
            writeln!(f, "request {request} fails: {fault:?}")?;
        }
        if let Some(start) = self.start {
            writeln!(f, "lanes begin at event {start}")?;
        }
        for (is, what) in [(self.strict, "ordering is strict"), (self.drop_notices, "notices are dropped")] {
            if is {
                writeln!(f, "{what}")?;
            }
        }
        if self.proof_timeout != plain.proof_timeout {
            writeln!(f, "a proof may take {} s", self.proof_timeout)?;
        }
        for (number, sink) in self.sinks.iter().enumerate() {
            sink.write(number, f)?;
        }
        for (at, seconds) in &self.hidden {
            writeln!(f, "event {at} becomes visible {seconds} s after others")?;
        }
        if let Some(Restored { request, events, seconds }) = self.restored {
            writeln!(f, "at request {request} the service loses {events} events, and has others {seconds} s later")?;
        }
        for (run, sink, deliveries) in &self.losses {
            writeln!(f, "sink {sink} loses its last {deliveries} deliveries before run {run}")?;
        }
        for ReplayPlan { run, sink, from, to } in &self.replays {
            writeln!(f, "events {from} to {to} are replayed to sink {sink} before run {run}")?;
        }
        for (number, run) in self.runs.iter().enumerate() {
            writeln!(f, "run {number} ends at its step {}: {:?}", run.step, run.ends)?;
        }
        for (step, by) in &self.clock {
            writeln!(f, "the clock is set {by:+} s at step {step} of all")?;
        }
        for (step, what, seconds) in &self.pauses {
            writeln!(f, "{what:?} is paused for {seconds} s at step {step} of all")?;
        }
        for (step, what) in &self.reloads {
            writeln!(f, "the configuration changes at step {step} of all: {what:?}")?;
        }
        Ok(())
    }
}

impl History {
    /// Writes consecutive plain events as one line.
    fn write_events(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offsets, created) = (self.offsets(), self.created());
        let mut at = 0;
        while at < self.events.len() {
            let from = at;
            at += 1;
            while at < self.events.len() && self.events[from].is_plain() && self.events[at].is_plain() {
                at += 1;
            }
            let shown: Vec<_> = offsets[from..at].iter().map(|offset| offset.get()).collect();
            let event = self.events[from];
            write!(f, "offsets {shown:?}, created {}: {:?}", created[from], event.kind)?;
            if let Some((reading, damage)) = event.damaged {
                write!(f, ", its reading {reading} damaged: {damage:?}")?;
            }
            if event.skew != 0 {
                write!(f, ", noted {} s late", event.skew)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Event {
    fn is_plain(&self) -> bool {
        self.kind == EventKind::Proved && self.damaged.is_none() && self.skew == 0
    }
}

impl SinkPlan {
    fn write(&self, number: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sink {number}")?;
        if self.at_once != usize::MAX {
            write!(f, ", {} at once", self.at_once)?;
        }
        if !self.delays.is_empty() {
            write!(f, ", takes {:?} ms in rotation", self.delays)?;
        }
        if self.keeps {
            write!(f, ", keeps its position")?;
        }
        if let Some(least) = self.min_confidence {
            write!(f, ", receives events from {least:?} on")?;
        }
        if self.unusable > 0 {
            write!(f, ", unusable {} times at the start", self.unusable)?;
        }
        for (offer, trouble) in &self.troubles {
            write!(f, ", offer {offer}: {trouble:?}")?;
        }
        writeln!(f)
    }
}
