//! Queues of ports as controllers see them. Source: Open vSwitch, `handle_queue_stats_request`.

use crate::backend::QueueCounters;
use crate::connection::Connection;
use sluice_flow::OfPort;
use sluice_ofproto::Attach;
use sluice_openflow::Error;
use sluice_openflow::message::meters::{QUEUE_ALL, QueueConfig, QueueStats};

/// A queue of a port.
struct Queue {
    port: OfPort,
    number: u32,
    counters: QueueCounters,
}

impl Connection {
    /// The queues of one port or of all: all of them or a certain one.
    ///
    /// # Errors
    /// If the bridge lacks the port, or none of the ports has the queue.
    fn queues(&self, wanted: Option<OfPort>, queue: u32) -> Result<Vec<Queue>, Error> {
        let mut ports = self.switch.ofproto.ports(&self.conn_mgr.bridge).unwrap_or_default();
        ports.retain(|port| wanted.is_none_or(|number| port.number == number));
        if wanted.is_some() && ports.is_empty() {
            return Err(Error::QueueBadPort);
        }
        // The datapath port of a tunnel is not its own.
        ports.retain(|port| matches!(port.attach, Attach::Datapath(_)));
        let of_ports = ports.iter().flat_map(|port| {
            let queues = port.datapath().map(|number| self.switch.backend.queues(number)).unwrap_or_default();
            queues.into_iter().map(|(number, counters)| Queue { port: port.number, number, counters })
        });
        let found: Vec<Queue> = of_ports.filter(|q| queue == QUEUE_ALL || q.number == queue).collect();
        if queue != QUEUE_ALL && found.is_empty() { Err(Error::QueueBadQueue) } else { Ok(found) }
    }

    /// Their statistics.
    pub(crate) fn queue_stats(&self, port: Option<OfPort>, queue: u32) -> Result<Vec<QueueStats>, Error> {
        const UNKNOWN: u64 = u64::MAX;
        let stats = |Queue { port, number, counters }| QueueStats {
            port,
            queue: number,
            bytes: counters.tx_bytes,
            packets: counters.tx_packets,
            errors: counters.tx_errors,
            duration_ns: counters.age_ms.map_or(UNKNOWN, |age_ms| age_ms.saturating_mul(1_000_000)),
        };
        Ok(self.queues(port, queue)?.into_iter().map(stats).collect())
    }

    /// Their configurations.
    pub(crate) fn queue_configs(&self, port: Option<OfPort>, queue: u32) -> Result<Vec<QueueConfig>, Error> {
        let config = |Queue { port, number, .. }| QueueConfig { port, queue: number, min_rate: None, max_rate: None };
        Ok(self.queues(port, queue)?.into_iter().map(config).collect())
    }
}
