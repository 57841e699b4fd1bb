//! Who made the signatures of proofs, of many proofs at once.
//!
//! Recovery looks for the key Q with r·Q = s·R − z·G, where R is the point that the signature names, z the digest and G the
//! group's generator. There is one such Q, as the group's order is a prime. So where Q is at hand, it is the answer exactly
//! if (z/s)·G + (r/s)·Q is R, and that takes nothing but multiples made beforehand. What the signature says of R, its first
//! coordinate and whether the second is odd, is held against the sum's: R itself need not be found.
//!
//! A signature does not name its key, so members are asked one after the other. A member costs some thirty additions, and all
//! proofs ask at the same time: their additions share inversions and vectors ([`sums`](super::sums)).
//!
//! # Invariants
//!
//! * **As recovery decides.** What no member that was asked has made is given to recovery. So which members are asked, and
//!   in which order, changes nothing.
//! * **In order.** Signatures are read in the order of the proof, up to the threshold: what comes after it is never looked
//!   at.

use std::cell::Cell;
use std::sync::LazyLock;

use k256::elliptic_curve::ops::Reduce;
use k256::{AffinePoint, FieldBytes, Scalar};

use super::Reason;
use super::hash::Hash;
use super::known::Known;
use super::multiples::{Multiples, Window};
use super::order::Snapshot;
use super::signature::{Recoverable, inverses};
use super::signers::Counted;
use super::sums::{Lists, Point};

#[cfg(test)]
mod tests;

/// The generator's multiples, for the whole process.
pub(super) static GENERATOR: LazyLock<Multiples> =
    LazyLock::new(|| Multiples::of(&AffinePoint::GENERATOR, Window::GENERATOR));

/// Signatures that are made ready together: of many, the memory that a thread keeps would be large.
const TOGETHER: usize = 48;

thread_local! {
    /// The memory of one batch after the other.
    static LISTS: Cell<Lists> = Cell::default();
}

/// A proof's signatures as they are written, and what they are over.
pub(super) struct Signatures<'a> {
    pub(super) digest: Hash,
    pub(super) texts: &'a [Option<Box<str>>],
}

/// Reads proofs, each until `required` members are found.
pub(super) fn read(known: &Known, required: usize, proofs: &[Signatures<'_>]) -> Vec<Result<Counted, Reason>> {
    let mut readings: Vec<_> = proofs.iter().map(|proof| Reading::new(known, required, proof)).collect();
    let places = known.window().filter(|_| known.has_multiples()).map(Window::places);
    let Some(places) = places else { return readings.into_iter().map(Reading::finish).collect() };
    let (order, mut lists) = (known.order().snapshot(), LISTS.take());
    // Where no order is to be learned of many signers, a recovery is less than asking.
    if order.expected() * places < lists.additions_of_a_recovery() {
        prepare(&mut readings, &mut lists);
        while ask(&mut readings, &order, &mut lists) {}
    }
    LISTS.set(lists);
    let counted: Vec<_> = readings.into_iter().map(Reading::finish).collect();
    known.order().learn(counted.iter().flatten().map(|counted| &counted.members[..]));
    counted
}

/// Makes the first signatures of all proofs ready to be asked for: so many are read in any case.
fn prepare(readings: &mut [Reading<'_>], lists: &mut Lists) {
    let signatures = readings.iter().flat_map(|reading| &reading.signatures);
    let inverses = inverses(signatures.map(|asked| &asked.signature));
    let all = readings.iter_mut().flat_map(|reading| {
        let z = as_scalar(&reading.proof.digest);
        reading.signatures.iter_mut().map(move |asked| (z, asked))
    });
    let all = all.zip(inverses).map(|((z, asked), inverse)| {
        asked.factor = asked.signature.r() * inverse;
        (asked, z * inverse)
    });
    for some in all.collect::<Vec<_>>().chunks_mut(TOGETHER) {
        for (_, factor) in &*some {
            lists.push(GENERATOR.terms(factor));
        }
        some.iter_mut().zip(lists.take_sums()).for_each(|((asked, _), sum)| asked.from_digest = sum);
    }
}

/// Asks one member for each proof's next signature. `false` where no member is left to ask.
fn ask(readings: &mut [Reading<'_>], order: &Snapshot, lists: &mut Lists) -> bool {
    let mut asking = Vec::with_capacity(readings.len());
    for reading in readings {
        if let Some((member, multiples)) = reading.next_to_ask(order) {
            let asked = &reading.signatures[reading.read];
            lists.push(asked.from_digest.into_iter().chain(multiples.terms(&asked.factor)));
            asking.push((reading, member));
        }
    }
    let asks = !asking.is_empty();
    for ((reading, member), sum) in asking.into_iter().zip(lists.take_sums()) {
        if sum.is_some_and(|sum| reading.signatures[reading.read].signature.names(&sum)) {
            reading.found(member);
        }
    }
    asks
}

fn as_scalar(digest: &Hash) -> Scalar {
    <Scalar as Reduce<FieldBytes>>::reduce(&digest.0.into())
}

/// A signature for which members are asked.
struct Asked {
    signature: Recoverable,
    /// r/s.
    factor: Scalar,
    /// (z/s)·G.
    from_digest: Option<Point>,
}

/// What was read of a proof so far.
struct Reading<'a> {
    known: &'a Known,
    required: usize,
    proof: &'a Signatures<'a>,
    /// The first signatures, as many as are required, up to one that is malformed.
    signatures: Vec<Asked>,
    /// How many were read.
    read: usize,
    /// How many members were considered for the next one.
    considered: usize,
    found: Vec<usize>,
    strangers: u32,
    malformed: bool,
}

impl<'a> Reading<'a> {
    fn new(known: &'a Known, required: usize, proof: &'a Signatures<'a>) -> Self {
        // Of nothing there is no multiple: a digest that is zero is left to recovery.
        let texts = proof.texts.iter().take(if as_scalar(&proof.digest) == Scalar::ZERO { 0 } else { required });
        let signatures = texts.map_while(|text| Recoverable::parse(text.as_deref()?));
        let asked = |signature| Asked { signature, factor: Scalar::ZERO, from_digest: None };
        let signatures = signatures.map(asked).collect();
        let (found, malformed) = (Vec::with_capacity(required), false);
        Self { known, required, proof, signatures, read: 0, considered: 0, found, strangers: 0, malformed }
    }

    /// The next member to ask for the next signature. A signature that no member has made is recovered.
    fn next_to_ask(&mut self, order: &Snapshot) -> Option<(usize, &'a Multiples)> {
        while !self.is_over() && self.read < self.signatures.len() {
            while self.signatures[self.read].from_digest.is_some()
                && let Some(member) = order.likely(&self.found, self.considered)
            {
                self.considered += 1;
                if !self.found.contains(&member)
                    && let Some(multiples) = self.known.multiples(member)
                {
                    return Some((member, multiples));
                }
            }
            self.recover();
        }
        None
    }

    fn is_over(&self) -> bool {
        self.malformed || self.found.len() == self.required || self.read == self.proof.texts.len()
    }

    fn found(&mut self, member: usize) {
        self.found.push(member);
        (self.read, self.considered) = (self.read + 1, 0);
    }

    /// Reads the next signature by the key that it recovers.
    fn recover(&mut self) {
        let digest = &self.proof.digest;
        let key = match self.signatures.get(self.read) {
            Some(asked) => asked.signature.recover(digest),
            None => self.proof.texts[self.read]
                .as_deref()
                .and_then(Recoverable::parse)
                .and_then(|signature| signature.recover(digest)),
        };
        match key.map(|key| self.known.recovered(&key)) {
            None => self.malformed = true,
            Some(Some(member)) if !self.found.contains(&member) => self.found(member),
            Some(maker) => {
                self.strangers += u32::from(maker.is_none());
                (self.read, self.considered) = (self.read + 1, 0);
            }
        }
    }

    /// Reads to the end, by recovery.
    fn finish(mut self) -> Result<Counted, Reason> {
        while !self.is_over() {
            self.recover();
        }
        let Self { required, strangers, found: members, .. } = self;
        if self.malformed {
            Err(Reason::MalformedSignature { index: self.read })
        } else if members.len() < required {
            Err(Reason::TooFewSignatures { found: members.len(), required, strangers })
        } else {
            Ok(Counted { members, strangers })
        }
    }
}
