//! Finds the makers of the signatures of many proofs at once, among the members with known keys. Usually members are tested.
//! If many tests per signature are expected, [`keys`](super::keys) recovers the keys instead.
//!
//! Recovery looks for the key Q with r·Q = s·R − z·G. R is the point that the signature names, z is the digest, and G
//! is the group's generator. Exactly one such Q exists, because the group's order is a prime. A known key Q is the
//! answer exactly if (z/s)·G + (r/s)·Q equals R. Computing this sum needs only precomputed multiples. The signature
//! contains the first coordinate of R and whether the second is odd. Both are compared with the sum, so R itself need
//! not be computed.
//!
//! Each test costs some thirty additions. All proofs are tested at the same time, so that their additions share inversions
//! and vectors (see [`sums`](super::sums)).
//!
//! # Invariants
//!
//! * **Same result as recovery.** If no member with a known key is found for a signature, k256 recovers its key. The way, and
//!   the choice and order of the tested members, therefore change nothing.

use std::cell::Cell;

use k256::elliptic_curve::ops::Reduce;
use k256::{FieldBytes, Scalar};

use super::field;
#[cfg(target_arch = "x86_64")]
use super::keys::{KeyEquation, keys};
use super::multiples::{GENERATOR, Multiples, Window};
use super::order::Snapshot;
use super::sums::{Lists, Point};
use crate::verify::hash::Hash;
use crate::verify::members::Members;
use crate::verify::reason::Reason;
use crate::verify::recovery::{SignatureCount, SignatureReader, Signatures};
use crate::verify::signature::RecoverableSignature;

#[cfg(test)]
mod tests;

/// The number of signatures that are prepared together. The daemon tests up to 100 together, so each thread keeps no additional
/// memory.
const TOGETHER: usize = 96;

thread_local! {
    /// Memory that is reused from batch to batch.
    static LISTS: Cell<Lists> = Cell::default();
}

/// How the makers of signatures are found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Members are tested, one after another.
    Test,
    /// The keys are recovered together.
    Recover,
}

/// Reads each proof until `required` members are found, in the given way or in the way that costs less. Returns `None` if
/// no member has precomputed multiples.
pub(crate) fn read(
    known: &Members,
    required: usize,
    proofs: &[Signatures<'_>],
    way: Option<Way>,
) -> Option<Vec<Result<SignatureCount, Reason>>> {
    let prepared = &known.prepared;
    let places = prepared.window.filter(|_| prepared.has_multiples()).map(Window::places)?;
    let mut readings: Vec<_> = proofs.iter().map(|proof| BatchReading::new(known, required, proof)).collect();
    let (order, mut lists) = (prepared.order.snapshot(), LISTS.take());
    // If many signers sign in no learnable order, recovery costs less than testing members.
    let cheaper = || if order.expected() * places < lists.additions_of_a_recovery() { Way::Test } else { Way::Recover };
    match way.unwrap_or_else(cheaper) {
        Way::Test => {
            prepare(&mut readings, &mut lists);
            while ask(&mut readings, &order, &mut lists) {}
        }
        Way::Recover => recover_together(&mut readings, &mut lists),
    }
    LISTS.set(lists);
    let counted: Vec<_> = readings.into_iter().map(|asked| asked.reading.finish()).collect();
    prepared.order.learn(counted.iter().flatten().map(|counted| &counted.members[..]));
    Some(counted)
}

/// Prepares the first `required` signatures of each proof. They are read in any case, because fewer cannot be enough.
fn prepare(readings: &mut [BatchReading<'_>], lists: &mut Lists) {
    let signatures = readings.iter().flat_map(|reading| &reading.signatures);
    let inverses = inverses(signatures.map(|asked| asked.signature.s()));
    let all = readings.iter_mut().flat_map(|reading| {
        let z = as_scalar(&reading.reading.proof.digest);
        reading.signatures.iter_mut().map(move |asked| (z, asked))
    });
    let all = all.zip(inverses).map(|((z, asked), inverse)| {
        asked.factor = asked.signature.r() * inverse;
        (asked, z * inverse)
    });
    for some in all.collect::<Vec<_>>().chunks_mut(TOGETHER) {
        for (_, factor) in &*some {
            lists.push(|list| GENERATOR.append_terms(factor, list));
        }
        some.iter_mut().zip(lists.take_sums()).for_each(|((asked, _), sum)| asked.from_digest = sum);
    }
}

/// Tests one member for each proof's next signature. Returns `false` if no member is left to test.
fn ask(readings: &mut [BatchReading<'_>], order: &Snapshot, lists: &mut Lists) -> bool {
    let mut asking = Vec::with_capacity(readings.len());
    for reading in readings {
        if let Some((member, multiples)) = reading.next_to_ask(order)
            && let Some(next) = reading.next()
        {
            lists.push(|list| {
                list.extend(next.from_digest);
                multiples.append_terms(&next.factor, list);
            });
            asking.push((reading, member));
        }
    }
    let asks = !asking.is_empty();
    for ((reading, member), sum) in asking.into_iter().zip(lists.take_sums()) {
        if sum.zip(reading.next()).is_some_and(|(sum, next)| names(&next.signature, &sum)) {
            reading.reading.found(member);
            reading.considered = 0;
        }
    }
    asks
}

/// Recovers the first `required` signatures of each proof together, and finds the members with their keys.
#[cfg(target_arch = "x86_64")]
fn recover_together(readings: &mut [BatchReading<'_>], lists: &mut Lists) {
    let Some(products) = lists.products() else { return };
    let signatures = readings.iter().flat_map(|reading| {
        let z = as_scalar(&reading.reading.proof.digest);
        reading.signatures.iter().map(move |asked| (z, &asked.signature))
    });
    let inverses = inverses(signatures.clone().map(|(_, signature)| signature.r()));
    let equations = signatures.zip(inverses);
    let equations = equations.map(|((z, signature), inverse)| KeyEquation { signature: *signature, z, inverse });
    let equations: Vec<_> = equations.collect();
    let mut keys = equations.chunks(TOGETHER).flat_map(|some| keys(some, products, lists));
    for reading in readings {
        // The keys of all signatures are taken, also if the first ones are enough.
        for key in keys.by_ref().take(reading.signatures.len()) {
            let reading = &mut reading.reading;
            if reading.is_over() {
                continue;
            }
            let member = key.and_then(|key| reading.known.prepared.member(&key));
            match member.filter(|member| !reading.found.contains(member)) {
                Some(member) => reading.found(member),
                None => reading.recover(),
            }
        }
    }
}

/// On other processors, every signature is left to k256.
#[cfg(not(target_arch = "x86_64"))]
fn recover_together(_: &mut [BatchReading<'_>], _: &mut Lists) {}

/// Returns the inverses of scalars, which must not be zero.
fn inverses(scalars: impl Iterator<Item = Scalar>) -> Vec<Scalar> {
    let scalars: Vec<_> = scalars.collect();
    let inverses = field::inverses(&scalars, Scalar::ONE, |one, other| one * other, |all| all.invert_vartime().into());
    inverses.expect("no scalar is zero, and the order of the group is a prime")
}

/// Whether the signature names this point. The point's first coordinate must be r, and its second must be odd or even as
/// the recovery byte says. r is the coordinate itself, because with the accepted recovery bytes the order was not
/// subtracted from it.
fn names(signature: &RecoverableSignature, point: &Point) -> bool {
    let (x, _) = signature.signature.split_bytes();
    point.x() == x && point.y_is_odd() == signature.recovery.is_y_odd()
}

fn as_scalar(digest: &Hash) -> Scalar {
    <Scalar as Reduce<FieldBytes>>::reduce(&digest.0.into())
}

/// A signature whose maker is searched.
struct TestedSignature {
    signature: RecoverableSignature,
    /// r/s.
    factor: Scalar,
    /// (z/s)·G.
    from_digest: Option<Point>,
}

/// A proof that is read together with others.
struct BatchReading<'a> {
    reading: SignatureReader<'a>,
    /// The first signatures, up to the required number. The list ends before a malformed signature.
    signatures: Vec<TestedSignature>,
    /// The number of members that were considered for the next signature.
    considered: usize,
}

impl<'a> BatchReading<'a> {
    fn new(known: &'a Members, required: usize, proof: &'a Signatures<'a>) -> Self {
        // Zero has no multiples, so a proof with a zero digest is left to recovery.
        let texts = proof.texts.iter().take(if as_scalar(&proof.digest) == Scalar::ZERO { 0 } else { required });
        let signatures = texts.map_while(|text| RecoverableSignature::parse(text.as_deref()?));
        let asked = |signature| TestedSignature { signature, factor: Scalar::ZERO, from_digest: None };
        let signatures = signatures.map(asked).collect();
        Self { reading: SignatureReader::new(known, required, proof), signatures, considered: 0 }
    }

    /// Returns the next signature, or `None` if it is after the last of `signatures`.
    fn next(&self) -> Option<&TestedSignature> {
        self.signatures.get(self.reading.read)
    }

    /// Returns the next member to test for the next signature. If no member made a signature, its key is recovered.
    fn next_to_ask(&mut self, order: &Snapshot) -> Option<(usize, &'a Multiples)> {
        while !self.reading.is_over()
            && let Some(next) = self.next()
        {
            let is_prepared = next.from_digest.is_some();
            while is_prepared && let Some(member) = order.likely(&self.reading.found, self.considered) {
                self.considered += 1;
                if !self.reading.found.contains(&member)
                    && let Some(multiples) = self.reading.known.prepared.multiples(member)
                {
                    return Some((member, multiples));
                }
            }
            self.reading.recover();
            self.considered = 0;
        }
        None
    }
}
