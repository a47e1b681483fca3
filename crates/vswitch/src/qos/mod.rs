//! What ports may receive and send: ingress policing, egress policers, and the kernel's queueing disciplines.
//!
//! A port on a device of the kernel is shaped by the kernel ([`kernel`]); what is sent to another one meets a policer of
//! ours ([`policer`]). What any port receives meets a policer of ours. [`QosTable`] knows what is in force, by datapath
//! port, for commands and for OpenFlow connections, which read the counters of queues from their own threads.
//!
//! As in Open vSwitch, what cannot be as the configuration says is logged, and the port works without it.

mod kernel;
mod policer;

pub use policer::{EGRESS_POLICER, TRTCM_POLICER};

use crate::assembly::Assembly;
use crate::desired::{Port, Qos};
use kernel::{KernelQos, QUEUES_MAX};
use parking_lot::Mutex;
use policer::PolicerQos;
use sluice_action::PortNo;
use sluice_clock::now_ms;
use sluice_datapath::Datapath;
use sluice_policer::IngressPolicer;
use sluice_tc::{Device, Discipline, Settings, TrafficControl};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The queue of packets that name none.
const DEFAULT_QUEUE: u32 = 0;

/// What a queue has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that it had no room or no tokens for.
    pub tx_errors: u64,
    /// When the queue was made, by the switch's clock, milliseconds.
    pub created_ms: u64,
}

/// The QoS of a port that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosStatus {
    /// Its type.
    pub kind: String,
    /// Its settings.
    pub settings: Settings,
    /// Its queues.
    pub queues: BTreeMap<u32, QueueStatus>,
}

/// A queue of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its settings.
    pub settings: Settings,
    /// What it has counted, or why that is not known.
    pub counters: Result<QueueCounters, String>,
}

/// Who sees to the QoS of ports of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The kernel, whose device it is.
    Kernel,
    /// A policer of ours.
    Policer,
    /// Nobody. A device of Open vSwitch's tests has a queue all the same.
    None,
}

fn way(kind: &str) -> Way {
    match kind {
        "system" | "internal" | "afxdp" | "af_packet" | "af_xdp" | "tap" => Way::Kernel,
        "dpdk" | "dpdkvhostuser" | "dpdkvhostuserclient" | "vhost-user" | "generator" | "null" | "pcap" => Way::Policer,
        _ => Way::None,
    }
}

/// The types of QoS that ports of a type may have.
pub fn types(kind: &str) -> &'static [&'static str] {
    match way(kind) {
        Way::Kernel => &Discipline::TYPES,
        Way::Policer => &[EGRESS_POLICER, TRTCM_POLICER],
        Way::None => &[],
    }
}

/// The QoS that is in force, by datapath port.
#[derive(Debug, Default)]
pub struct QosTable {
    inner: Mutex<Inner>,
    /// Queues of the device with most. The lock is held while the kernel is asked, so this is beside it.
    most_queues: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    ports: BTreeMap<PortNo, PortQos>,
    /// Opened when a port first needs it: in the network namespace of the switch.
    control: Option<TrafficControl>,
}

#[derive(Debug)]
enum PortQos {
    Kernel(KernelQos),
    Policer(PolicerQos),
}

impl Inner {
    fn control(&mut self) -> std::io::Result<&mut TrafficControl> {
        match &mut self.control {
            Some(control) => Ok(control),
            none => Ok(none.insert(TrafficControl::open()?)),
        }
    }
}

impl QosTable {
    /// The QoS of a port, with its counters.
    pub fn status(&self, number: PortNo) -> Option<QosStatus> {
        let Inner { ports, control } = &mut *self.inner.lock();
        match ports.get(&number)? {
            PortQos::Kernel(qos) => Some(qos.status(control.as_mut()?)),
            PortQos::Policer(qos) => Some(qos.status()),
        }
    }

    /// What the queues of a port have counted.
    pub fn counters(&self, number: PortNo) -> BTreeMap<u32, QueueCounters> {
        let queues = self.status(number).map(|status| status.queues).unwrap_or_default();
        queues.into_iter().filter_map(|(queue, status)| Some((queue, status.counters.ok()?))).collect()
    }

    /// Makes the QoS of an open port as it is to be.
    fn apply(&self, datapath: &Datapath, number: PortNo, port: &Port) {
        let inner = &mut *self.inner.lock();
        let wanted = port.qos.as_deref().filter(|qos| !qos.kind.is_empty());
        match (way(&port.kind), wanted) {
            (Way::Kernel, wanted) => inner.apply_kernel(datapath, number, port, wanted),
            (Way::Policer, Some(wanted)) if types(&port.kind).contains(&wanted.kind.as_str()) => {
                inner.apply_policer(datapath, number, &port.name, wanted);
            }
            (way, wanted) => {
                if let (Way::Policer, Some(qos)) = (way, wanted) {
                    policer::log_failure(&port.name, &qos.kind, "Operation not supported");
                }
                if inner.ports.remove(&number).is_some() {
                    let _ = datapath.set_egress_policer(number, None);
                }
            }
        }
        self.most_queues.store(inner.most_queues(), Relaxed);
    }

    /// A port's device is about to be closed, and is to be as it was.
    fn remove(&self, number: PortNo) {
        let inner = &mut *self.inner.lock();
        if let Some(PortQos::Kernel(qos)) = inner.ports.remove(&number)
            && let Ok(control) = inner.control()
        {
            qos.remove(control);
        }
        self.most_queues.store(inner.most_queues(), Relaxed);
    }

    /// How many queues the device with most has, and how many one may have.
    pub fn usage(&self) -> (usize, usize) {
        (self.most_queues.load(Relaxed), QUEUES_MAX as usize)
    }

    /// A port's device was closed, and opened again: policers are gone, disciplines stay as long as the device.
    fn forget_policer(&self, number: PortNo) {
        self.inner.lock().ports.retain(|other, qos| *other != number || matches!(qos, PortQos::Kernel(_)));
    }

    /// Puts all devices back.
    pub(crate) fn remove_all(&self) {
        let numbers: Vec<_> = self.inner.lock().ports.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.remove(number));
    }
}

impl Inner {
    fn most_queues(&self) -> usize {
        let queues = self.ports.values().map(|qos| match qos {
            PortQos::Kernel(qos) => qos.queues(),
            PortQos::Policer(_) => 0,
        });
        queues.max().unwrap_or_default()
    }

    fn apply_kernel(&mut self, datapath: &Datapath, number: PortNo, port: &Port, wanted: Option<&Qos>) {
        let status = datapath.device_status(&[number]).pop().flatten();
        let Some(status) = status.filter(|status| status.ifindex != 0) else { return };
        let device = Device { index: status.ifindex, mtu: status.mtu, speed_bps: status.speed_bps };
        let had = self.ports.remove(&number);
        let Ok(control) = self.control() else { return };
        let had = if let Some(PortQos::Kernel(qos)) = had { Some(qos) } else { None };
        let qos = match wanted {
            Some(wanted) => KernelQos::apply(control, &port.name, device, had, wanted),
            None => {
                match had {
                    Some(qos) => qos.remove(control),
                    // One that this process did not put there, but one before it.
                    None if is_of_ovs(&port.kind) => kernel::remove_leftover(control, &port.name, device.index),
                    None => {}
                }
                None
            }
        };
        if let Err(error) = datapath.set_shaped(number, qos.is_some()) {
            tracing::warn!("port {}: no socket that sends through its queueing discipline: {error}", port.name);
        }
        self.ports.extend(qos.map(|qos| (number, PortQos::Kernel(qos))));
    }

    fn apply_policer(&mut self, datapath: &Datapath, number: PortNo, name: &str, wanted: &Qos) {
        let had = self.ports.remove(&number);
        let had = if let Some(PortQos::Policer(qos)) = had { Some(qos) } else { None };
        let qos = PolicerQos::make(name, had.as_ref(), wanted, now_ms());
        let is_same = had.zip(qos.as_ref()).is_some_and(|(had, qos)| had.has_policer_of(qos));
        if !is_same {
            let _ = datapath.set_egress_policer(number, qos.as_ref().map(PolicerQos::policer));
        }
        self.ports.extend(qos.map(|qos| (number, PortQos::Policer(qos))));
    }
}

/// Types whose devices belong to the switch: a discipline of Open vSwitch's making goes unless it is asked for.
fn is_of_ovs(kind: &str) -> bool {
    matches!(kind, "system" | "internal" | "afxdp")
}

impl Assembly {
    /// Makes policing and QoS of a port as they are to be, once its device is open.
    pub(crate) fn set_up_qos(&self, number: PortNo, port: &Port) {
        self.qos().forget_policer(number);
        self.apply_policing(number, port);
        self.qos().apply(self.datapath(), number, port);
    }

    /// Makes them so for a port that differs from what it was.
    pub(crate) fn change_qos(&self, number: PortNo, before: &Port, port: &Port) {
        if before.policing != port.policing {
            self.apply_policing(number, port);
        }
        if before.qos != port.qos {
            self.qos().apply(self.datapath(), number, port);
        }
    }

    fn apply_policing(&self, number: PortNo, port: &Port) {
        // The port is there, or this is not called.
        let _ = self.datapath().set_ingress_policer(number, IngressPolicer::new(port.policing));
    }

    /// A port is about to be closed for good.
    pub(crate) fn remove_qos(&self, number: PortNo) {
        self.qos().remove(number);
    }

    /// Sets the disciplines up again that went with a device which has come back.
    pub(crate) fn follow_qos(&self, changed: impl IntoIterator<Item = PortNo>) {
        for number in changed {
            let entry = self.ports.values().find(|entry| entry.number == Some(number));
            if let Some(entry) = entry.filter(|entry| entry.desired.qos.is_some()) {
                self.qos().apply(self.datapath(), number, &entry.desired);
            }
        }
    }
}
