//! Statuses and statistics, written at their rates. Source: Open vSwitch vswitchd/bridge.c, `run_status_update`,
//! `run_stats_update`.

use super::Vswitchd;
use crate::schema::{CONTROLLER, INTERFACE, PORT};
use crate::status::{Applied, controller, interface, statistics};
use sluice_flow::Mac;
use sluice_ovsdb::{Commit, Datum, Txn, TxnId, TxnStatus};
use sluice_port::{LinkMonitor, RouteMonitor};
use sluice_vswitch::Switch;

/// How often statistics are written at most.
const STATISTICS_MIN_MS: u64 = 5000;

/// How often devices that the kernel does not know are looked at.
const LOOK_MS: u64 = 1000;

/// After a transaction that failed, statuses are written again.
const AGAIN_MS: u64 = 100;

/// Something that is written again and again, one transaction at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Periodic {
    due_ms: u64,
    under_way: Option<TxnId>,
}

impl Periodic {
    /// Whether it is to be written now.
    fn is_due(&self, now_ms: u64) -> bool {
        self.under_way.is_none() && now_ms >= self.due_ms
    }

    /// It is due at once.
    pub(super) fn request_revalidation(&mut self) {
        self.due_ms = 0;
    }

    /// Its transaction has ended.
    pub(super) fn finished(&mut self, id: TxnId, status: &TxnStatus, now_ms: u64) {
        if self.under_way == Some(id) {
            self.under_way = None;
            if !matches!(status, TxnStatus::Success { .. } | TxnStatus::Unchanged) {
                self.due_ms = now_ms + AGAIN_MS;
            }
        }
    }
}

impl Vswitchd {
    /// Writes what is due.
    pub(super) fn refresh(&mut self, now_ms: u64) {
        let changes = self.links.as_mut().map(LinkMonitor::take_changes).filter(|changes| !changes.is_empty());
        if let Some(changes) = changes {
            self.switch.follow_links(&changes);
            self.status.request_revalidation();
            self.links_changed = true;
        }
        if self.routes.as_mut().is_some_and(RouteMonitor::take_changed) {
            self.switch.refresh_devices();
        }
        if self.switch.take_bfd_changed() | self.switch.take_bundles_changed() {
            self.status.request_revalidation();
        }
        if self.status.is_due(now_ms) {
            let mut txn = Txn::new();
            write_devices(&self.switch, &self.applied, &mut txn);
            write_connected(&self.switch, &self.applied, &mut txn);
            write_bfd(&self.switch, &self.applied, &mut txn);
            write_bundles(&self.switch, &self.applied, &mut txn);
            // At whole seconds, when the process is awake for other duties.
            self.status.due_ms = (now_ms / LOOK_MS + 1) * LOOK_MS;
            self.status.under_way = self.commit(&txn);
        }
        if self.statistics.is_due(now_ms) {
            let mut txn = Txn::new();
            write_statistics(&self.switch, &self.applied, &mut txn);
            write_mirrors(&self.switch, &self.applied, &mut txn);
            write_controllers(&self.switch, &self.applied, &mut txn);
            self.statistics.due_ms = now_ms + self.statistics_interval_ms.max(STATISTICS_MIN_MS);
            self.statistics.under_way = self.commit(&txn);
        }
    }

    /// When something is to be written next, if nothing is under way.
    pub(super) fn refresh_deadline_ms(&self) -> Option<u64> {
        let all = [&self.status, &self.statistics].into_iter();
        all.filter(|periodic| periodic.under_way.is_none()).map(|periodic| periodic.due_ms).min()
    }

    fn commit(&mut self, txn: &Txn) -> Option<TxnId> {
        match self.client.session_mut().commit(txn) {
            Ok(Commit::Incomplete(id)) => Some(id),
            Ok(Commit::Finished(_)) => None,
            Err(error) => {
                tracing::debug!("statuses are not written: {error}");
                None
            }
        }
    }
}

/// What the devices of all interfaces say of themselves.
pub(super) fn write_devices(switch: &Switch, applied: &Applied, txn: &mut Txn) {
    let numbers: Vec<_> = applied.devices().map(|(_, _, number)| number).collect();
    let devices = switch.datapath().device_status(&numbers);
    for ((interface, live, _), device) in applied.devices().zip(devices) {
        if let Some(device) = device {
            interface::write(txn, interface.uuid, &device);
            if !device.details.is_empty() {
                txn.set(INTERFACE, interface.uuid, "status", live.status(&device.details));
            }
        }
    }
}

/// What the BFD sessions of all interfaces say.
fn write_bfd(switch: &Switch, applied: &Applied, txn: &mut Txn) {
    let statuses = switch.bfd_statuses();
    for row in &applied.interfaces {
        interface::write_bfd(txn, row.uuid, statuses.get(&row.name));
    }
}

/// What bonds and LACP say.
fn write_bundles(switch: &Switch, applied: &Applied, txn: &mut Txn) {
    let status = switch.bundle_status();
    for (port, name) in &applied.bonds {
        if let Some(mac) = status.active_members.get(name) {
            txn.set(PORT, *port, "bond_active_slave", Datum::set([Mac(*mac).to_string()]));
        }
    }
    for row in &applied.interfaces {
        interface::write_lacp(txn, row.uuid, status.lacp_current.get(&row.name).copied());
    }
}

/// The counters of all interfaces.
pub(super) fn write_statistics(switch: &Switch, applied: &Applied, txn: &mut Txn) {
    let reports = switch.datapath().ports();
    for (interface, live, number) in applied.devices() {
        if let Ok(at) = reports.binary_search_by_key(&number, |report| report.number) {
            statistics::write(txn, interface.uuid, &live.kind, &reports[at]);
        }
    }
    for interface in applied.vports() {
        if let Some(stats) = switch.ofproto().vport_stats_named(&interface.name) {
            statistics::write_vport(txn, interface.uuid, &stats);
        }
    }
}

/// What all mirrors have copied.
pub(super) fn write_mirrors(switch: &Switch, applied: &Applied, txn: &mut Txn) {
    for bridge in &applied.bridges {
        for mirror in &bridge.mirrors {
            let stats = switch.ofproto().mirror_stats(&bridge.name, &mirror.to_string());
            statistics::write_mirror(txn, *mirror, stats);
        }
    }
}

/// The status of all controllers. Several bridges may share a row: it tells of the last of them.
fn write_controllers(switch: &Switch, applied: &Applied, txn: &mut Txn) {
    for bridge in applied.bridges.iter().filter(|bridge| !bridge.controllers.is_empty()) {
        let all = switch.controllers(&bridge.name);
        for row in &bridge.controllers {
            let status = row.target.as_ref().and_then(|target| all.iter().find(|status| status.target == *target));
            controller::write(txn, row.uuid, status);
        }
    }
}

/// Whether controllers are connected: tools wait for it.
fn write_connected(switch: &Switch, applied: &Applied, txn: &mut Txn) {
    for bridge in applied.bridges.iter().filter(|bridge| !bridge.controllers.is_empty()) {
        let connected: Vec<_> =
            switch.controllers(&bridge.name).into_iter().filter(|status| status.is_connected()).collect();
        for row in &bridge.controllers {
            let is_connected = connected.iter().any(|status| Some(&status.target) == row.target.as_ref());
            txn.set(CONTROLLER, row.uuid, "is_connected", is_connected);
        }
    }
}
