//! What is asked of the kernel.

use crate::class::Class;
use crate::discipline::{Device, Discipline};
use crate::message::{Request, Subject, TC_H_ROOT, TCA_KIND, TCA_STATS2, Verb, attribute, flag, read_tc};
use crate::message::{u32_at, u64_at};
use crate::psched::Ticks;
use crate::socket::Socket;
use crate::{PORT_CLASS, ROOT, class_of_queue, queue_of_class};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;

/// Counters within `TCA_STATS2`. Source: linux/gen_stats.h.
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;

/// What a class has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that it had no room for.
    pub drops: u64,
}

/// Traffic control of the devices of a network namespace.
#[derive(Debug)]
pub struct TrafficControl {
    socket: Socket,
    ticks: Ticks,
}

impl TrafficControl {
    /// That of the thread's network namespace.
    ///
    /// # Errors
    /// If there is no socket to be had.
    pub fn open() -> io::Result<Self> {
        Ok(TrafficControl { socket: Socket::open()?, ticks: Ticks::of_kernel() })
    }

    /// Puts a discipline on a device, in the place of any other; one with classes gets the port's class.
    ///
    /// # Errors
    /// What the kernel says: `ENOENT` if it lacks the discipline. The device has the usual one then.
    pub fn install(&mut self, device: &Device, discipline: &Discipline) -> io::Result<()> {
        if *discipline == Discipline::Noop {
            return Ok(());
        }
        self.remove(device.index)?;
        self.tell(discipline.request(device, self.ticks))?;
        self.set_port_class(device, discipline).inspect_err(|_| {
            // Without the class no packet of a queue would be sent.
            let _ = self.remove(device.index);
        })
    }

    /// Changes a discipline that is on the device to one of the same type.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn change(&mut self, device: &Device, discipline: &Discipline) -> io::Result<()> {
        // Packets wait in classes only; the other disciplines are made anew.
        if discipline.has_classes() {
            self.set_port_class(device, discipline)
        } else {
            self.install(device, discipline)
        }
    }

    fn set_port_class(&mut self, device: &Device, discipline: &Discipline) -> io::Result<()> {
        let Some(class) = discipline.port_class() else { return Ok(()) };
        self.tell(class.request(device, PORT_CLASS, ROOT, self.ticks))
    }

    /// Takes a device's discipline away; it has the usual one then.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(&mut self, device: u32) -> io::Result<()> {
        let subject = Subject { device, handle: 0, parent: TC_H_ROOT };
        match self.tell(Request::new(Verb::DeleteQdisc, flag::ACK, subject)) {
            // It had the usual one.
            Err(error) if is_one_of(&error, &[Errno::NOENT, Errno::INVAL]) => Ok(()),
            done => done,
        }
    }

    /// Takes a discipline away that an earlier process of a switch may have left on a device; whether there was one. One
    /// that somebody else has put there stays.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove_leftover(&mut self, device: u32) -> io::Result<bool> {
        let is_ours = self.root(device)?.is_some_and(|(kind, handle)| {
            let known = Discipline::TYPES.iter().filter_map(|name| name.strip_prefix("linux-"));
            handle == ROOT && known.clone().any(|known| known == kind)
        });
        if is_ours {
            self.remove(device)?;
        }
        Ok(is_ours)
    }

    /// The kernel's name of a device's discipline and its handle; `None`: the usual one.
    fn root(&mut self, device: u32) -> io::Result<Option<(String, u32)>> {
        let subject = Subject { device, handle: 0, parent: TC_H_ROOT };
        let mut root = None;
        let asked = self.socket.ask(Request::new(Verb::GetQdisc, flag::ACK, subject), |body| {
            root = read_tc(body).and_then(|(subject, attributes)| {
                let kind = attribute(attributes, TCA_KIND)?.split(|byte| *byte == 0).next()?;
                Some((String::from_utf8_lossy(kind).into_owned(), subject.handle))
            });
        });
        match asked {
            Err(error) if is_one_of(&error, &[Errno::NOENT]) => Ok(None),
            done => done.map(|()| root),
        }
    }

    /// Makes the class of a queue, or changes it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_queue(&mut self, device: &Device, queue: u32, class: &Class) -> io::Result<()> {
        self.tell(class.request(device, class_of_queue(queue), PORT_CLASS, self.ticks))
    }

    /// Takes the class of a queue away.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn delete_queue(&mut self, device: u32, queue: u32) -> io::Result<()> {
        let subject = Subject { device, handle: class_of_queue(queue), parent: 0 };
        self.tell(Request::new(Verb::DeleteClass, flag::ACK, subject))
    }

    /// What the classes of a device's queues have counted, by queue.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn queues(&mut self, device: u32) -> io::Result<BTreeMap<u32, ClassCounters>> {
        let subject = Subject { device, handle: 0, parent: 0 };
        let mut queues = BTreeMap::new();
        self.socket.ask(Request::new(Verb::GetClass, flag::DUMP, subject), |body| {
            let Some((class, attributes)) = read_tc(body).filter(|(class, _)| class.device == device) else { return };
            let counters = attribute(attributes, TCA_STATS2).and_then(counters);
            queues.extend(queue_of_class(class.handle).zip(counters));
        })?;
        Ok(queues)
    }

    fn tell(&mut self, request: Request) -> io::Result<()> {
        self.socket.ask(request, |_| {})
    }
}

/// Reads `TCA_STATS2`.
fn counters(stats: &[u8]) -> Option<ClassCounters> {
    // `struct gnet_stats_basic`: bytes, packets. `struct gnet_stats_queue`: qlen, backlog, drops, requeues, overlimits.
    let basic = attribute(stats, TCA_STATS_BASIC)?;
    let packets = attribute(stats, TCA_STATS_PKT64).and_then(|packets| u64_at(packets, 0));
    Some(ClassCounters {
        bytes: u64_at(basic, 0)?,
        packets: packets.map_or_else(|| u32_at(basic, 8).map(u64::from), Some)?,
        drops: u32_at(attribute(stats, TCA_STATS_QUEUE)?, 8)?.into(),
    })
}

fn is_one_of(error: &io::Error, wanted: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|code| wanted.iter().any(|errno| errno.raw_os_error() == code))
}
