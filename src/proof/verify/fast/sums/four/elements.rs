//! Four elements of the curve's field side by side.
//!
//! An element modulo the prime p = 2^256 - 2^32 - 977 is written in nine limbs of 29 bits, lowest limb first. A product
//! of two limbs therefore has 58 bits, and a 64-bit number can contain the sum of nine such products. One instruction
//! multiplies one limb of each of the four elements. With AVX2, a product takes a third of the time that k256 needs for four
//! elements.
//!
//! # Invariants
//!
//! * **Reduced, or a difference.** The limbs of a *reduced* element are at most 2^29, and the element may still be p or
//!   more. The limbs of a *difference* are below 2^32. At most one factor of a product is a difference, and the product is
//!   reduced.
//! * **Only exact numbers leave.** Every number that this module returns is below p. k256 computes the inverses.

#![expect(clippy::inline_always, reason = "a function that is not inlined may be compiled without AVX2")]

use fearless_simd::{Avx2, kernel, prelude::*, u64x4};

use crate::verify::fast::field::{BEYOND_WORDS, Number, Words, number_of, words_from};

#[cfg(test)]
mod tests;

const LIMBS: usize = 9;

const WIDTH: u32 = 29;

const LIMB: u64 = (1 << WIDTH) - 1;

/// The word in which each limb begins, and the bit within that word.
const PLACES: [(usize, u32); LIMBS] = [(0, 0), (0, 29), (0, 58), (1, 23), (1, 52), (2, 17), (2, 46), (3, 11), (3, 40)];

/// The number of columns in a product. The column of a product of two limbs is the sum of their indexes.
const COLUMNS: usize = 2 * LIMBS - 1;

/// 2^261 modulo p is 977·2^5 + 2^37. The first number here is 977·2^5. In the next limb, 2^37 is 2^8. The second number
/// is this exponent, 8.
const BEYOND_LIMBS: (u64, u32) = (977 << 5, 8);

/// 128·p, in limbs that are larger than the limbs of the sum of two reduced elements. Adding this value keeps the limbs
/// of a difference from becoming negative.
const MULTIPLE_OF_P: [u64; LIMBS] = {
    // 2^263 − 128·(2^32 + 977), in limbs below 2^29 except for the last.
    let low = 128 * BEYOND_WORDS;
    let mut limbs = [LIMB; LIMBS];
    limbs[0] = LIMB + 1 - (low & LIMB);
    limbs[1] = LIMB - (low >> WIDTH);
    limbs[LIMBS - 1] = (1 << 31) - 1;
    // Each limb borrows 3 from the next limb.
    let mut at = 0;
    while at + 1 < LIMBS {
        limbs[at] += 3 << WIDTH;
        limbs[at + 1] -= 3;
        at += 1;
    }
    limbs
};

/// Four elements in limbs, as they are stored in memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct Rows([[u64; 4]; LIMBS]);

/// One limb of each of four elements.
type Four = u64x4<Avx2>;

/// The products of limbs. The limbs must be below 2^32.
#[inline(always)]
fn product(one: Four, other: Four) -> Four {
    kernel!(
        #[inline(always)]
        fn product(avx2: Avx2, one: u64x4<Avx2>, other: u64x4<Avx2>) -> u64x4<Avx2> {
            std::arch::x86_64::_mm256_mul_epu32(one.into(), other.into()).simd_into(avx2)
        }
    );
    product(one.simd, one, other)
}

#[inline(always)]
fn four(avx2: Avx2, numbers: [u64; 4]) -> Four {
    numbers.simd_into(avx2)
}

#[inline(always)]
fn splat(avx2: Avx2, number: u64) -> Four {
    four(avx2, [number; 4])
}

/// Four elements in limbs, in vectors.
#[derive(Clone, Copy)]
pub(super) struct Elements([Four; LIMBS]);

/// Builds elements limb by limb. This is a macro with a loop, because the compiler might not inline a closure.
macro_rules! by_limb {
    ($avx2:ident, |$at:ident| $limb:expr) => {{
        let mut limbs = [splat($avx2, 0); LIMBS];
        for ($at, place) in limbs.iter_mut().enumerate() {
            *place = $limb;
        }
        Elements(limbs)
    }};
}

impl Elements {
    /// A number below 2^29 in each of the four elements. Reduced.
    #[inline(always)]
    pub(super) fn small(avx2: Avx2, number: u64) -> Self {
        by_limb!(avx2, |at| splat(avx2, if at == 0 { number } else { 0 }))
    }

    /// Converts numbers of 256 bits. Reduced.
    #[inline(always)]
    pub(super) fn of_words(avx2: Avx2, numbers: [&Words; 4]) -> Self {
        let limb = splat(avx2, LIMB);
        let [a, b, c, d] = numbers;
        let mut words = [limb; 4];
        for (at, word) in words.iter_mut().enumerate() {
            *word = four(avx2, [a[at], b[at], c[at], d[at]]);
        }
        by_limb!(avx2, |at| {
            let (word, shift) = PLACES[at];
            let low = words[word] >> shift;
            // The last limb ends within the last word.
            let is_whole = shift + WIDTH <= 64 || word == 3;
            (if is_whole { low } else { low | words[word + 1] << (64 - shift) }) & limb
        })
    }

    #[inline(always)]
    pub(super) fn load(avx2: Avx2, rows: &Rows) -> Self {
        by_limb!(avx2, |at| four(avx2, rows.0[at]))
    }

    #[inline(always)]
    pub(super) fn store(&self, rows: &mut Rows) {
        for (row, limb) in rows.0.iter_mut().zip(&self.0) {
            *row = (*limb).into();
        }
    }

    /// Subtracts a reduced element. Returns a difference.
    #[inline(always)]
    pub(super) fn less(self, avx2: Avx2, other: Self) -> Self {
        by_limb!(avx2, |at| self.0[at] + (splat(avx2, MULTIPLE_OF_P[at]) - other.0[at]))
    }

    /// The negative of the sum of two reduced elements. Returns a difference.
    #[inline(always)]
    pub(super) fn minus_both(avx2: Avx2, one: Self, other: Self) -> Self {
        by_limb!(avx2, |at| splat(avx2, MULTIPLE_OF_P[at]) - (one.0[at] + other.0[at]))
    }

    /// The negative of a reduced element. Returns a difference.
    #[inline(always)]
    pub(super) fn minus(self, avx2: Avx2) -> Self {
        by_limb!(avx2, |at| splat(avx2, MULTIPLE_OF_P[at]) - self.0[at])
    }

    /// The sum of two elements or differences, limb by limb. Limbs of a factor must stay below 2^32.
    #[inline(always)]
    pub(super) fn plus(mut self, other: Self) -> Self {
        for (limb, other) in self.0.iter_mut().zip(other.0) {
            *limb += other;
        }
        self
    }

    /// A reduced element times 2 or 4, which is 2^`by`. Returns a difference.
    #[inline(always)]
    pub(super) fn shifted(mut self, by: u32) -> Self {
        for limb in &mut self.0 {
            *limb <<= by;
        }
        self
    }

    /// Reduces a difference.
    #[inline(always)]
    pub(super) fn carried(self, avx2: Avx2) -> Self {
        folded(avx2, self.0, splat(avx2, 0))
    }

    /// Like [`times`](Self::times), in a function of its own. Code with many products is faster if it fits into the processor's
    /// cache, and a call costs less than reading the instructions again.
    #[inline(never)]
    pub(super) fn product(&self, avx2: Avx2, other: &Self) -> Self {
        avx2.vectorize(
            #[inline(always)]
            || self.times(avx2, other),
        )
    }

    /// Like [`square`](Self::square), in a function of its own, see [`product`](Self::product).
    #[inline(never)]
    pub(super) fn squared(&self, avx2: Avx2) -> Self {
        avx2.vectorize(
            #[inline(always)]
            || self.square(avx2),
        )
    }

    #[inline(always)]
    pub(super) fn square(&self, avx2: Avx2) -> Self {
        reduced(avx2, columns_of_square(&self.0))
    }

    /// A square root of each reduced element that is a square. For any other element, the result has no meaning.
    ///
    /// The root is the element to the power (p + 1)/4. In binary, this exponent is 223 ones, a zero, 22 ones, four zeros, two
    /// ones and two zeros.
    #[inline(always)]
    pub(super) fn root(&self, avx2: Avx2) -> Self {
        // The names count the ones in the exponent.
        let two = self.squared_times(avx2, 1, self);
        let three = two.squared_times(avx2, 1, self);
        let six = three.squared_times(avx2, 3, &three);
        let eleven = six.squared_times(avx2, 3, &three).squared_times(avx2, 2, &two);
        let twenty_two = eleven.squared_times(avx2, 11, &eleven);
        let forty_four = twenty_two.squared_times(avx2, 22, &twenty_two);
        let eighty_eight = forty_four.squared_times(avx2, 44, &forty_four);
        let all = eighty_eight.squared_times(avx2, 88, &eighty_eight).squared_times(avx2, 44, &forty_four);
        let all = all.squared_times(avx2, 3, &three);
        all.squared_times(avx2, 23, &twenty_two).squared_times(avx2, 6, &two).square(avx2).square(avx2)
    }

    /// Squares the element `times` times, and multiplies it with another.
    #[inline(always)]
    fn squared_times(mut self, avx2: Avx2, times: usize, other: &Self) -> Self {
        for _ in 0..times {
            self = self.square(avx2);
        }
        self.times(avx2, other)
    }

    #[inline(always)]
    pub(super) fn times(&self, avx2: Avx2, other: &Self) -> Self {
        reduced(avx2, columns(&self.0, &other.0))
    }

    /// The inverse of each reduced element, with one inversion. Returns `None` if any of them is zero.
    #[inline(always)]
    pub(super) fn inverses(&self, avx2: Avx2) -> Option<Self> {
        let one_other = by_limb!(avx2, |at| {
            let [a, b, c, d]: [u64; 4] = self.0[at].into();
            four(avx2, [b, a, d, c])
        });
        let pairs = self.times(avx2, &one_other);
        let other_pair = by_limb!(avx2, |at| {
            let [a, b, c, d]: [u64; 4] = pairs.0[at].into();
            four(avx2, [c, d, a, b])
        });
        let mut all = Rows::default();
        pairs.times(avx2, &other_pair).store(&mut all);
        let inverse = Option::<Number>::from(number_of(&all.number(0)).invert_vartime())?;
        let inverse = words_from(&inverse.normalize().to_bytes());
        let others = one_other.times(avx2, &other_pair);
        Some(Self::of_words(avx2, [&inverse; 4]).times(avx2, &others))
    }

    #[inline(always)]
    pub(super) fn times_and(&self, avx2: Avx2, other: &Self, more: &Self) -> Self {
        reduced(avx2, with(columns(&self.0, &other.0), more))
    }

    /// Squares a reduced element, and adds a difference to the square.
    #[inline(always)]
    pub(super) fn square_and(&self, avx2: Avx2, more: &Self) -> Self {
        reduced(avx2, with(columns_of_square(&self.0), more))
    }
}

/// Adds the limbs of an element to the columns of a product.
#[inline(always)]
fn with(mut columns: [Four; COLUMNS], more: &Elements) -> [Four; COLUMNS] {
    for (column, limb) in columns.iter_mut().zip(&more.0) {
        *column += *limb;
    }
    columns
}

/// Applies a function to each column. The columns are listed one by one. With a loop, the compiler keeps the sums in
/// memory, and the code takes twice as long.
macro_rules! each_column {
    ($column:ident($one:expr, $other:expr): $($at:literal)*) => { [$($column::<$at>($one, $other)),*] };
}

/// For each column, the sum of the products of limbs whose indexes add up to the column's index.
#[inline(always)]
fn columns(a: &[Four; LIMBS], b: &[Four; LIMBS]) -> [Four; COLUMNS] {
    each_column!(column(a, b): 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
}

#[inline(always)]
fn column<const AT: usize>(a: &[Four; LIMBS], b: &[Four; LIMBS]) -> Four {
    let (first, end) = (AT.saturating_sub(LIMBS - 1), (AT + 1).min(LIMBS));
    let mut sum = product(a[first], b[AT - first]);
    for at in first + 1..end {
        sum += product(a[at], b[AT - at]);
    }
    sum
}

/// Like [`columns`], for the square of an element.
#[inline(always)]
fn columns_of_square(a: &[Four; LIMBS]) -> [Four; COLUMNS] {
    let mut twice = *a;
    for limb in &mut twice {
        *limb += *limb;
    }
    each_column!(column_of_square(a, &twice): 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
}

#[inline(always)]
fn column_of_square<const AT: usize>(a: &[Four; LIMBS], twice: &[Four; LIMBS]) -> Four {
    let first = AT.saturating_sub(LIMBS - 1);
    // First the square of the middle limb of an even column, or the middle pair of an odd column. Then the pairs around
    // it.
    let mut sum = product(a[AT / 2], if AT.is_multiple_of(2) { a[AT / 2] } else { twice[AT / 2 + 1] });
    for at in first..AT / 2 {
        sum += product(a[at], twice[AT - at]);
    }
    sum
}

/// Reduces columns to an element. Each column must be below 2^63.6, and the last column below 2^60.4.
#[inline(always)]
fn reduced(avx2: Avx2, columns: [Four; COLUMNS]) -> Elements {
    let limb = splat(avx2, LIMB);
    let (factor, shift) = (splat(avx2, BEYOND_LIMBS.0), BEYOND_LIMBS.1);
    // The columns above the first nine, as limbs. The last of these limbs has up to 32 bits.
    let mut beyond = [splat(avx2, 0); LIMBS];
    for at in 0..LIMBS - 1 {
        let column = columns[at + LIMBS] + beyond[at];
        (beyond[at], beyond[at + 1]) = (column & limb, column >> WIDTH);
    }
    let mut limbs = [limb; LIMBS];
    for at in 0..LIMBS {
        limbs[at] = columns[at] + product(beyond[at], factor);
        if at > 0 {
            limbs[at] += beyond[at - 1] << shift;
        }
    }
    folded(avx2, limbs, beyond[LIMBS - 1] << shift)
}

/// Reduces limbs below 2^63.6. `beyond`, which must be below 2^40, counts multiples of 2^261.
#[inline(always)]
fn folded(avx2: Avx2, mut limbs: [Four; LIMBS], beyond: Four) -> Elements {
    let limb = splat(avx2, LIMB);
    let (factor, shift) = (splat(avx2, BEYOND_LIMBS.0), BEYOND_LIMBS.1);
    for at in 0..LIMBS - 1 {
        limbs[at + 1] += limbs[at] >> WIDTH;
        limbs[at] &= limb;
    }
    // The sum is again longer than nine limbs. The part above them is below 2^40.
    let more = beyond + (limbs[LIMBS - 1] >> WIDTH);
    limbs[LIMBS - 1] &= limb;
    let (low, high) = (more & limb, more >> WIDTH);
    limbs[0] += product(low, factor);
    limbs[1] += (low << shift) + product(high, factor);
    limbs[2] += high << shift;
    for at in 0..3 {
        limbs[at + 1] += limbs[at] >> WIDTH;
        limbs[at] &= limb;
    }
    Elements(limbs)
}

impl Rows {
    /// Converts reduced elements to four numbers below p.
    pub(super) fn words(&self) -> [Words; 4] {
        [self.number(0), self.number(1), self.number(2), self.number(3)]
    }

    fn number(&self, lane: usize) -> Words {
        let mut limbs = [0; LIMBS];
        for (limb, row) in limbs.iter_mut().zip(&self.0) {
            *limb = row[lane];
        }
        words_of(limbs)
    }
}

/// Converts limbs of at most 2^29 to a number below p.
fn words_of(limbs: [u64; LIMBS]) -> Words {
    // Collect the limbs in words. The fifth word is the part above 256 bits.
    let mut words = [0_u64; 5];
    for (limb, (word, shift)) in limbs.into_iter().zip(PLACES) {
        let (sum, is_carried) = words[word].overflowing_add(limb << shift);
        words[word] = sum;
        words[word + 1] += limb.checked_shr(64 - shift).unwrap_or_default() + u64::from(is_carried);
    }
    let [words @ .., beyond] = words;
    let (words, carried) = plus(words, beyond * BEYOND_WORDS);
    let (words, _) = plus(words, if carried { BEYOND_WORDS } else { 0 });
    // The number is below 2^256. Subtract p if it is p or more.
    match plus(words, BEYOND_WORDS) {
        (less, true) => less,
        (_, false) => words,
    }
}

/// Returns the sum modulo 2^256, and whether it was 2^256 or more.
fn plus(mut words: Words, number: u64) -> (Words, bool) {
    let (mut carried, mut number) = (false, number);
    for word in &mut words {
        (*word, carried) = word.overflowing_add(number);
        number = u64::from(carried);
    }
    (words, carried)
}
