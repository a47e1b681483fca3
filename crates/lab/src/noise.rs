//! Whether a measurement is to be trusted: time stolen by the host, and the same thing measured twice.

use crate::record::Point;

/// Stolen time beyond which a point is not trusted, percent. Source: refs/research, rule 6 of a fair comparison.
const STEAL_MAX_PERCENT: f64 = 0.5;
/// The most that two measurements of the same arm may differ, in the median.
const SAME_TWICE_MAX: f64 = 0.03;

/// Processor time since the machine started, in ticks: all, and what the host took.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    all: u64,
    stolen: u64,
}

impl CpuTime {
    /// Now; zeros where the kernel does not tell.
    pub fn now() -> CpuTime {
        std::fs::read_to_string("/proc/stat").ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<CpuTime> {
        let ticks: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).map_while(|n| n.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in user already.
        Some(CpuTime { all: ticks.iter().take(8).sum(), stolen: *ticks.get(7)? })
    }

    /// The share that was stolen since `before`, percent.
    pub fn steal_percent_since(self, before: CpuTime) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { 100.0 * self.stolen.saturating_sub(before.stolen) as f64 / all as f64 }
    }
}

/// What speaks against a run during which the host took so much time.
pub fn steal(percent: f64) -> Vec<String> {
    let noisy = percent > STEAL_MAX_PERCENT;
    noisy.then(|| format!("too noisy: the host took {percent:.1} % of the time")).into_iter().collect()
}

/// What speaks against the points; nothing if they are to be trusted.
pub fn verdict(points: &[Point]) -> Vec<String> {
    let stolen = points.iter().filter(|p| p.steal_percent > STEAL_MAX_PERCENT).count();
    let worst_steal = points.iter().map(|p| p.steal_percent).fold(0.0, f64::max);
    let away = |p: &Point| p.same_twice.as_ref().map_or(0.0, |s| (s.median - 1.0).abs());
    let apart = points.iter().filter(|p| away(p) > SAME_TWICE_MAX).count();
    let worst_apart = points.iter().map(away).fold(0.0, f64::max);
    let mut out = Vec::new();
    if stolen != 0 {
        out.push(format!(
            "too noisy: at {stolen} of {} points the host took more than {STEAL_MAX_PERCENT} % of the time, {worst_steal:.1} % at worst",
            points.len()
        ));
    }
    if apart != 0 {
        out.push(format!(
            "too noisy: at {apart} of {} points the same setting measured twice differs by more than {:.0} %, {:.1} % at worst",
            points.len(),
            SAME_TWICE_MAX * 100.0,
            worst_apart * 100.0
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::Stat;

    #[test]
    fn stolen_time_is_read() {
        let before = CpuTime::parse("cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1").unwrap();
        let after = CpuTime::parse("cpu  60 0 10 95 0 0 0 35 5 0\n").unwrap();
        assert_eq!(after.steal_percent_since(before), 25.0);
        assert_eq!(after.steal_percent_since(after), 0.0);
        assert!(CpuTime::parse("cpu 1 2 3").is_none());
    }

    #[test]
    fn noise_is_named_with_its_numbers() {
        let point = |steal_percent, ratio| Point {
            at: Default::default(),
            arms: Vec::new(),
            same_twice: Stat::of(vec![ratio]),
            steal_percent,
        };
        assert!(verdict(&[point(0.1, 1.02), point(0.5, 0.98)]).is_empty());
        let said = verdict(&[point(2.0, 1.0), point(0.0, 0.9)]);
        assert!(said[0].contains("1 of 2 points") && said[0].contains("2.0 %"), "{said:?}");
        assert!(said[1].contains("10.0 % at worst"), "{said:?}");
    }
}
