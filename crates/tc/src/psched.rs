//! The ticks in which the kernel's schedulers count time.

/// How long a tick is. Source: Linux net/sched/sch_api.c, `psched_show`: the first two words of `/proc/net/psched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// The ticks of `us` microseconds.
    per: u64,
    us: u64,
    /// Ticks of the timer a second, which bounds how often a class is served.
    timer_hz: u64,
}

impl Default for Ticks {
    /// Every kernel since 2.6.30: 64 ns, and timers of high resolution.
    fn default() -> Self {
        Ticks { per: 1000, us: 64, timer_hz: 1_000_000_000 }
    }
}

impl Ticks {
    /// Those of this kernel.
    pub fn of_kernel() -> Self {
        std::fs::read_to_string("/proc/net/psched").ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16).ok());
        let [per, us, _, timer_hz] = [(); 4].map(|()| words.next().flatten().filter(|word| *word != 0));
        Some(Ticks { per: per?, us: us?, timer_hz: timer_hz? })
    }

    /// The ticks of a time in microseconds.
    pub fn of_us(self, us: u64) -> u32 {
        u32::try_from(u128::from(us) * u128::from(self.per) / u128::from(self.us)).unwrap_or(u32::MAX)
    }

    /// The ticks that sending `bytes` takes at `rate` bytes a second; 0 if the rate is.
    pub fn of_bytes(self, bytes: u64, rate: u64) -> u32 {
        let ticks_a_second = 1_000_000 * self.per / self.us;
        let ticks = (u128::from(ticks_a_second) * u128::from(bytes)).checked_div(u128::from(rate)).unwrap_or(0);
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// Bytes that a rate makes between two ticks of the timer.
    pub fn bytes_of_timer(self, rate: u64) -> u64 {
        rate / self.timer_hz
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_its_ticks() {
        assert_eq!(Ticks::parse("000003e8 00000040 000f4240 3b9aca00\n"), Some(Ticks::default()));
        let old = Ticks::parse("000003e8 00000400 000f4240 00000064").unwrap();
        assert_eq!((old.of_us(1_000_000), old.bytes_of_timer(1000)), (976_562, 10));
        assert_eq!((Ticks::parse("1 0 f4240 64"), Ticks::parse("1 2 3")), (None, None));
        assert!(Ticks::of_kernel().of_us(1_000_000) > 0);
    }

    #[test]
    fn bytes_take_ticks() {
        let ticks = Ticks::default();
        assert_eq!((ticks.of_bytes(375_000, 250_000), ticks.of_bytes(1, 0)), (23_437_500, 0));
        assert_eq!(ticks.of_bytes(u64::MAX, 1), u32::MAX);
    }
}
