//! Cores by NUMA node, as the kernel tells.

use std::path::Path;

/// Where the kernel lists its nodes.
const NODES: &str = "/sys/devices/system/node";

/// The lowest core of each NUMA node: where PMDs run unless somebody says otherwise. Source: Open vSwitch, one PMD a node.
pub fn lowest_core_of_each_node() -> Vec<usize> {
    lowest_cores(Path::new(NODES))
}

fn lowest_cores(nodes: &Path) -> Vec<usize> {
    let entries = std::fs::read_dir(nodes).into_iter().flatten().flatten();
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    let nodes = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node));
    let lists = nodes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cpulist")).ok());
    let mut cores: Vec<usize> = lists.filter_map(|list| lowest(&list)).collect();
    cores.sort_unstable();
    // A kernel without NUMA lists no node.
    if cores.is_empty() { vec![0] } else { cores }
}

/// The lowest core of a list such as `0-3,8`; a node may have none.
fn lowest(list: &str) -> Option<usize> {
    list.trim().split([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_with_cores_gives_its_lowest() {
        let nodes = tempfile::tempdir().unwrap();
        for (node, list) in [("node1", "4-7,12-15\n"), ("node0", "0-3\n"), ("node2", "\n"), ("possible", "0-2\n")] {
            std::fs::create_dir(nodes.path().join(node)).unwrap();
            std::fs::write(nodes.path().join(node).join("cpulist"), list).unwrap();
        }
        assert_eq!(lowest_cores(nodes.path()), [0, 4]);
        assert_eq!(lowest_cores(Path::new("/no/such")), [0]);
    }
}
