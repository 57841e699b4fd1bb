//! Decides whose fault a refusal is: the event's, or the target's.
//!
//! An error code does not show this. A constraint or a trigger of an operator can refuse one event, or every event. Only a
//! refusal of one event may make this event a dead letter. If the target refuses every event, each of them would become a
//! dead letter, one after the other. All sinks that can narrow a refusal use the same rule:
//!
//! 1. A refused batch is offered in [`halves`], until one event is refused alone.
//! 2. The target is offered other content, which does not stay there: made-up content, and content of other events. A table
//!    gets it in a transaction that is rolled back, a topic in a transaction that is aborted. A limit that the target has
//!    stated, such as a maximum size, is compared without an offer.
//! 3. If the target accepts any other content, the refusal is the event's fault. If it refuses all other content, the refusal
//!    is the target's fault: the lane waits until an operator acts, and no event becomes a dead letter.
//!
//! A refusal that is known to concern the target, such as a full disk, a lock or a missing answer, is not narrowed. Nothing
//! can be offered to a webhook without effect: the lane of a webhook offers it the next event instead.

use std::ops::Range;

use super::{Fault, SinkError};

/// The maximum number of other events that are offered.
pub(crate) const OTHERS: usize = 3;

/// Whether the target accepts content other than a refused event. The variants are in order of their weight: one accepted
/// content is enough, because a refused content may have a fault of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherContent {
    /// No other content was offered. The kind of the refusal decides.
    Untried,
    /// The target has refused all other content.
    Refused,
    /// The target has accepted other content.
    Accepted,
}

impl OtherContent {
    pub(crate) fn accepted(is_accepted: bool) -> Self {
        if is_accepted { Self::Accepted } else { Self::Refused }
    }

    /// The result of an offer of other content. `offered` is whether other content existed, or the error. `is_refusal` decides
    /// whether an error is a refusal of the content. Any other error is returned.
    pub(crate) fn of<E>(offered: Result<bool, E>, is_refusal: fn(&E) -> bool) -> Result<Self, E> {
        match offered {
            Ok(has_content) => Ok(if has_content { Self::Accepted } else { Self::Untried }),
            Err(error) if is_refusal(&error) => Ok(Self::Refused),
            Err(error) => Err(error),
        }
    }
}

impl SinkError {
    /// The error of an event that was refused alone, when it is known what the target did with other content.
    #[must_use]
    pub fn judged(self, other: OtherContent) -> Self {
        let message = match self {
            Self::Refused { ref message, .. } | Self::Unavailable { ref message, fault: Fault::Operator } => message,
            error => return error,
        };
        match other {
            OtherContent::Untried => self,
            OtherContent::Accepted => Self::refused(format!("{message}; only this event is refused")),
            OtherContent::Refused => Self::unusable(format!("{message}; every event is refused")),
        }
    }
}

/// The two halves of a part with at least two events.
pub(crate) fn halves(part: &Range<usize>) -> [Range<usize>; 2] {
    let middle = part.start + part.len() / 2;
    [part.start..middle, middle..part.end]
}

/// The events that are offered as other content, out of a range of events: its first, middle and last one.
pub(crate) fn others(range: Range<usize>) -> impl Iterator<Item = usize> {
    let step = range.len().div_ceil(OTHERS).max(1);
    let (last, stepped) = (range.clone().next_back(), range.step_by(step).take(OTHERS - 1));
    let mut others: Vec<_> = stepped.chain(last).collect();
    others.dedup();
    others.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(error: SinkError, other: OtherContent) -> (&'static str, Fault) {
        let judged = error.judged(other);
        (judged.kind(), judged.fault())
    }

    #[test]
    fn other_content_shows_whose_fault_a_refusal_is() {
        let refused = || SinkError::refused("not that".to_owned());
        let unusable = || SinkError::unusable("not this table".to_owned());
        let errors: [fn() -> SinkError; 2] = [refused, unusable];
        for error in errors {
            assert_eq!(fault(error(), OtherContent::Accepted), ("refused", Fault::Event));
            assert_eq!(fault(error(), OtherContent::Refused), ("unavailable", Fault::Operator));
        }
        assert_eq!(fault(refused(), OtherContent::Untried), ("refused", Fault::Event));
        assert_eq!(fault(unusable(), OtherContent::Untried), ("unavailable", Fault::Operator));
        // The target is known to be the cause.
        let away = || SinkError::away("no answer".to_owned());
        assert_eq!(fault(away(), OtherContent::Accepted), ("unavailable", Fault::Target));
        let displaced = || SinkError::Displaced("restored".to_owned());
        assert_eq!(fault(displaced(), OtherContent::Accepted), ("displaced", Fault::Target));
    }

    #[test]
    fn one_accepted_content_outweighs_refused_content() {
        let tried = [false, true, false].map(OtherContent::accepted);
        assert_eq!(tried.into_iter().max(), Some(OtherContent::Accepted));
        let tried = [OtherContent::Untried, OtherContent::accepted(false)];
        assert_eq!(tried.into_iter().max(), Some(OtherContent::Refused));
    }

    #[test]
    fn halving_finds_the_refused_event_and_no_event_is_tried_twice_as_another() {
        let (mut part, refused) = (0..200, 137);
        let mut offers = 0;
        while part.len() > 1 {
            let [first, second] = halves(&part);
            assert_eq!((first.start, first.end, second.end), (part.start, second.start, part.end));
            part = if first.contains(&refused) { first } else { second };
            offers += 1;
        }
        assert_eq!((part, offers <= 8), (refused..refused + 1, true));
        let expected: [(Range<usize>, &[usize]); 5] =
            [(5..5, &[]), (5..6, &[5]), (5..7, &[5, 6]), (5..8, &[5, 6, 7]), (0..100, &[0, 34, 99])];
        for (range, expected) in expected {
            assert_eq!(others(range).collect::<Vec<_>>(), expected);
        }
    }
}
