//! How a bridge speaks OpenFlow: controllers, versions. Source: Open vSwitch vswitchd/bridge.c,
//! `bridge_configure_remotes`, `bridge_get_allowed_versions`.

use super::{Level, Note, PlannedController};
use crate::records::{BridgeRecord, ControllerRecord};
use sluice_connmgr::{ActiveTarget, ControllerKind, ControllerSettings, PassiveTarget, RateLimit, TargetError};
use sluice_openflow::Version;
use std::ops::RangeInclusive;
use std::path::{Component, Path};
use std::time::Duration;

/// Sizes of a controller's queue of packet-ins. Source: vswitchd/vswitch.xml, `controller_queue_size`.
const QUEUE_SIZES: RangeInclusive<i64> = 1..=512;

/// What a bridge's rows say about OpenFlow.
#[derive(Debug, Default)]
pub struct OpenFlowPlan {
    /// The controllers to connect to.
    pub active: Vec<ControllerSettings>,
    /// Where to listen for controllers.
    pub passive: Vec<PassiveTarget>,
    /// The rows.
    pub rows: Vec<PlannedController>,
    /// What is odd.
    pub notes: Vec<Note>,
}

/// Where sockets may be that the database names; `None`: anywhere.
pub type Confinement<'a> = Option<&'a Path>;

impl OpenFlowPlan {
    /// From a bridge's rows.
    pub fn make(record: &BridgeRecord, confinement: Confinement<'_>) -> Self {
        let mut plan = OpenFlowPlan::default();
        for controller in record.controllers.iter().filter(|controller| controller.target != "none") {
            if let Some(refusal) = confinement.and_then(|rundir| escape(&record.name, &controller.target, rundir)) {
                plan.notes.push(Note::new(Level::Error, refusal));
                continue;
            }
            if let Err(error) = plan.add(controller, record) {
                let text = format!("bridge {}: controller {error}", record.name);
                plan.notes.push(Note::new(Level::Error, text));
            }
        }
        plan
    }

    fn add(&mut self, record: &ControllerRecord, bridge: &BridgeRecord) -> Result<(), TargetError> {
        let mut row = PlannedController { uuid: record.uuid, target: None };
        // A passive target begins with `p`: `ptcp:`, `pssl:`, `punix:`.
        if record.target.starts_with('p') {
            let target = record.target.parse()?;
            if !self.passive.contains(&target) {
                self.passive.push(target);
            }
        } else {
            // A controller that can never be connected to makes a difference all the same: the bridge has one.
            let target = record.target.parse().unwrap_or_else(|_| ActiveTarget::Unresolved(record.target.clone()));
            let settings = settings(record, bridge, target);
            row.target = Some(settings.target.clone());
            if !self.active.iter().any(|other| other.target == settings.target) {
                self.active.push(settings);
            }
        }
        self.rows.push(row);
        Ok(())
    }
}

fn settings(record: &ControllerRecord, bridge: &BridgeRecord, target: ActiveTarget) -> ControllerSettings {
    let at_least = |ms: i64, least: i64| Duration::from_millis(ms.max(least).unsigned_abs());
    let limit = |column: Option<i64>| column.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let queue_size = record.queue_size.or_else(|| bridge.other_config.number("controller-queue-size"));
    let usual = ControllerSettings::new(target);
    ControllerSettings {
        kind: if record.kind.as_deref() == Some("service") { ControllerKind::Service } else { ControllerKind::Primary },
        max_backoff: record.max_backoff.map_or(usual.max_backoff, |ms| at_least(ms, 1000)),
        inactivity_probe: match record.inactivity_probe {
            None => usual.inactivity_probe,
            Some(0) => Duration::ZERO,
            Some(ms) => at_least(ms, 1000),
        },
        rate_limit: RateLimit::new(limit(record.rate_limit), limit(record.burst_limit)),
        queue_size: queue_size
            .filter(|n| QUEUE_SIZES.contains(n))
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(usual.queue_size),
        async_messages: record.enable_async_messages.unwrap_or(true),
        ..usual
    }
}

/// The versions that a bridge speaks: those that it names, or all.
pub fn versions(record: &BridgeRecord) -> u32 {
    let named = record.protocols.iter().filter_map(|name| version_bit(name)).fold(0, |all, bit| all | bit);
    let spoken = named & Version::all();
    if record.protocols.is_empty() { Version::all() } else { spoken }
}

/// A version's bit in a hello. Source: OpenFlow 1.3, section A.5.1.
fn version_bit(name: &str) -> Option<u32> {
    let names = ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];
    names.iter().position(|known| *known == name).map(|at| 1 << (at + 1))
}

/// Why a socket that a row names is not to be used, if so: it is where others may keep their files.
fn escape(bridge: &str, target: &str, rundir: &Path) -> Option<String> {
    let dir = rundir.display();
    if let Some(path) = target.strip_prefix("unix:") {
        let outside = path.contains('/') && !is_below(Path::new(path), rundir);
        return outside.then(|| {
            format!(
                "bridge {bridge}: Not connecting to socket controller \"{target}\" due to possibility for remote \
                 exploit.  Instead, specify socket in permitted directory \"unix:{dir}/\" or connect to \
                 \"unix:{dir}/{bridge}.mgmt\" (which is always available without special configuration)."
            )
        });
    }
    let path = Path::new(target.strip_prefix("punix:")?);
    let is_file_of_bridge = path.parent() == Some(rundir)
        && path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&format!("{bridge}.")));
    (!is_file_of_bridge).then(|| {
        format!(
            "bridge {bridge}: Not adding Unix domain socket controller \"{target}\" due to possibility of overwriting \
             local files. Instead, specify path in permitted format \"punix:{dir}/{bridge}.*\" or connect to \
             \"unix:{dir}/{bridge}.mgmt\" (which is always available without special configuration)."
        )
    })
}

fn is_below(path: &Path, dir: &Path) -> bool {
    path.starts_with(dir) && !path.components().any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_the_bridge_itself_are_permitted() {
        let refuses = |target: &str| escape("br0", target, Path::new("/run/ovs")).is_some();
        assert!(!refuses("punix:/run/ovs/br0.void") && !refuses("tcp:1.2.3.4") && !refuses("unix:/run/ovs/c.sock"));
        let escapes =
            ["punix:/run/ovs/br0.void/../overwrite", "punix:/run/ovs/br1.x", "punix:/etc/br0.x", "unix:/etc/x"];
        assert!(escapes.into_iter().all(refuses));
        assert!(refuses("unix:/run/ovs/../x"));
    }

    #[test]
    fn versions_are_those_named_or_all() {
        assert_eq!(version_bit("OpenFlow10"), Some(1 << 1));
        assert_eq!(version_bit("OpenFlow15"), Some(1 << 6));
        assert_eq!(version_bit("OpenFlow16"), None);
    }
}
