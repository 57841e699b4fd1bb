//! A proof's signatures, read one after the other: who made each.
//!
//! # Invariants
//!
//! * **As recovery decides.** A member is asked for by the one equation that recovery solves ([`check`](super::check)), and
//!   what no member that was asked for has made is given to recovery. So which members are asked for, and in which order,
//!   changes nothing.

use std::cell::LazyCell;
use std::iter;
use std::ops::Deref;

use super::Reason;
use super::check::{Check, are_by, inverses};
use super::hash::{Address, Hash};
use super::known::Known;
use super::multiples::Multiples;
use super::order::{After, Asked, Earlier, Maker};
use super::signature::Recoverable;

/// What was read of a proof so far.
pub(super) struct Reading<'a> {
    known: &'a Known,
    digest: &'a Hash,
    earlier: Earlier,
    signatures: usize,
    last: Option<Maker>,
    found: Vec<usize>,
    strangers: u32,
}

impl<'a> Reading<'a> {
    /// Nothing yet of the signatures over `digest`, in the proof that follows the `earlier` one.
    pub(super) fn new(known: &'a Known, digest: &'a Hash, earlier: Earlier) -> Self {
        Self { known, digest, earlier, signatures: 0, last: None, found: Vec::new(), strangers: 0 }
    }

    /// The members that were found, in the order of the proof.
    pub(super) fn found(&self) -> &[usize] {
        &self.found
    }

    /// The members that were found, in the order of the proof.
    pub(super) fn signers(&self) -> Vec<Address> {
        self.found.iter().map(|member| self.known.addresses()[*member]).collect()
    }

    /// How many signatures were by keys that are no members'.
    pub(super) fn strangers(&self) -> u32 {
        self.strangers
    }

    /// Reads on: all of these, which follow those that were read.
    ///
    /// # Errors
    /// [`Reason::MalformedSignature`] for the first of them that is malformed.
    pub(super) fn read(&mut self, texts: &[Option<Box<str>>]) -> Result<(), Reason> {
        let signatures: Vec<_> = texts.iter().map_while(|text| Recoverable::parse(text.as_deref()?)).collect();
        let (digest, inverses) = (self.digest, &LazyCell::new(|| inverses(&signatures)));
        let check = |(at, signature)| LazyCell::new(move || Check::new(digest, signature, &inverses[at]));
        let checks: Vec<_> = signatures.iter().enumerate().map(check).collect();
        let mut foreseen = Vec::new().into_iter();
        for (at, (signature, check)) in signatures.iter().zip(&checks).enumerate() {
            if foreseen.len() == 0 {
                foreseen = self.foreseen(&checks[at..]).into_iter();
            }
            let asked = foreseen.next().or_else(|| self.ask(check));
            let maker = asked.map(Maker::Member).or_else(|| self.recover(signature));
            self.note(maker.ok_or(Reason::MalformedSignature { index: self.signatures })?);
        }
        if signatures.len() < texts.len() {
            return Err(Reason::MalformedSignature { index: self.signatures });
        }
        Ok(())
    }

    /// The members that made the next signatures, as far as it is those that were foreseen: as far as they are nearly
    /// certain, they are asked at once.
    fn foreseen<'c>(&self, checks: &[impl Deref<Target = Check<'c>>]) -> Vec<usize> {
        let order = self.known.order();
        let mut members = self.found.clone();
        let mut last = self.last;
        let certain = iter::from_fn(|| {
            let after = After { last, earlier: self.earlier };
            let member = order.certain(after).filter(|member| order.pays() && !members.contains(member))?;
            members.push(member);
            last = Some(Maker::Member(member));
            self.known.multiples(member)
        });
        let keys: Vec<_> = certain.take(checks.len()).collect();
        if keys.is_empty() {
            return Vec::new();
        }
        let asked: Vec<_> = checks.iter().zip(keys).map(|(check, key)| (&**check, key)).collect();
        let right = are_by(&asked).into_iter().take_while(|right| *right).count();
        order.asked_in_vain(asked.len() - right);
        members.drain(..self.found.len());
        members.truncate(right);
        members
    }

    /// The member that made a signature, where that is likely enough to be asked.
    fn ask<'c>(&self, check: &impl Deref<Target = Check<'c>>) -> Option<usize> {
        let mut likely = self.likely().filter(|_| self.known.order().pays());
        likely.find(|(_, key)| check.is_by(key)).map(|(member, _)| member)
    }

    /// Who made a signature, by the key that it recovers; `None` where it recovers none.
    fn recover(&mut self, signature: &Recoverable) -> Option<Maker> {
        match self.known.recovered(&signature.recover(self.digest)?) {
            Some(member) if self.found.contains(&member) => Some(Maker::Other),
            Some(member) => Some(Maker::Member(member)),
            None => {
                self.strangers += 1;
                Some(Maker::Other)
            }
        }
    }

    fn note(&mut self, maker: Maker) {
        let asked = self.likely().try_fold(0, |before, (member, _)| match maker {
            Maker::Member(found) if found == member => Err(before + 1),
            _ => Ok(before + 1),
        });
        let asked = asked.map_or_else(Asked::Found, Asked::InVain);
        self.known.order().learn(self.after(), maker, asked);
        if let Maker::Member(member) = maker {
            self.found.push(member);
        }
        self.last = Some(maker);
        self.signatures += 1;
    }

    /// The members to ask for the next signature, as far as they can be asked.
    fn likely(&self) -> impl Iterator<Item = (usize, &'a Multiples)> {
        let known = self.known;
        let likely = known.order().likely(self.after(), &self.found);
        likely.map_while(|member| Some((member, known.multiples(member)?)))
    }

    /// What the next signature comes after.
    fn after(&self) -> After {
        After { last: self.last, earlier: self.earlier }
    }
}
