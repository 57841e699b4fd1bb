//! Four 64-bit numbers side by side: in one register of a processor with AVX2, in four of any other.
//!
//! Which one it is, is found out at run time. `fearless_simd` makes that safe: its token shows that the processor has AVX2, and
//! only with it can its instructions be called. All that a [`Task`] calls has to be inlined into it, or the compiler makes it
//! for a processor without AVX2.

#![expect(clippy::inline_always, reason = "what a task calls has to be made for the processor's vectors")]

use std::array;
use std::ops::{Add, BitAnd, BitOr, Shl, Shr, Sub};

use fearless_simd::Level;
#[cfg(target_arch = "x86_64")]
use fearless_simd::{Avx2, kernel, prelude::*, u64x4};

/// Four 64-bit numbers. Sums, differences and products wrap around.
pub(in crate::verify) trait Vector:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    /// Shows that the processor can do it.
    type Token: Copy;

    fn new(token: Self::Token, numbers: [u64; 4]) -> Self;

    fn numbers(self) -> [u64; 4];

    /// The products of the lower halves.
    fn low_product(self, other: Self) -> Self;

    /// Four times the same.
    #[inline(always)]
    fn splat(token: Self::Token, number: u64) -> Self {
        Self::new(token, [number; 4])
    }
}

/// What can be done with any vectors.
pub(in crate::verify) trait Task {
    type Output;

    fn run<V: Vector>(self, token: V::Token) -> Self::Output;
}

/// Runs a task with the vectors that this processor has.
pub(in crate::verify) fn vectorized<T: Task>(task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = Level::new().as_avx2() {
        return avx2.vectorize(
            #[inline(always)]
            || task.run::<u64x4<Avx2>>(avx2),
        );
    }
    task.run::<Portable>(())
}

#[cfg(target_arch = "x86_64")]
impl Vector for u64x4<Avx2> {
    type Token = Avx2;

    #[inline(always)]
    fn new(token: Avx2, numbers: [u64; 4]) -> Self {
        numbers.simd_into(token)
    }

    #[inline(always)]
    fn numbers(self) -> [u64; 4] {
        self.into()
    }

    #[inline(always)]
    fn low_product(self, other: Self) -> Self {
        kernel!(
            #[inline(always)]
            fn low_product(token: Avx2, one: u64x4<Avx2>, other: u64x4<Avx2>) -> u64x4<Avx2> {
                std::arch::x86_64::_mm256_mul_epu32(one.into(), other.into()).simd_into(token)
            }
        );
        low_product(self.simd, self, other)
    }
}

/// For any processor.
#[derive(Clone, Copy)]
pub(in crate::verify) struct Portable([u64; 4]);

impl Portable {
    #[inline(always)]
    fn each(self, of: impl Fn(u64) -> u64) -> Self {
        Self(self.0.map(of))
    }

    #[inline(always)]
    fn with(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self(array::from_fn(|at| of(self.0[at], other.0[at])))
    }
}

impl Vector for Portable {
    type Token = ();

    #[inline(always)]
    fn new((): (), numbers: [u64; 4]) -> Self {
        Self(numbers)
    }

    #[inline(always)]
    fn numbers(self) -> [u64; 4] {
        self.0
    }

    #[inline(always)]
    fn low_product(self, other: Self) -> Self {
        let low = |number| number & u64::from(u32::MAX);
        self.with(other, |one, other| low(one) * low(other))
    }
}

impl Add for Portable {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.with(other, u64::wrapping_add)
    }
}

impl Sub for Portable {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.with(other, u64::wrapping_sub)
    }
}

impl BitAnd for Portable {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        self.with(other, |one, other| one & other)
    }
}

impl BitOr for Portable {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        self.with(other, |one, other| one | other)
    }
}

impl Shl<u32> for Portable {
    type Output = Self;

    #[inline(always)]
    fn shl(self, bits: u32) -> Self {
        self.each(|number| number << bits)
    }
}

impl Shr<u32> for Portable {
    type Output = Self;

    #[inline(always)]
    fn shr(self, bits: u32) -> Self {
        self.each(|number| number >> bits)
    }
}
