//! The processor's frequency.

use sluice_simd::tsc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// TSC cycles a second, measured once.
pub fn tsc_hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| calibrate(Duration::from_millis(20)))
}

fn calibrate(span: Duration) -> u64 {
    let (clock, cycles) = (Instant::now(), tsc::now());
    std::thread::sleep(span);
    let (cycles, nanos) = (tsc::now() - cycles, clock.elapsed().as_nanos().max(1));
    (u128::from(cycles) * 1_000_000_000 / nanos) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequency_is_sane() {
        assert!((100_000_000..20_000_000_000).contains(&tsc_hz()), "{} Hz", tsc_hz());
    }
}
