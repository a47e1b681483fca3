//! Commands from control threads to a PMD.

use crate::caches::Caches;
use crate::load::RxqLoad;
use crate::tuner::Tuner;
use crate::{AutopilotReport, Settings};
use sluice_action::{Actions, PortNo, Upcall};
use sluice_flow::PacketKey;
use sluice_mem::FramePool;
use sluice_port::{RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A command to a PMD, which it runs between two iterations.
pub(crate) enum PmdCommand {
    /// Poll this queue.
    AddRxq { queue: Box<dyn RxQueue>, load: Arc<RxqLoad>, tuner: Tuner },
    /// Stop polling this queue and hand it over, everything it gave having been sent.
    TakeRxq { port: PortNo, queue: usize, into: Sender<Box<dyn RxQueue>> },
    /// Send to this port through this queue.
    AddTxq { port: PortNo, queue: Box<dyn TxQueue> },
    /// Stop polling this port and hand its receive queues back, everything they gave having been sent.
    RemoveRxqs { port: PortNo, into: Sender<Vec<Box<dyn RxQueue>>> },
    /// Forget all queues of this port and hand them back, so that no PMD closes a device.
    RemovePort { port: PortNo, into: Sender<Removed> },
    /// Ask these tables from now on.
    SetUpcall(Box<dyn Upcall>),
    /// Look packets up like this, in these caches; those they replace are handed back.
    SetSettings { settings: Settings, caches: Box<Caches>, tuner: Tuner, into: Sender<Caches> },
    /// Tell what the autopilots have chosen.
    ReportAutopilots(Sender<Vec<AutopilotReport>>),
    /// Send a packet the switch made itself.
    Execute(PacketOut),
}

/// Queues that a PMD uses no more.
pub(crate) type Removed = (Vec<Box<dyn RxQueue>>, Option<Box<dyn TxQueue>>);

/// A packet the switch sends itself.
pub struct PacketOut {
    /// What is known of it besides its bytes: the port it is said to have come from, marks, connection, tunnel.
    pub known: PacketKey,
    /// The packet.
    pub bytes: Vec<u8>,
    /// What to do with it.
    pub actions: Actions,
    /// Where its buffer comes from.
    pub pool: Arc<dyn FramePool>,
}
