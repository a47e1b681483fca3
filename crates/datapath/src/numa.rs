//! Cores by NUMA node, as the kernel tells, or as tests pretend.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

/// Where the kernel lists its nodes.
const NODES: &str = "/sys/devices/system/node";

/// The topology that holds for the process.
static TOPOLOGY: OnceLock<Topology> = OnceLock::new();

/// Which cores there are on which nodes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Topology {
    /// The node of each core.
    node_of: BTreeMap<usize, u32>,
    /// Cores are not what the kernel has, so no thread is bound to one.
    is_dummy: bool,
}

impl Topology {
    /// As the kernel lists it; a kernel without NUMA lists nothing, and all cores are on node 0.
    fn read(nodes: &Path) -> Topology {
        let mut node_of = BTreeMap::new();
        for entry in std::fs::read_dir(nodes).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let node = name.to_str().and_then(|name| name.strip_prefix("node")).and_then(|node| node.parse().ok());
            let Some(node) = node else { continue };
            let list = std::fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
            node_of.extend(cores(&list).map(|core| (core, node)));
        }
        if node_of.is_empty() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            node_of.extend((0..cores).map(|core| (core, 0)));
        }
        Topology { node_of, is_dummy: false }
    }

    fn get() -> &'static Topology {
        TOPOLOGY.get_or_init(|| Topology::read(Path::new(NODES)))
    }

    fn lowest_cores(&self) -> Vec<usize> {
        let mut lowest: BTreeMap<u32, usize> = BTreeMap::new();
        for (core, node) in &self.node_of {
            lowest.entry(*node).or_insert(*core);
        }
        let mut cores: Vec<usize> = lowest.into_values().collect();
        cores.sort_unstable();
        cores
    }
}

/// The cores of a list such as `0-3,8`.
fn cores(list: &str) -> impl Iterator<Item = usize> {
    list.trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flatten()
}

/// Pretends, for tests, that there are as many cores as `nodes` has elements, each on that node. Counts only before
/// anything has asked for the topology.
pub fn pretend(nodes: &[u32]) {
    let node_of = nodes.iter().copied().enumerate().collect();
    let _ = TOPOLOGY.set(Topology { node_of, is_dummy: true });
}

/// Whether the topology is a pretended one.
pub fn is_dummy() -> bool {
    Topology::get().is_dummy
}

/// The lowest core of each NUMA node: where PMDs run unless somebody says otherwise. Source: Open vSwitch, one PMD a node.
pub fn lowest_core_of_each_node() -> Vec<usize> {
    Topology::get().lowest_cores()
}

/// Whether there is such a core.
pub fn has_core(core: usize) -> bool {
    Topology::get().node_of.contains_key(&core)
}

/// The node of a core; 0 for a core that there is not.
pub fn node_of(core: usize) -> u32 {
    Topology::get().node_of.get(&core).copied().unwrap_or(0)
}

/// Logs how many nodes and cores there are, as Open vSwitch does when it starts.
pub fn log() {
    let Topology { node_of, .. } = Topology::get();
    let mut nodes: BTreeMap<u32, usize> = BTreeMap::new();
    node_of.values().for_each(|node| *nodes.entry(*node).or_default() += 1);
    for (node, cores) in &nodes {
        tracing::info!(target: "ovs_numa", "Discovered {cores} CPU cores on NUMA node {node}");
    }
    tracing::info!(target: "ovs_numa", "Discovered {} NUMA nodes and {} CPU cores", nodes.len(), node_of.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_on_the_nodes_that_list_them() {
        let nodes = tempfile::tempdir().unwrap();
        for (node, list) in [("node1", "4-7,12-15\n"), ("node0", "0-3\n"), ("node2", "\n"), ("possible", "0-2\n")] {
            std::fs::create_dir(nodes.path().join(node)).unwrap();
            std::fs::write(nodes.path().join(node).join("cpulist"), list).unwrap();
        }
        let topology = Topology::read(nodes.path());
        assert_eq!(topology.lowest_cores(), [0, 4]);
        assert_eq!((topology.node_of.len(), topology.node_of[&3], topology.node_of[&13]), (12, 0, 1));
        let none = Topology::read(Path::new("/no/such"));
        assert_eq!(none.lowest_cores(), [0]);
    }
}
