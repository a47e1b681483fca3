//! Commands from control threads to a PMD.

use crate::caches::Caches;
use crate::capture::Tap;
use crate::load::RxqLoad;
use crate::tuner::Tuner;
use crate::{AutopilotReport, MissBudget, Settings};
use sluice_action::{Actions, FlowId, PortNo, Upcall};
use sluice_fate::MemoryCharge;
use sluice_flow::PacketKey;
use sluice_mem::FramePool;
use sluice_packet::VlanLimit;
use sluice_policer::{EgressPolicer, IngressPolicer};
use sluice_port::{RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A command to a PMD, which it runs between two iterations.
pub(crate) enum PmdCommand {
    /// Poll this queue.
    AddRxq { queue: Box<dyn RxQueue>, load: Arc<RxqLoad>, tuner: Tuner, policer: Option<Arc<IngressPolicer>> },
    /// Stop polling this queue and return it after all its packets have been sent.
    TakeRxq { port: PortNo, queue: usize, into: Sender<Box<dyn RxQueue>> },
    /// Send to this port through this queue.
    AddTxq { port: PortNo, queue: Box<dyn TxQueue> },
    /// Send to this port through another queue, and return the one before.
    SetTxq { port: PortNo, queue: Box<dyn TxQueue>, into: Sender<Option<Box<dyn TxQueue>>> },
    /// Let this policer decide what of the port's packets is received.
    SetIngressPolicer { port: PortNo, policer: Option<Arc<IngressPolicer>> },
    /// Let this policer decide what is sent to the port.
    SetEgressPolicer { port: PortNo, policer: Option<Arc<EgressPolicer>> },
    /// Stop polling this port and return its receive queues after all their packets have been sent.
    RemoveRxqs { port: PortNo, into: Sender<Vec<Box<dyn RxQueue>>> },
    /// Forget all queues of this port and return them, so that no PMD closes a device.
    RemovePort { port: PortNo, into: Sender<Removed> },
    /// Ask these tables from now on.
    SetUpcall(Box<dyn Upcall>),
    /// Use these settings and caches; the replaced caches are returned.
    SetSettings { settings: Settings, caches: Box<Caches>, tuner: Tuner, into: Sender<Caches> },
    /// Read no more tags of packets than this.
    SetVlanLimit { vlan_limit: VlanLimit, into: Sender<()> },
    /// Report what the autopilots have chosen.
    ReportAutopilots(Sender<Vec<AutopilotReport>>),
    /// Send a packet that the switch made.
    Execute(PacketOut),
    /// Let misses cost this much.
    SetMissBudget(MissBudget),
    /// Copy packets for a capture.
    AddTap(Tap),
    /// Copy no more packets for this capture, and return its tap.
    RemoveTap { id: u64, into: Sender<Option<Tap>> },
    /// Look this megaflow up, too, which a user has put, and answer.
    IndexFlow { id: FlowId, into: Sender<()> },
    /// Answer once all queues were found empty.
    Quiesce(Sender<()>),
}

/// Queues that a PMD does not use any more.
pub(crate) type Removed = (Vec<Box<dyn RxQueue>>, Option<Box<dyn TxQueue>>);

/// A packet that the switch made.
pub struct PacketOut {
    /// What is known of it besides its bytes: ingress port, marks, connection, tunnel.
    pub known: PacketKey,
    /// The packet.
    pub bytes: Vec<u8>,
    /// What to do with it.
    pub actions: Actions,
    /// Where its buffer comes from.
    pub pool: Arc<dyn FramePool>,
    /// The memory that it takes until it is sent, if that has a bound.
    pub charge: Option<MemoryCharge>,
}
