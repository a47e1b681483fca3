//! QoS of a device of the kernel: its queueing discipline.

use super::{DEFAULT_QUEUE, QosStatus, QueueCounters, QueueStatus};
use crate::desired::Qos;
use sluice_clock::now_ms;
use sluice_fate::Limit;
use sluice_tc::{Class, Device, Discipline, Settings, TrafficControl};
use std::collections::BTreeMap;
use std::io;

/// The number of queues that a discipline may have. Source: Open vSwitch lib/netdev-linux.c, `HTB_N_QUEUES`.
pub(super) const QUEUES_MAX: u32 = 0xf000;

/// A discipline that is in force.
#[derive(Debug)]
pub(super) struct KernelQos {
    name: String,
    device: Device,
    discipline: Discipline,
    queues: BTreeMap<u32, KernelQueue>,
}

#[derive(Debug)]
struct KernelQueue {
    class: Class,
    created_ms: u64,
}

/// Whether a discipline may have a queue of that number.
fn is_queue(number: u32) -> bool {
    if number >= QUEUES_MAX {
        Limit::Queues.hit();
    }
    number < QUEUES_MAX
}

impl KernelQos {
    /// Makes a device's discipline as it is to be; `had`: the one that it has. `None` if there can be none.
    pub fn apply(
        control: &mut TrafficControl,
        name: &str,
        device: Device,
        had: Option<KernelQos>,
        wanted: &Qos,
    ) -> Option<KernelQos> {
        // A device that has gone took its discipline along.
        let had = had.filter(|had| had.device.index == device.index);
        let discipline = match Discipline::read(&wanted.kind, &wanted.settings, &device) {
            Ok(discipline) => discipline,
            Err(invalid) => {
                tracing::warn!(target: "netdev_linux", "{name}: {invalid}");
                had.into_iter().for_each(|had| had.remove(control));
                return None;
            }
        };
        let mut qos = match had {
            Some(had) if had.discipline.kind() == discipline.kind() => had.change(control, device, discipline)?,
            _ => Self::install(control, name, device, discipline)?,
        };
        if qos.discipline.has_classes() {
            qos.apply_queues(control, wanted);
        }
        Some(qos)
    }

    fn install(control: &mut TrafficControl, name: &str, device: Device, discipline: Discipline) -> Option<Self> {
        if let Err(error) = control.install(&device, &discipline) {
            log_failure(name, "install new qdisc", &error);
            return None;
        }
        Some(KernelQos { name: name.to_owned(), device, discipline, queues: BTreeMap::new() })
    }

    fn change(self, control: &mut TrafficControl, device: Device, discipline: Discipline) -> Option<Self> {
        if self.discipline != discipline
            && let Err(error) = control.change(&device, &discipline)
        {
            log_failure(&self.name, "change qdisc", &error);
            return None;
        }
        Some(KernelQos { device, discipline, ..self })
    }

    /// Makes the classes of the queues as they are to be. There always is one for packets without a queue.
    fn apply_queues(&mut self, control: &mut TrafficControl, wanted: &Qos) {
        let nothing = Settings::new();
        let mut queues: BTreeMap<u32, &Settings> =
            wanted.queues.iter().map(|(number, queue)| (*number, &queue.settings)).collect();
        queues.entry(DEFAULT_QUEUE).or_insert(&nothing);
        let (name, device) = (&self.name, self.device);
        self.queues.retain(|number, _| {
            let stays = queues.contains_key(number);
            if !stays && let Err(error) = control.delete_queue(device.index, *number) {
                log_failure(name, &format!("delete queue {number}"), &error);
            }
            stays
        });
        for (number, settings) in queues {
            if !is_queue(number) {
                continue;
            }
            let class = Class::read(&self.discipline, settings, &device);
            let Some(class) = class else { continue };
            let had = self.queues.get(&number);
            if had.is_some_and(|had| had.class == class) {
                continue;
            }
            let created_ms = had.map_or_else(now_ms, |had| had.created_ms);
            match control.set_queue(&device, number, &class) {
                Ok(()) => {
                    self.queues.insert(number, KernelQueue { class, created_ms });
                }
                Err(error) => log_failure(name, &format!("set queue {number}"), &error),
            }
        }
    }

    /// How many queues it has.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Gives the device its usual discipline.
    pub fn remove(self, control: &mut TrafficControl) {
        if self.discipline == Discipline::Noop {
            return;
        }
        match control.remove(self.device.index) {
            Err(error) if !has_gone(&error) => log_failure(&self.name, "delete existing qdisc", &error),
            _ => {}
        }
    }

    /// What it is, and what it has counted.
    pub fn status(&self, control: &mut TrafficControl) -> QosStatus {
        let counted = if self.queues.is_empty() { Ok(BTreeMap::new()) } else { control.queues(self.device.index) };
        let queues = self.queues.iter().map(|(number, queue)| {
            let counters = match &counted {
                Ok(counted) => counted.get(number).ok_or_else(|| "No such file or directory".to_owned()),
                Err(error) => Err(text(error)),
            };
            let counters = counters.map(|counters| QueueCounters {
                tx_packets: counters.packets,
                tx_bytes: counters.bytes,
                tx_errors: counters.drops,
                created_ms: queue.created_ms,
            });
            (*number, QueueStatus { settings: queue.class.settings(), counters })
        });
        let kind = self.discipline.kind().to_owned();
        QosStatus { kind, settings: self.discipline.settings(), queues: queues.collect() }
    }
}

/// Takes a discipline away that an earlier process left.
pub(super) fn remove_leftover(control: &mut TrafficControl, name: &str, device: u32) {
    match control.remove_leftover(device) {
        Ok(true) => tracing::info!(target: "netdev_linux", "{name}: deleted the qdisc of an earlier configuration"),
        Ok(false) => {}
        Err(error) if has_gone(&error) => {}
        Err(error) => log_failure(name, "delete existing qdisc", &error),
    }
}

fn has_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

fn log_failure(name: &str, what: &str, error: &io::Error) {
    tracing::warn!(target: "netdev_linux", "{name}: Failed to {what}: {}", text(error));
}

/// An error in the words of the C library.
fn text(error: &io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_beyond_the_bound_are_left_out() {
        let before = Limit::Queues.count();
        assert_eq!([0, QUEUES_MAX - 1, QUEUES_MAX, u32::MAX].map(is_queue), [true, true, false, false]);
        assert_eq!(Limit::Queues.count(), before + 2);
    }
}
