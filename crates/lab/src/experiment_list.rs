//! All experiments. A new one is a file in `experiments` and a line in [`EXPERIMENTS`].

use crate::experiment::Experiment;
use crate::experiments::{
    adaptation, autopilot, caches, changes, cold, crr, gaps, governor, jitter, peer, profile, recirc, rules, scale,
    skew, storm, subtables, throughput, tunnel,
};
use crate::files;
use crate::record::Record;
use anyhow::Result;
use std::path::Path;

/// All experiments, in the order of the report.
pub const EXPERIMENTS: &[&dyn Experiment] = &[
    &subtables::Subtables,
    &skew::Skew,
    &autopilot::Autopilot,
    &adaptation::Adaptation,
    &caches::Caches,
    &throughput::Throughput,
    &recirc::Recirc,
    &jitter::Jitter,
    &scale::Scale,
    &rules::Rules,
    &governor::Governor,
    &crr::Crr,
    &storm::STORM,
    &storm::SYN_FLOOD,
    &changes::Changes,
    &gaps::Gaps,
    &cold::Cold,
    &profile::Profile,
    &peer::Peer,
    &tunnel::Tunnel,
];

/// The experiment of that name.
pub fn named(name: &str) -> Option<&'static dyn Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.name() == name)
}

/// The records in a directory, in the order of the experiments.
///
/// # Errors
/// If one cannot be read, or is none.
pub fn read_all(dir: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for experiment in EXPERIMENTS {
        records.extend(files::read(&dir.join(format!("{}.json", experiment.name())))?);
    }
    records.extend(files::read(&dir.join("search.json"))?);
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = EXPERIMENTS.iter().map(|e| e.name()).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
        assert!(names.iter().all(|name| named(name).is_some()));
    }
}
