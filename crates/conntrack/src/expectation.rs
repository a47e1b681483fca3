//! Data connections that a helper expects.

use crate::connection::Connection;
use crate::tuple::Tuple;
use parking_lot::Mutex;
use sluice_action::ct::NatTarget;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most expectations; announcements beyond it are forwarded without help. This bound is ours: in Open vSwitch one
/// client can fill the memory with `PORT` commands.
const EXPECTATIONS_MAX: usize = 16384;

/// An expected connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    /// The control connection's original tuple.
    pub parent: Tuple,
    /// With NAT: the data connection's new address, and which of its addresses that replaces.
    pub addr: [u8; 16],
    pub target: NatTarget,
    /// Inherited from the control connection.
    pub mark: u32,
    pub label: u128,
}

/// All expectations, by the first packet's tuple with source port zero, since that port is unknown. The lock is not
/// taken while there are none.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    count: AtomicUsize,
    by_tuple: Mutex<HashMap<Tuple, Expectation>>,
}

impl Expectations {
    /// The expectation that a first packet with `tuple` fulfils. It remains as long as the control connection.
    pub fn find(&self, tuple: &Tuple) -> Option<Expectation> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut tuple = *tuple;
        tuple.src.port = 0;
        self.by_tuple.lock().get(&tuple).copied()
    }

    /// Expects a connection to `port` of the end that announced it: the replying end if `reply`.
    pub fn add(&self, port: u16, parent: &Connection, reply: bool, mark_and_label: (u32, u128)) {
        let (original, answers) = (&parent.original, &parent.reply);
        let is_dnat = parent.nat == Some(NatTarget::Dst);
        let (mut tuple, addr, target) = if reply {
            let (addr, target) = match is_dnat {
                true => (answers.src.addr, NatTarget::Dst),
                false => (answers.dst.addr, NatTarget::Src),
            };
            (*original, addr, target)
        } else {
            let (addr, target) = match is_dnat {
                true => (original.dst.addr, NatTarget::Src),
                false => (original.src.addr, NatTarget::Dst),
            };
            (*answers, addr, target)
        };
        (tuple.src.port, tuple.dst.port) = (0, port);
        let (mark, label) = mark_and_label;
        let mut by_tuple = self.by_tuple.lock();
        if by_tuple.len() < EXPECTATIONS_MAX {
            by_tuple.entry(tuple).or_insert(Expectation { parent: *original, addr, target, mark, label });
            self.count.store(by_tuple.len(), Ordering::Relaxed);
        }
    }

    /// Removes the expectations of a control connection.
    pub fn remove_of(&self, parent: &Tuple) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut by_tuple = self.by_tuple.lock();
        by_tuple.retain(|_, expectation| expectation.parent != *parent);
        self.count.store(by_tuple.len(), Ordering::Relaxed);
    }
}
