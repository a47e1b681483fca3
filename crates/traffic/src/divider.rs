//! Division by a fixed number, as one multiplication.

/// Divides 32-bit numbers by one divisor.
///
/// Source: Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019: with the reciprocal rounded up to 64
/// bits the quotient is exact for all 32-bit operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divider {
    divisor: u32,
    /// The reciprocal times 2^64, rounded up; 0 stands for a divisor of 1.
    reciprocal: u64,
}

impl Divider {
    /// `divisor` is not 0.
    pub(crate) const fn new(divisor: u32) -> Self {
        assert!(divisor != 0);
        Divider { divisor, reciprocal: (u64::MAX / divisor as u64).wrapping_add(1) }
    }

    /// Quotient and remainder of `n`.
    #[inline]
    pub(crate) const fn divide(self, n: u32) -> (u32, u32) {
        if self.reciprocal == 0 {
            return (n, 0);
        }
        let quotient = ((self.reciprocal as u128 * n as u128) >> 64) as u32;
        (quotient, n - quotient * self.divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edgy() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 0..40u32, Just(u32::MAX), (0..32u32).prop_map(|s| 1 << s), u32::MAX - 40..=u32::MAX]
    }

    proptest! {
        #[test]
        fn it_divides(n in edgy(), d in edgy()) {
            let d = d.max(1);
            prop_assert_eq!(Divider::new(d).divide(n), (n / d, n % d));
        }
    }
}
