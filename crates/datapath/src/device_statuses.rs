//! What the kernel's devices said of themselves, kept until the kernel tells that they have changed.
//!
//! A question costs some twenty system calls, and a database with a thousand ports asks about each at every change.
//! Source: Open vSwitch lib/netdev-linux.c keeps the answers likewise, `netdev_linux_changed`.

use sluice_action::PortNo;
use sluice_port::{DeviceStatus, LinkMonitor, Port};
use std::collections::BTreeMap;

/// The answers.
#[derive(Debug, Default)]
pub(crate) struct DeviceStatuses {
    monitor: Monitor,
    known: BTreeMap<PortNo, Known>,
}

/// What tells which answers are out of date.
#[derive(Debug, Default)]
enum Monitor {
    /// Nothing has been asked yet.
    #[default]
    NotYet,
    Listening(LinkMonitor),
    /// The kernel does not tell: nothing is kept.
    Unavailable,
}

#[derive(Debug)]
struct Known {
    device: String,
    status: DeviceStatus,
}

impl DeviceStatuses {
    /// Forgets what is out of date.
    pub fn update(&mut self) {
        if matches!(self.monitor, Monitor::NotYet) {
            self.monitor = LinkMonitor::new().map_or(Monitor::Unavailable, Monitor::Listening);
        }
        let Monitor::Listening(monitor) = &mut self.monitor else { return };
        let changes = monitor.take_changes();
        if !changes.is_empty() {
            self.known.retain(|_, known| !changes.concern(&known.device, known.status.ifindex));
        }
    }

    /// What a port's device says, as of the last [`DeviceStatuses::update`].
    pub fn of(&mut self, number: PortNo, port: &dyn Port) -> DeviceStatus {
        let device = port.kernel_device().filter(|_| matches!(self.monitor, Monitor::Listening(_)));
        let Some(device) = device else { return port.device_status() };
        if let Some(known) = self.known.get(&number).filter(|known| known.device == device) {
            return known.status.clone();
        }
        let status = port.device_status();
        self.known.insert(number, Known { device: device.to_owned(), status: status.clone() });
        status
    }

    /// Forgets a port that is gone.
    pub fn forget(&mut self, number: PortNo) {
        self.known.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_port::{PortInfo, PortStats, RxQueue, TxQueue};
    use std::cell::Cell;

    /// A port that counts how often its device is asked.
    struct Counting {
        device: Option<&'static str>,
        asked: Cell<u32>,
    }

    impl Port for Counting {
        fn info(&self) -> PortInfo {
            PortInfo { kind: "counting", n_rxq: 0, n_txq: 0, mtu: 1500, mac: [0; 6] }
        }

        fn rx_queue(&mut self, _: usize) -> Box<dyn RxQueue> {
            unreachable!("nothing is received")
        }

        fn tx_queue(&mut self, _: usize) -> Box<dyn TxQueue> {
            unreachable!("nothing is sent")
        }

        fn stats(&self) -> PortStats {
            PortStats::default()
        }

        fn kernel_device(&self) -> Option<&str> {
            self.device
        }

        fn device_status(&self) -> DeviceStatus {
            self.asked.set(self.asked.get() + 1);
            DeviceStatus::of_info(&self.info(), true)
        }
    }

    #[test]
    fn a_device_of_the_kernel_is_asked_once_and_others_each_time() {
        for (device, expected) in [(Some("no-such-device"), [1, 1, 2]), (None, [1, 2, 3])] {
            let (mut statuses, port) = (DeviceStatuses::default(), Counting { device, asked: Cell::new(0) });
            let ask = |statuses: &mut DeviceStatuses| {
                statuses.update();
                statuses.of(PortNo(1), &port);
                port.asked.get()
            };
            let first = [ask(&mut statuses), ask(&mut statuses)];
            statuses.forget(PortNo(1));
            assert_eq!([first[0], first[1], ask(&mut statuses)], expected, "{device:?}");
        }
    }
}
