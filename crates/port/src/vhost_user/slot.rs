//! A ring as a PMD and the protocol's thread share it.
//!
//! A PMD holds the lock for one burst, whose work is bounded. The protocol's thread holds it only to exchange a ring
//! that is ready, or to change its notifications. Nobody asks the lock for the port's state: that is in atomics.

use super::ring::{Broken, Call, Ring};
use super::send_rarp::GuestMac;
use parking_lot::{Mutex, MutexGuard};
use sluice_fate::Limit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// A ring's place in the port.
#[derive(Debug, Default)]
pub struct RingSlot {
    ring: Mutex<SlotRing>,
    is_running: AtomicBool,
    /// Why the guest broke it since that was last asked (`Broken as u8`); 0: it did not.
    broken: AtomicU8,
    /// The eventfd that the ring's PMD writes, for the thread that sees that it does not block.
    call: Mutex<Option<Arc<Call>>>,
}

/// A ring, if the guest has set it up.
#[derive(Debug, Default)]
pub struct SlotRing {
    ring: Option<Ring>,
    /// A guest that is to be announced with the packets of its next poll.
    pub announced: Option<GuestMac>,
    /// Whether a command has set the port down: the ring rests meanwhile.
    is_admin_down: bool,
    /// How many times a ring has started where there was none.
    starts: u64,
}

impl SlotRing {
    /// A number for the guest whose ring it is: another one from each start on.
    #[inline]
    pub fn guest(&self) -> u64 {
        self.starts
    }

    /// The ring, while it can be used.
    #[inline]
    pub fn running(&mut self) -> Option<&mut Ring> {
        let is_off = self.is_admin_down;
        self.ring.as_mut().filter(|ring| !ring.is_broken() && !is_off)
    }
}

impl RingSlot {
    /// Waits for the ring. Others hold it for one burst at most.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, SlotRing> {
        self.ring.lock()
    }

    /// The ring, unless another thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, SlotRing>> {
        self.ring.try_lock()
    }

    /// Starts a ring, or stops it with `None`. Returns the one that ran.
    pub fn replace(&self, ring: Option<Ring>) -> Option<Ring> {
        let is_running = ring.is_some();
        let mut slot = self.lock();
        slot.starts += u64::from(is_running && slot.ring.is_none());
        let old = std::mem::replace(&mut slot.ring, ring);
        drop(slot);
        self.is_running.store(is_running, Relaxed);
        old
    }

    /// Changes the ring that runs, if one does.
    pub fn change(&self, change: impl FnOnce(&mut Ring)) {
        if let Some(ring) = &mut self.lock().ring {
            change(ring);
        }
    }

    /// Lets the ring rest, or run again.
    pub fn set_admin_state(&self, is_up: bool) {
        self.lock().is_admin_down = !is_up;
    }

    /// Announces a guest with the packets of its next poll.
    pub fn announce(&self, guest: GuestMac) {
        self.lock().announced = Some(guest);
    }

    /// Lets a ring rest that the guest broke, until it is set up again.
    #[cold]
    pub fn break_off(&self, ring: &mut Ring, why: Broken) {
        ring.break_off();
        Limit::VhostChains.hit();
        self.is_running.store(false, Relaxed);
        self.broken.store(why as u8, Relaxed);
    }

    /// Says why a ring did not start.
    pub fn refuse(&self, why: Broken) {
        self.broken.store(why as u8, Relaxed);
    }

    /// Whether the guest uses it.
    pub fn is_running(&self) -> bool {
        self.is_running.load(Relaxed)
    }

    /// Why the guest broke it, once for each time.
    pub fn take_broken(&self) -> Option<Broken> {
        Broken::of_number(self.broken.swap(0, Relaxed))
    }

    /// Names the eventfd that notifies the guest.
    pub fn set_call(&self, call: Option<Arc<Call>>) {
        self.call.lock().clone_from(&call);
        self.change(|ring| ring.set_call(call));
    }

    /// The eventfd that notifies the guest.
    pub fn call(&self) -> Option<Arc<Call>> {
        self.call.lock().clone()
    }
}
