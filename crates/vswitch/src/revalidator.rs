//! The revalidator thread: credits what megaflows carried, removes those that idle, and those whose rules have changed.

use parking_lot::{Condvar, Mutex};
use sluice_action::MegaflowStore;
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::{Timer, now_ms};
use sluice_ofproto::Ofproto;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The time from one round to the next if nothing changes, milliseconds. Source: OVS's max-revalidator.
const ROUND_EVERY_MS: u64 = 500;

/// The shortest time from one round to the next, milliseconds. What a change concerns is suspended until then.
const HURRIED_EVERY_MS: u64 = 10;

/// The average number of megaflows is over this many rounds. Source: OVS ofproto-dpif-upcall.c.
const AVERAGE_OVER: usize = 2;

/// What the revalidator knows of the megaflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevalidatorFigures {
    /// Live now.
    pub current: usize,
    /// Over the last rounds.
    pub average: usize,
    /// Ever.
    pub max: usize,
    /// As many as may live.
    pub limit: usize,
    /// Whether dumps name megaflows by their identity alone.
    pub uses_ufid: bool,
    /// How long the last round took, milliseconds.
    pub dump_ms: u64,
}

/// The thread, as others see it. Dropping it ends the thread.
pub struct Revalidator {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    ofproto: Ofproto,
    store: Arc<dyn MegaflowStore>,
    state: Mutex<Rounds>,
    changed: Condvar,
}

/// The rounds that have been taken and are wanted.
struct Rounds {
    max_idle_ms: u64,
    /// The number of the round that a waiter needs; a round begun earlier does not do.
    wanted: u64,
    begun: u64,
    done: u64,
    /// A round is wanted before its time.
    hurry: bool,
    /// No round begins.
    is_paused: bool,
    ending: bool,
    figures: RevalidatorFigures,
}

impl Revalidator {
    /// A revalidator that does not run yet; `limit` is what the store holds at most.
    pub fn new(ofproto: Ofproto, store: Arc<dyn MegaflowStore>, max_idle: Duration, limit: usize) -> Self {
        let max_idle_ms = u64::try_from(max_idle.as_millis()).unwrap_or(u64::MAX);
        let figures = RevalidatorFigures { limit, uses_ufid: true, ..RevalidatorFigures::default() };
        let state = Rounds {
            max_idle_ms,
            wanted: 0,
            begun: 0,
            done: 0,
            hurry: false,
            is_paused: false,
            ending: false,
            figures,
        };
        let shared = Arc::new(Shared { ofproto, store, state: Mutex::new(state), changed: Condvar::new() });
        Revalidator { shared, thread: Mutex::new(None) }
    }

    /// Runs it as a thread.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(&self) -> std::io::Result<()> {
        self.shared.make_room();
        let (shared, sleeper) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let timer = Timer::new(move || sleeper.wake());
        let thread = std::thread::Builder::new().name("revalidator".into()).spawn(move || shared.run(&timer))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Asks for a round soon.
    pub fn hurry(&self) {
        let mut state = self.shared.state.lock();
        // Many requests wake the thread once: a wake-up costs more than a flow-mod.
        if !std::mem::replace(&mut state.hurry, true) {
            self.shared.changed.notify_all();
        }
    }

    /// Lets no round begin until [`Revalidator::resume`]; one that is under way is done when this returns.
    pub fn pause(&self) {
        let mut state = self.shared.state.lock();
        state.is_paused = true;
        self.shared.changed.notify_all();
        while state.done < state.begun && !state.ending {
            self.shared.changed.wait(&mut state);
        }
    }

    /// Lets rounds begin again.
    pub fn resume(&self) {
        self.shared.state.lock().is_paused = false;
        self.shared.changed.notify_all();
    }

    /// Notes whether dumps name megaflows by their identity alone.
    pub fn use_ufid(&self, uses_ufid: bool) {
        self.shared.state.lock().figures.uses_ufid = uses_ufid;
    }

    /// Notes how many megaflows may live.
    pub fn set_limit(&self, limit: usize) {
        self.shared.state.lock().figures.limit = limit;
    }

    /// Waits for a round that begins now or later; there is none while it is paused.
    pub fn wait(&self) {
        let mut state = self.shared.state.lock();
        let wanted = state.begun + 1;
        state.wanted = state.wanted.max(wanted);
        self.shared.changed.notify_all();
        while state.done < wanted && !state.ending && !state.is_paused {
            self.shared.changed.wait(&mut state);
        }
    }

    /// Deletes every megaflow; how many.
    pub fn purge(&self) -> usize {
        self.shared.ofproto.purge(&*self.shared.store)
    }

    /// Credits rules with all that megaflows carried until now.
    pub fn credit(&self, now_ms: u64) {
        let is_running = self.thread.lock().is_some() && !self.shared.state.lock().is_paused;
        if is_running { self.wait() } else { self.settle(now_ms) }
    }

    /// Credits rules with all that megaflows carried, deleting none. For the end, when no thread runs.
    pub fn settle(&self, now_ms: u64) {
        self.shared.ofproto.revalidate(&*self.shared.store, now_ms, u64::MAX);
    }

    /// Changes how long unused megaflows stay.
    pub fn set_max_idle(&self, max_idle: Duration) {
        self.shared.state.lock().max_idle_ms = u64::try_from(max_idle.as_millis()).unwrap_or(u64::MAX);
    }

    /// For `upcall/show`.
    pub fn figures(&self) -> RevalidatorFigures {
        RevalidatorFigures { current: self.shared.store.len(), ..self.shared.state.lock().figures }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.shared.state.lock().ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Revalidator {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn make_room(&self) {
        if let Err(error) = self.store.make_room() {
            tracing::warn!("no memory for more megaflows: {error}; lower flow-memory");
        }
    }

    /// Wakes the thread, also one that is about to sleep.
    fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    fn run(&self, timer: &Timer) {
        let heartbeat = Heartbeat::of("revalidator");
        let (mut next, mut soonest) = (now_ms(), now_ms());
        while let Some(max_idle_ms) = self.wait_for_round(timer, next, soonest) {
            let began = now_ms();
            let _busy = heartbeat.begin("revalidation");
            (next, soonest) = (began + ROUND_EVERY_MS, began + HURRIED_EVERY_MS);
            let done = self.ofproto.revalidate(&*self.store, began, max_idle_ms);
            self.make_room();
            let mut state = self.state.lock();
            state.done = state.begun;
            let figures = &mut state.figures;
            figures.average = (figures.average * (AVERAGE_OVER - 1) + done.dumped) / AVERAGE_OVER;
            figures.max = figures.max.max(done.dumped);
            figures.dump_ms = now_ms() - began;
            self.changed.notify_all();
        }
    }

    /// Waits until a round is due or wanted, or asked for and `soonest` has come; `None` at the end.
    fn wait_for_round(&self, timer: &Timer, due: u64, soonest: u64) -> Option<u64> {
        let mut state = self.state.lock();
        loop {
            if state.ending {
                return None;
            }
            let until = if state.hurry { due.min(soonest) } else { due };
            let left = timer.set((!state.is_paused).then_some(until));
            if !state.is_paused && (left.is_zero() || state.wanted > state.begun) {
                state.hurry = false;
                state.begun += 1;
                return Some(state.max_idle_ms);
            }
            self.changed.wait_for(&mut state, left);
        }
    }
}
