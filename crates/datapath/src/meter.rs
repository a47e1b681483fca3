//! Meters: token buckets shared by the packets of all PMDs.
//!
//! A band's bucket has the size of its burst (without one, a second of its rate) and fills at its rate. A packet
//! exceeds a band if the bucket has too few tokens. Of the bands that it exceeds, the one with the highest rate drops
//! it.
//!
//! The buckets are behind a lock, which a PMD takes once per batch and meter: it takes tokens for a batch of packets
//! like the present one, spends them without a lock, and at the end of the iteration returns the rest with its counts.
//! A bucket that was found empty is asked again when the clock has moved on. Time is the iteration's coarse clock.
//! Source: OVS lib/dpif-netdev.c, `dp_netdev_run_meter`.

use parking_lot::{Mutex, MutexGuard};
use sluice_action::{MeterStats, MeterStore};
use sluice_ofp::MeterConfig;
use sluice_sync::Versioned;
use std::sync::Arc;

/// A PMD takes tokens for this many packets at once.
const GRANT_PACKETS: u64 = 32;
/// Tokens of one packet or bit: rates are per second, and the clock counts milliseconds.
const TOKEN: u64 = 1000;

/// All meters, by number.
#[derive(Debug, Default)]
pub(crate) struct Meters(Versioned<Vec<Option<Arc<Meter>>>>);

/// A meter.
#[derive(Debug)]
struct Meter {
    config: MeterConfig,
    shared: Mutex<Shared>,
}

/// What all PMDs share of a meter.
#[derive(Debug)]
struct Shared {
    /// When the buckets were last filled.
    filled_ms: u64,
    /// Tokens by band.
    tokens: Box<[u64]>,
    stats: MeterStats,
}

impl Meter {
    fn new(config: &MeterConfig, now_ms: u64) -> Self {
        let n = config.bands.len();
        let meter = Meter {
            config: config.clone(),
            shared: Mutex::new(Shared {
                filled_ms: now_ms,
                tokens: vec![0; n].into(),
                stats: MeterStats { bands: vec![(0, 0); n], ..MeterStats::default() },
            }),
        };
        (0..n).for_each(|band| meter.lock().tokens[band] = meter.capacity(band));
        meter
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    /// Tokens in a full bucket.
    fn capacity(&self, band: usize) -> u64 {
        let band = &self.config.bands[band];
        let burst = if self.config.burst && band.burst != 0 { band.burst } else { band.rate };
        // Byte rates are in kilobits a second, which is bits a millisecond.
        u64::from(burst) * TOKEN
    }

    /// Tokens that a packet takes.
    fn cost(&self, bytes: usize) -> u64 {
        if self.config.packets { TOKEN } else { bytes as u64 * 8 }
    }

    /// Up to `wanted` tokens of a band.
    fn grant(&self, band: usize, wanted: u64, now_ms: u64) -> u64 {
        let mut shared = self.lock();
        let elapsed = now_ms.saturating_sub(shared.filled_ms);
        if elapsed != 0 {
            shared.filled_ms = now_ms;
            for (i, tokens) in shared.tokens.iter_mut().enumerate() {
                let fresh = elapsed.saturating_mul(u64::from(self.config.bands[i].rate));
                *tokens = tokens.saturating_add(fresh).min(self.capacity(i));
            }
        }
        let granted = shared.tokens[band].min(wanted);
        shared.tokens[band] -= granted;
        granted
    }
}

impl MeterStore for Meters {
    fn set(&self, meter: u32, config: &MeterConfig, now_ms: u64) {
        let meter_of_now = Arc::new(Meter::new(config, now_ms));
        self.0.change(|table| {
            let at = meter as usize;
            if table.len() <= at {
                table.resize(at + 1, None);
            }
            table[at] = Some(meter_of_now);
        });
    }

    fn remove(&self, meter: u32) {
        self.0.change(|table| table.get_mut(meter as usize).and_then(Option::take));
    }

    fn stats(&self, meter: u32) -> Option<MeterStats> {
        self.get(meter).map(|meter| meter.lock().stats.clone())
    }
}

impl Meters {
    fn get(&self, meter: u32) -> Option<Arc<Meter>> {
        self.0.read(|table| table.get(meter as usize)?.clone())
    }
}

/// One PMD's part in the meters.
#[derive(Debug)]
pub(crate) struct PmdMeters {
    meters: Arc<Meters>,
    version: u64,
    /// By number, once used.
    local: Vec<Option<Local>>,
    /// Numbers of the meters used in this iteration.
    used: Vec<u32>,
}

/// A meter as a PMD uses it.
#[derive(Debug)]
struct Local {
    meter: Arc<Meter>,
    bands: Box<[LocalBand]>,
    packets: u64,
    bytes: u64,
    is_used: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct LocalBand {
    tokens: u64,
    /// When the bucket was found to have too few tokens.
    dry_ms: Option<u64>,
    taken: (u64, u64),
}

impl Local {
    fn new(meter: Arc<Meter>) -> Self {
        let bands = vec![LocalBand::default(); meter.config.bands.len()].into();
        Local { meter, bands, packets: 0, bytes: 0, is_used: false }
    }

    fn admit(&mut self, bytes: usize, now_ms: u64) -> bool {
        self.packets += 1;
        self.bytes += bytes as u64;
        let cost = self.meter.cost(bytes);
        let mut exceeded: Option<usize> = None;
        for (i, band) in self.bands.iter_mut().enumerate() {
            if band.tokens < cost && band.dry_ms != Some(now_ms) {
                band.tokens += self.meter.grant(i, cost * GRANT_PACKETS - band.tokens, now_ms);
                band.dry_ms = (band.tokens < cost).then_some(now_ms);
            }
            match band.tokens.checked_sub(cost) {
                Some(left) => band.tokens = left,
                None => {
                    let rate = |i: usize| self.meter.config.bands[i].rate;
                    if exceeded.is_none_or(|most| rate(i) > rate(most)) {
                        exceeded = Some(i);
                    }
                }
            }
        }
        if let Some(i) = exceeded {
            let (packets, octets) = &mut self.bands[i].taken;
            (*packets, *octets) = (*packets + 1, *octets + bytes as u64);
        }
        exceeded.is_none()
    }

    /// Returns the tokens that are left, and adds up the counts.
    fn return_tokens(&mut self) {
        let mut shared = self.meter.lock();
        shared.stats.packets += std::mem::take(&mut self.packets);
        shared.stats.bytes += std::mem::take(&mut self.bytes);
        for (i, band) in self.bands.iter_mut().enumerate() {
            let (packets, bytes) = std::mem::take(&mut band.taken);
            let counted = &mut shared.stats.bands[i];
            *counted = (counted.0 + packets, counted.1 + bytes);
            let tokens = shared.tokens[i] + std::mem::take(&mut band.tokens);
            shared.tokens[i] = tokens.min(self.meter.capacity(i));
        }
        self.is_used = false;
    }
}

impl PmdMeters {
    pub fn new(meters: Arc<Meters>) -> Self {
        PmdMeters { meters, version: 0, local: Vec::new(), used: Vec::new() }
    }

    /// Whether a meter lets a packet pass. A meter that does not exist does.
    pub fn admit(&mut self, meter: u32, bytes: usize, now_ms: u64) -> bool {
        let version = self.meters.0.version();
        if version != self.version {
            self.return_tokens();
            self.local.clear();
            self.version = version;
        }
        let at = meter as usize;
        if self.local.get(at).is_none_or(Option::is_none) {
            let Some(found) = self.meters.get(meter) else { return true };
            if self.local.len() <= at {
                self.local.resize_with(at + 1, || None);
            }
            self.local[at] = Some(Local::new(found));
        }
        let Some(local) = &mut self.local[at] else { return true };
        if !local.is_used {
            local.is_used = true;
            self.used.push(meter);
        }
        local.admit(bytes, now_ms)
    }

    /// At the end of an iteration, returns the tokens that are left and adds up the counts.
    #[inline]
    pub fn return_tokens(&mut self) {
        while let Some(meter) = self.used.pop() {
            if let Some(Some(local)) = self.local.get_mut(meter as usize) {
                local.return_tokens();
            }
        }
    }
}

impl Drop for PmdMeters {
    fn drop(&mut self) {
        self.return_tokens();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_ofp::{Band, BandKind};

    fn config(packets: bool, bands: &[(u32, u32)]) -> MeterConfig {
        let band = |&(rate, burst): &(u32, u32)| Band { kind: BandKind::Drop, rate, burst };
        let burst = bands.iter().any(|(_, burst)| *burst != 0);
        MeterConfig { packets, burst, stats: true, bands: bands.iter().map(band).collect() }
    }

    fn pmds(n: usize, config: &MeterConfig) -> (Arc<Meters>, Vec<PmdMeters>) {
        let meters = Arc::new(Meters::default());
        meters.set(3, config, 0);
        let pmds = (0..n).map(|_| PmdMeters::new(meters.clone())).collect();
        (meters, pmds)
    }

    /// How many of `n` packets pass.
    fn pass(pmd: &mut PmdMeters, n: usize, bytes: usize, now_ms: u64) -> usize {
        let passed = (0..n).filter(|_| pmd.admit(3, bytes, now_ms)).count();
        pmd.return_tokens();
        passed
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let (meters, mut pmds) = pmds(1, &config(true, &[(100, 20)]));
        assert_eq!(pass(&mut pmds[0], 50, 60, 0), 20);
        assert_eq!(pass(&mut pmds[0], 50, 60, 5), 0, "half a packet's worth");
        assert_eq!(pass(&mut pmds[0], 50, 60, 10), 1);
        assert_eq!(pass(&mut pmds[0], 50, 60, 110), 10);
        assert_eq!(pass(&mut pmds[0], 500, 60, 100_000), 20, "a bucket holds its burst and no more");
        let stats = meters.stats(3).unwrap();
        assert_eq!((stats.packets, stats.bytes, stats.bands), (700, 42_000, vec![(649, 38_940)]));
    }

    #[test]
    fn without_a_burst_a_second_passes_at_once() {
        assert_eq!(pass(&mut pmds(1, &config(true, &[(100, 0)])).1[0], 500, 60, 0), 100);
    }

    #[test]
    fn a_burst_counts_only_where_the_meter_says_so() {
        let config = MeterConfig { burst: false, ..config(true, &[(100, 20)]) };
        assert_eq!(pass(&mut pmds(1, &config).1[0], 500, 60, 0), 100);
    }

    #[test]
    fn kilobits_count_bytes() {
        // 8 kbit a second are 1000 bytes.
        let (_, mut pmds) = pmds(1, &config(false, &[(8, 0)]));
        assert_eq!(pass(&mut pmds[0], 50, 100, 0), 10);
        assert_eq!(pass(&mut pmds[0], 50, 100, 500), 5);
        assert_eq!(pass(&mut pmds[0], 1, 1500, 10_000), 0, "longer than the bucket is large");
    }

    #[test]
    fn of_the_exceeded_bands_the_fastest_drops_the_packet() {
        let (meters, mut pmds) = pmds(1, &config(true, &[(10, 0), (40, 0)]));
        assert_eq!(pass(&mut pmds[0], 100, 60, 0), 10);
        assert_eq!(meters.stats(3).unwrap().bands, [(30, 1800), (60, 3600)]);
    }

    #[test]
    fn pmds_share_the_tokens_and_leave_none_behind() {
        let (_, mut pmds) = pmds(2, &config(true, &[(1000, 100)]));
        let (first, second) = pmds.split_at_mut(1);
        // Each takes what it needs; what one has taken and not spent is back for the other.
        assert_eq!(pass(&mut first[0], 10, 60, 0) + pass(&mut second[0], 200, 60, 0), 100);
        let both: usize = (1..=1000).map(|ms| pass(&mut first[0], 3, 60, ms) + pass(&mut second[0], 3, 60, ms)).sum();
        assert_eq!(both, 1000);
    }

    #[test]
    fn a_meter_that_changes_begins_anew_and_one_that_has_gone_lets_pass() {
        let (meters, mut pmds) = pmds(1, &config(true, &[(10, 0)]));
        assert_eq!(pass(&mut pmds[0], 50, 60, 0), 10);
        meters.set(3, &config(true, &[(20, 0)]), 0);
        assert_eq!(pass(&mut pmds[0], 50, 60, 0), 20);
        meters.remove(3);
        assert_eq!((pass(&mut pmds[0], 50, 60, 0), meters.stats(3)), (50, None));
        assert!(pmds[0].admit(70_000, 60, 0), "there never was one");
    }
}
