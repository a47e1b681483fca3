//! The text of `sluice/limits-show`.

use sluice_fate::Limit;
use sluice_vswitch::LimitUsage;
use std::fmt::Write;

/// Every bound: its name, what is in use of how much, how often it was met, the most that was seen in use, and what sets
/// it. `-`: the bound is on each packet, request or message.
pub fn show(usage: impl Fn(Limit) -> Option<LimitUsage>) -> String {
    let mut out = format!("{:<25} {:>12} {:>12} {:>12} {:>12}  set by\n", "limit", "used", "bound", "met", "peak");
    for limit in Limit::ALL {
        let [used, bound, peak] = usage(*limit).map_or_else(
            || ["-"; 3].map(str::to_owned),
            |usage| [usage.used, usage.bound, limit.peak()].map(|number| number.to_string()),
        );
        let (name, met, key) = (limit.name(), limit.count(), limit.key());
        let _ = writeln!(out, "{name:<25} {used:>12} {bound:>12} {met:>12} {peak:>12}  {key}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_has_a_line() {
        let text = show(|limit| (limit == Limit::RecircIds).then_some(LimitUsage { used: 3, bound: 80 }));
        assert_eq!(text.lines().count(), Limit::ALL.len() + 1);
        let line = text.lines().find(|line| line.starts_with("limit-recirc-ids")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[1..3], ["3", "80"]);
        assert!(line.ends_with(Limit::RecircIds.key()), "{line}");
        assert!(text.contains("limit-action-list                    -            -"), "{text}");
    }
}
