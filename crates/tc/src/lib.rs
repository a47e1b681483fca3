//! Linux traffic control: the queueing disciplines that Open vSwitch puts on devices, their classes and counters.
//!
//! [`Discipline`] and [`Class`] are what a row of the database asks for, as plain types: read from its settings, shown
//! as settings, and written as rtnetlink's messages. [`TrafficControl`] is the socket that carries the messages.
//!
//! ```text
//! device ── root 1: ── class 1:fffe (the port's rate) ─┬─ class 1:1    queue 0, and packets without a queue
//!                                                      ├─ class 1:2    queue 1
//!                                                      └─ …
//! ```
//!
//! A packet names its class by its priority ([`priority_of_queue`]). A discipline without classes is the root alone.
//!
//! The messages are written here and not by a crate: the maintained ones know neither linux-htb's options nor
//! linux-hfsc's, which is all there is to this one. Source: Linux include/uapi/linux/pkt_sched.h, rtnetlink(7); Open
//! vSwitch lib/netdev-linux.c.
#![forbid(unsafe_code)]

mod class;
mod control;
mod discipline;
mod message;
mod psched;
mod settings;
mod socket;

pub use class::Class;
pub use control::{ClassCounters, TrafficControl};
pub use discipline::{Device, Discipline, InvalidSettings};
pub use settings::Settings;

/// What a socket's packets need as their priority (`SO_PRIORITY`) to get into the class of a queue.
///
/// Queue 0 takes what has no priority. Source: Open vSwitch lib/dpif-netlink.c, `dpif_netlink_queue_to_priority`.
pub fn priority_of_queue(queue: u32) -> u32 {
    const QUEUES: u32 = 0xf000;
    if queue == 0 || queue >= QUEUES { 0 } else { class_of_queue(queue) }
}

/// The root discipline, and the class with the port's rate.
const ROOT: u32 = handle(1, 0);
const PORT_CLASS: u32 = handle(1, 0xfffe);

const fn handle(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

const fn class_of_queue(queue: u32) -> u32 {
    handle(1, queue + 1)
}

/// The queue of a class, if it is one's.
fn queue_of_class(class: u32) -> Option<u32> {
    let minor = class & 0xffff;
    (class >> 16 == 1 && (1..=0xf000).contains(&minor)).then(|| minor - 1)
}
