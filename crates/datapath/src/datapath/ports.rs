//! The ports of a datapath.

use super::Datapath;
use crate::command::PmdCommand;
use crate::control::Control;
use crate::load::{Load, Placement, RxqLoad};
use crate::reconfigure::log_sleep_max;
use crate::workers::NewRxq;
use crate::{DatapathError, PORTS_MAX};
use parking_lot::Mutex;
use sluice_action::PortNo;
use sluice_fate::PmdStats;
use sluice_port::dummy::DummyDevice;
use sluice_port::{DeviceStatus, LinkChanges, Pools, Port, PortConfig, PortInfo};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

/// How the receive queues of a port are to be polled.
#[derive(Clone, Copy, Debug)]
pub struct PortPolling<'a> {
    /// The port's name, for the log.
    pub name: &'a str,
    /// The cores whose PMDs certain queues are pinned to, by queue.
    pub affinity: &'a BTreeMap<usize, usize>,
}

impl PortPolling<'_> {
    fn placement(&self, numa: u32, queue: usize) -> Placement {
        Placement { numa, core: self.affinity.get(&queue).copied() }
    }

    /// A port's receive queue, to be given to a worker.
    fn rxq(&self, number: PortNo, port: &mut dyn Port, at: usize) -> NewRxq {
        let queue = port.rx_queue(at);
        let load = RxqLoad {
            port: number,
            port_name: self.name.to_owned(),
            queue: at,
            placement: Mutex::new(self.placement(port.numa_id(), at)),
            can_be_waited_for: queue.readiness().is_some(),
            load: Load::default(),
            fates: PmdStats::default(),
        };
        NewRxq { queue, load: Arc::new(load) }
    }
}

impl Datapath {
    /// Adds a port of which nothing else is known. Its receive queues are assigned to PMDs, or go to the main worker.
    ///
    /// # Errors
    /// As [`Datapath::add_port_polled`].
    pub fn add_port(&self, number: PortNo, port: Box<dyn Port>) -> Result<(), DatapathError> {
        self.add_port_polled(number, port, &PortPolling { name: &number.0.to_string(), affinity: &BTreeMap::new() })
    }

    /// Adds a port with a name, whose receive queues may be pinned.
    ///
    /// # Errors
    /// If there is a port of that number, it is [`PORTS_MAX`] or more, or a thread for its queues cannot be started.
    pub fn add_port_polled(
        &self,
        number: PortNo,
        mut port: Box<dyn Port>,
        polling: &PortPolling<'_>,
    ) -> Result<(), DatapathError> {
        let mut control = self.control();
        if control.ports.contains_key(&number) {
            return Err(DatapathError::PortExists(number));
        }
        if number.0 >= PORTS_MAX {
            return Err(DatapathError::PortNumber(number));
        }
        if control.ports.is_empty() {
            // Open vSwitch makes its datapath with the first port, and says so then.
            log_sleep_max(control.sleep_max_us);
            control.auto_lb.settings.log_change(None);
        }
        let rxqs: Vec<_> = (0..port.info().n_rxq).map(|queue| polling.rxq(number, &mut *port, queue)).collect();
        let must_be_polled = rxqs.iter().any(|rxq| !rxq.load.can_be_waited_for);
        self.make_pmds_for(&mut control, must_be_polled)?;
        control.post_all(|worker| PmdCommand::AddTxq { port: number, queue: port.tx_queue(worker.pmd) });
        control.ports.insert(number, port);
        control.reassign_to_all(rxqs);
        Ok(())
    }

    /// Pins receive queues of a port to the cores that `polling` says, and unpins the others.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_affinity(&self, number: PortNo, polling: &PortPolling<'_>) -> Result<(), DatapathError> {
        let mut control = self.control();
        let numa = control.ports.get(&number).ok_or(DatapathError::NoPort(number))?.numa_id();
        for (_, rxq) in control.rxqs().iter().filter(|(_, rxq)| rxq.port == number) {
            *rxq.placement.lock() = polling.placement(numa, rxq.queue);
        }
        control.reassign_to_all(Vec::new());
        Ok(())
    }

    /// Changes a port's options and receive queues without closing its device. Queues that it keeps are polled on; what
    /// could not be as the options say is returned, for the log.
    ///
    /// # Errors
    /// If there is no such port, or it must be opened again for that.
    pub fn reconfigure_port(
        &self,
        number: PortNo,
        config: &PortConfig,
        polling: &PortPolling<'_>,
    ) -> io::Result<Vec<String>> {
        let mut control = self.control();
        let Control { ports, .. } = &mut *control;
        let port = ports.get_mut(&number).ok_or(io::ErrorKind::NotFound)?;
        let n_before = port.info().n_rxq;
        sluice_port::reconfigure(&mut **port, config)?;
        let (numa, n_rxq, notes) = (port.numa_id(), port.info().n_rxq, port.notes().to_vec());
        let new = (n_before..n_rxq).map(|queue| polling.rxq(number, &mut **port, queue)).collect();
        for (worker, rxq) in control.rxqs().into_iter().filter(|(_, rxq)| rxq.port == number) {
            if rxq.queue < n_rxq {
                *rxq.placement.lock() = polling.placement(numa, rxq.queue);
            } else {
                control.take_rxq(worker, &rxq);
            }
        }
        control.reassign_to_all(new);
        Ok(notes)
    }

    /// Stops receiving from a port before it returns. Packets can still be sent to the port.
    ///
    /// To be called before the tables forget the port: packets received after that would match no rule.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn stop_receiving(&self, number: PortNo) -> Result<(), DatapathError> {
        let mut control = self.control();
        if !control.ports.contains_key(&number) {
            return Err(DatapathError::NoPort(number));
        }
        take_from_workers(&mut control, number, |into| PmdCommand::RemoveRxqs { port: number, into });
        Ok(())
    }

    /// Removes a port and returns it when no PMD uses it any more. From then on packets for it are dropped with a
    /// reason.
    ///
    /// # Errors
    /// If there is no such port. If threads that are left cannot be arranged anew it is gone all the same.
    pub fn del_port(&self, number: PortNo) -> Result<Box<dyn Port>, DatapathError> {
        let mut control = self.control();
        let port = control.ports.remove(&number).ok_or(DatapathError::NoPort(number))?;
        control.device_statuses.forget(number);
        control.ingress_policers.remove(&number);
        control.egress_policers.remove(&number);
        control.egress_policed.remove(&number);
        control.tx_steering.remove(&number);
        take_from_workers(&mut control, number, |into| PmdCommand::RemovePort { port: number, into });
        self.reconcile_workers(&mut control)?;
        // A PMD whose pinned queue has gone may take others.
        control.reassign_to_all(Vec::new());
        Ok(port)
    }

    /// Lets every port reopen devices that have gone and come back. To be called about once a second.
    pub fn service_ports(&self) {
        self.control().ports.values_mut().for_each(|port| port.service());
    }

    /// What the devices of these ports say of themselves, in the same order; `None` for a number without a port.
    pub fn device_status(&self, ports: &[PortNo]) -> Vec<Option<DeviceStatus>> {
        let mut control = self.control();
        let Control { ports: there, device_statuses, .. } = &mut *control;
        device_statuses.update();
        ports.iter().map(|number| Some(device_statuses.of(*number, &**there.get(number)?))).collect()
    }

    /// The dummy devices among the ports, by number of the port.
    pub fn dummies(&self) -> Vec<Arc<DummyDevice>> {
        self.control().ports.values().filter_map(|port| port.dummy().cloned()).collect()
    }

    /// Changes a port's MTU without closing its device.
    ///
    /// # Errors
    /// If there is no such port, its device refuses, or it must be opened again for that.
    pub fn set_mtu(&self, number: PortNo, mtu: u32, pools: &mut Pools) -> io::Result<()> {
        self.with_port(number, |port| port.set_mtu(mtu, pools))
    }

    /// Changes a port's Ethernet address.
    ///
    /// # Errors
    /// If there is no such port, or its device refuses.
    pub fn set_mac(&self, number: PortNo, mac: [u8; 6]) -> io::Result<()> {
        self.with_port(number, |port| port.set_mac(mac))
    }

    /// Sets a port of one of Open vSwitch's DPDK types up or down.
    ///
    /// # Errors
    /// If there is no such port, or its device refuses.
    pub fn set_admin_state(&self, number: PortNo, is_up: bool) -> io::Result<()> {
        self.with_port(number, |port| port.set_admin_state(is_up))
    }

    /// What DPDK shows of the pool of a port's packet buffers, if that is DPDK's.
    pub fn mempool_info(&self, number: PortNo) -> Option<String> {
        self.control().ports.get(&number)?.mempool_info()
    }

    /// Tells a port whether a queueing discipline is to shape what its kernel device sends.
    ///
    /// # Errors
    /// If there is no such port, or the kernel gives it no socket for that.
    pub fn set_shaped(&self, number: PortNo, is_shaped: bool) -> io::Result<()> {
        self.with_port(number, |port| port.set_shaped(is_shaped))
    }

    /// Deletes the devices that were made for ports and would outlast the process.
    pub fn delete_devices(&self) {
        self.control().ports.values_mut().for_each(|port| port.delete_device());
    }

    /// Closes all ports, once the threads have ended: what they leave in the file system goes with them. Threads that
    /// still hold the datapath for a moment cannot put that off until the process is gone.
    pub fn close_ports(&self) {
        let ports = std::mem::take(&mut self.control().ports);
        drop(ports);
    }

    /// Every port with what it is, by number.
    pub fn port_infos(&self) -> BTreeMap<PortNo, PortInfo> {
        self.control().ports.iter().map(|(number, port)| (*number, port.info())).collect()
    }

    /// Every port with whether its link is up, by number.
    pub fn links(&self) -> BTreeMap<PortNo, bool> {
        self.control().ports.iter().map(|(number, port)| (*number, port.is_up())).collect()
    }

    /// The ports of devices that changed, with whether their links are up, by number.
    pub fn changed_links(&self, changes: &LinkChanges) -> BTreeMap<PortNo, bool> {
        let control = self.control();
        // Index 0 is no device's: a message names the device that it is about.
        let concerned = control
            .ports
            .iter()
            .filter(|(_, port)| port.kernel_device().is_some_and(|device| changes.concern(device, 0)));
        concerned.map(|(number, port)| (*number, port.is_up())).collect()
    }

    fn with_port<T>(&self, number: PortNo, with: impl FnOnce(&mut dyn Port) -> io::Result<T>) -> io::Result<T> {
        with(&mut **self.control().ports.get_mut(&number).ok_or(io::ErrorKind::NotFound)?)
    }
}

/// Takes a port's receive queues from all workers by a command, and waits until they have done what it says. What they return
/// is closed here.
fn take_from_workers<T>(control: &mut Control, number: PortNo, command: impl Fn(Sender<T>) -> PmdCommand) {
    let (into, removed) = mpsc::channel();
    control.post_all(|worker| {
        worker.rxqs().retain(|rxq| rxq.port != number);
        command(into.clone())
    });
    drop(into);
    control.wait_for(&removed, control.workers.len());
}
