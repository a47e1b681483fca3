//! `sluice/reload`: the steps that were taken, by the keys of the configuration file.

use sluice_vswitch::{Change, Outcome, SourceKind, StartSetting};

/// A setting that is read at the start only.
pub fn at_next_start(key: &str) -> String {
    format!("{key}: changed, takes effect at the next start")
}

/// A line for each thing that a step has changed.
pub fn lines(outcome: &Outcome) -> Vec<String> {
    let line = match &outcome.change {
        Change::RemovePort { bridge, port } => format!("{bridge}: port {port} removed"),
        Change::RemoveBridge(bridge) => format!("{bridge}: removed"),
        Change::SetNormal { bridge, .. } | Change::SetOpenFlow { bridge, .. } | Change::SetTables { bridge, .. } => {
            format!("{bridge}: settings changed")
        }
        Change::SetPort { bridge, port } => format!("{bridge}: port {} changed", port.name),
        Change::ReconfigurePort { bridge, port } => format!("{bridge}: port {} reconfigured", port.name),
        Change::AddBridge(bridge) => format!("{}: added", bridge.name),
        Change::AddPort { bridge, port } => format!("{bridge}: port {} added", port.name),
        Change::SetWorkers { .. } => "switch.pmd-cores: PMDs are as listed now".to_owned(),
        Change::SetLookup(_)
        | Change::SetMaxIdle(_)
        | Change::SetZoneTimeouts { .. }
        | Change::SetVlanLimit(_)
        | Change::SetMissBudget(_)
        | Change::SetRxqAssignment(_)
        | Change::SetAutoLb(_)
        | Change::SetPerfMetrics(_)
        | Change::SetPmdSleepMax(_) => "datapath: settings changed".to_owned(),
        Change::AtNextStart(setting) => at_next_start(start_key(setting)),
        Change::SetSFlow { bridge, .. } => format!("{bridge}: sFlow changed"),
        Change::SetMirrors { bridge, .. } => format!("{bridge}: mirrors changed"),
        Change::SetBundles { bridge, .. } => format!("{bridge}: bonds changed"),
        Change::SetBundleMemory(_) => "switch.bundle-memory: changed".to_owned(),
        Change::SetRuleMemory(_) => "switch.rule-memory: changed".to_owned(),
        Change::SetBundleIdleTimeout(_) => "bundles: the idle timeout changed".to_owned(),
        Change::SetTls(_) => "switch.tls: in force for new connections".to_owned(),
        Change::SetSources { bridge, .. } => {
            let replaced = |kind: &SourceKind| format!("{bridge}: {}", loaded(*kind));
            return outcome.loaded.iter().map(replaced).collect();
        }
    };
    vec![line]
}

/// Why a step could not be taken.
pub fn failure(change: &Change, error: &str) -> String {
    match change {
        Change::SetSources { bridge, .. } => format!("{bridge}: {error}"),
        _ => error.to_owned(),
    }
}

fn loaded(kind: SourceKind) -> String {
    match kind {
        SourceKind::Meters => "meters replaced".to_owned(),
        SourceKind::Groups => "groups replaced".to_owned(),
        SourceKind::Rules { removed: 0 } => "rules replaced".to_owned(),
        SourceKind::Rules { removed } => format!(
            "rules replaced, and {removed} removed that the file never listed (commands, controllers or packets had \
             added them; keep-rules = true keeps such rules)"
        ),
    }
}

fn start_key(setting: &StartSetting) -> &'static str {
    match setting {
        StartSetting::Dpdk(_) => "switch.dpdk",
        StartSetting::FlowMemory(_) => "datapath.flow-memory",
        StartSetting::Governor(_) => "datapath.governor",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_vswitch::{Port, Sources};

    fn outcome(change: Change, loaded: &[SourceKind]) -> Outcome {
        Outcome { change, loaded: loaded.to_vec(), error: None, port_failures: Vec::new() }
    }

    #[test]
    fn steps_are_told_in_the_words_of_the_file() {
        let device = Change::ReconfigurePort { bridge: "br0".into(), port: Port::new("p3", "null").into() };
        assert_eq!(lines(&outcome(device, &[])), ["br0: port p3 reconfigured"]);
        let memory = Change::AtNextStart(StartSetting::FlowMemory(1));
        assert_eq!(lines(&outcome(memory, &[])), ["datapath.flow-memory: changed, takes effect at the next start"]);
        let cores = Change::SetWorkers { pmd_cores: vec![2], main_worker: false };
        assert_eq!(lines(&outcome(cores, &[])), ["switch.pmd-cores: PMDs are as listed now"]);
        let sources = Change::SetSources { bridge: "br0".into(), sources: Sources::default() };
        assert_eq!(failure(&sources, "f: line 3: wrong"), "br0: f: line 3: wrong");
        let both = [SourceKind::Groups, SourceKind::Rules { removed: 0 }];
        assert_eq!(lines(&outcome(sources.clone(), &both)), ["br0: groups replaced", "br0: rules replaced"]);
        let removed = lines(&outcome(sources, &[SourceKind::Rules { removed: 3 }]));
        assert!(
            removed[0].starts_with("br0: rules replaced, and 3 removed that the file never listed ("),
            "{removed:?}"
        );
    }
}
