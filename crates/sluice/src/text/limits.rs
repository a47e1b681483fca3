//! The text of `sluice/limits-show`.

use sluice_fate::Limit;
use std::fmt::Write;

/// What is in use of a resource.
pub struct Usage {
    /// Now.
    pub used: u64,
    /// At most.
    pub bound: u64,
}

/// Every bound: its name, what is in use of how much, how often it was met, and what sets it.
pub fn show(usage: impl Fn(Limit) -> Option<Usage>) -> String {
    let mut out = format!("{:<24} {:>12} {:>12} {:>12}  set by\n", "limit", "used", "bound", "met");
    for limit in Limit::ALL {
        let (used, bound) = usage(*limit).map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |usage| (usage.used.to_string(), usage.bound.to_string()),
        );
        let (name, met, key) = (limit.name(), limit.count(), limit.key());
        let _ = writeln!(out, "{name:<24} {used:>12} {bound:>12} {met:>12}  {key}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_has_a_line() {
        let text = show(|limit| (limit == Limit::RecircIds).then_some(Usage { used: 3, bound: 80 }));
        assert_eq!(text.lines().count(), Limit::ALL.len() + 1);
        let line = text.lines().find(|line| line.starts_with("limit-recirc-ids")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[1..3], ["3", "80"]);
        assert!(line.ends_with(Limit::RecircIds.key()), "{line}");
        assert!(text.contains("limit-action-list                   -            -"), "{text}");
    }
}
