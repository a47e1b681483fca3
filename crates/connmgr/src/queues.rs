//! Queues of ports as controllers see them. Source: Open vSwitch, `handle_queue_stats_request`.

use crate::connection::Connection;
use sluice_flow::OfPort;
use sluice_openflow::Error;
use sluice_openflow::message::meters::{QUEUE_ALL, QueueConfig, QueueStats};

/// A queue of a port.
struct Queue {
    port: OfPort,
    number: u32,
}

impl Connection {
    /// The queues of one port or of all: all of them or a certain one.
    ///
    /// # Errors
    /// If the bridge lacks the port, or none of the ports has the queue.
    fn queues(&self, wanted: Option<OfPort>, queue: u32) -> Result<Vec<Queue>, Error> {
        let devices = self.switch.backend.devices();
        let mut ports = self.switch.ofproto.ports(&self.conn_mgr.bridge).unwrap_or_default();
        ports.retain(|port| wanted.is_none_or(|number| port.number == number));
        if wanted.is_some() && ports.is_empty() {
            return Err(Error::QueueBadPort);
        }
        let of_ports = ports.iter().flat_map(|port| {
            let device = port.datapath().and_then(|number| devices.get(&number));
            let numbers = device.map_or(&[][..], |device| &device.queues);
            numbers.iter().map(|number| Queue { port: port.number, number: *number })
        });
        let found: Vec<Queue> = of_ports.filter(|q| queue == QUEUE_ALL || q.number == queue).collect();
        if queue != QUEUE_ALL && found.is_empty() { Err(Error::QueueBadQueue) } else { Ok(found) }
    }

    /// Their statistics. Nothing is known but that they exist.
    pub(crate) fn queue_stats(&self, port: Option<OfPort>, queue: u32) -> Result<Vec<QueueStats>, Error> {
        const UNKNOWN: u64 = u64::MAX;
        let stats = |Queue { port, number }| QueueStats {
            port,
            queue: number,
            bytes: UNKNOWN,
            packets: UNKNOWN,
            errors: UNKNOWN,
            duration_ns: UNKNOWN,
        };
        Ok(self.queues(port, queue)?.into_iter().map(stats).collect())
    }

    /// Their configurations.
    pub(crate) fn queue_configs(&self, port: Option<OfPort>, queue: u32) -> Result<Vec<QueueConfig>, Error> {
        let config = |Queue { port, number }| QueueConfig { port, queue: number, min_rate: None, max_rate: None };
        Ok(self.queues(port, queue)?.into_iter().map(config).collect())
    }
}
