//! The revalidator thread: credits what megaflows carried, removes those that idle, and those whose rules have changed.

use parking_lot::{Condvar, Mutex, MutexGuard};
use sluice_action::MegaflowStore;
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::{Timer, now_ms, real_ms};
use sluice_ofproto::Ofproto;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time from one round to the next if nothing changes, milliseconds. Source: OVS's max-revalidator.
const ROUND_EVERY_MS: u64 = 500;

/// The shortest time from one round to the next, milliseconds. What a change concerns is suspended until then.
const HURRIED_EVERY_MS: u64 = 10;

/// The shortest time from one credit of statistics to the next, milliseconds.
const CREDIT_EVERY_MS: u64 = 10;

/// Credits of statistics take this part of the time at most, however many clients ask.
const CREDIT_PART: u64 = 5;

/// How long others wait for the thread. A round over millions of megaflows takes seconds; the bound is met by a thread that
/// stands still.
const WAIT_WITHIN: Duration = Duration::from_secs(30);

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
    /// What is done after each look at all megaflows.
    after_round: OnceLock<AfterRound>,
    /// How long others wait for the thread.
    wait_within: Duration,
}

type AfterRound = Box<dyn Fn() + Send + Sync>;

/// The rounds that have been taken and are wanted.
struct Rounds {
    max_idle_ms: u64,
    /// Those that look at every megaflow again.
    revalidations: Passes,
    /// Those that credit statistics, revalidations included.
    credits: Passes,
    /// A round is wanted before its time.
    is_requested: bool,
    /// No round begins.
    is_paused: bool,
    ending: bool,
    figures: RevalidatorFigures,
}

impl Rounds {
    fn goes_on(&self) -> bool {
        !self.ending && !self.is_paused
    }
}

/// Passes of all megaflows, counted.
#[derive(Default)]
struct Passes {
    /// The number of the pass that a waiter needs; a pass begun earlier does not do.
    wanted: u64,
    begun: u64,
    done: u64,
}

impl Passes {
    /// Wants a pass that begins later. Returns its number.
    fn want(&mut self) -> u64 {
        self.wanted = self.wanted.max(self.begun + 1);
        self.begun + 1
    }

    fn is_wanted(&self) -> bool {
        self.wanted > self.begun
    }

    fn is_under_way(&self) -> bool {
        self.done < self.begun
    }
}

/// What a pass does.
enum Round {
    /// It looks at every megaflow, and deletes those idle for so long.
    Revalidate { max_idle_ms: u64 },
    /// It credits statistics.
    Credit,
}

impl Revalidator {
    /// A revalidator that does not run yet; `limit` is what the store holds at most.
    pub fn new(ofproto: Ofproto, store: Arc<dyn MegaflowStore>, max_idle: Duration, limit: usize) -> Self {
        let max_idle_ms = u64::try_from(max_idle.as_millis()).unwrap_or(u64::MAX);
        let figures = RevalidatorFigures { limit, uses_ufid: true, ..RevalidatorFigures::default() };
        let state = Rounds {
            max_idle_ms,
            revalidations: Passes::default(),
            credits: Passes::default(),
            is_requested: false,
            is_paused: false,
            ending: false,
            figures,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared =
            Arc::new(Shared { ofproto, store, state, changed, after_round: OnceLock::new(), wait_within: WAIT_WITHIN });
        Revalidator { shared, thread: Mutex::new(None) }
    }

    /// Prepares memory for megaflows. Before the PMDs start: it takes milliseconds for which the table is locked.
    pub fn make_room(&self) {
        self.shared.make_room();
    }

    /// Runs it as a thread.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(&self) -> std::io::Result<()> {
        let (shared, sleeper) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let timer = Timer::new(move || sleeper.wake());
        let thread = std::thread::Builder::new().name("revalidator".into()).spawn(move || shared.run(&timer))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Has the thread do this after each round, when all that megaflows had carried is credited. Only the first call counts.
    pub fn set_after_round(&self, run: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.after_round.set(Box::new(run));
    }

    /// How many rounds there have been.
    pub fn rounds(&self) -> u64 {
        self.shared.state.lock().revalidations.done
    }

    /// Asks for a round soon.
    pub fn request_revalidation(&self) {
        let mut state = self.shared.state.lock();
        // Many requests wake the thread once: a wake-up costs more than a flow-mod.
        if !std::mem::replace(&mut state.is_requested, true) {
            self.shared.changed.notify_all();
        }
    }

    /// Lets no round begin until [`Revalidator::resume`]; one that is under way is done when this returns.
    pub fn pause(&self) {
        let mut state = self.shared.state.lock();
        state.is_paused = true;
        self.shared.changed.notify_all();
        let is_under_way = |state: &Rounds| state.revalidations.is_under_way() || state.credits.is_under_way();
        self.shared.wait_while(&mut state, "the end of its round", |state| is_under_way(state) && !state.ending);
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
        let wanted = state.revalidations.want();
        self.shared.changed.notify_all();
        let is_wanted = |state: &Rounds| state.revalidations.done < wanted && state.goes_on();
        self.shared.wait_while(&mut state, "a revalidation", is_wanted);
    }

    /// Waits until rules have been credited with all that megaflows carried until now. One pass serves all that wait, and
    /// passes have pauses between them, so that clients that ask for statistics all the time cost a part of one core.
    pub fn wait_for_credits(&self) {
        let mut state = self.shared.state.lock();
        let wanted = state.credits.want();
        self.shared.changed.notify_all();
        let is_wanted = |state: &Rounds| state.credits.done < wanted && state.goes_on();
        self.shared.wait_while(&mut state, "statistics", is_wanted);
    }

    /// Deletes every megaflow; how many.
    pub fn purge(&self) -> usize {
        self.shared.ofproto.purge(&*self.shared.store)
    }

    /// Credits rules with all that megaflows carried until now.
    pub fn credit(&self, now_ms: u64) {
        let is_running = self.thread.lock().is_some() && !self.shared.state.lock().is_paused;
        if is_running {
            self.wait();
        } else {
            self.shared.ofproto.revalidate(&*self.shared.store, now_ms, u64::MAX);
            let revalidations = &mut self.shared.state.lock().revalidations;
            revalidations.begun += 1;
            revalidations.done = revalidations.begun;
        }
    }

    /// Credits rules with all that megaflows carried, translating and deleting none. For the end, when no thread runs.
    pub fn settle(&self) {
        self.shared.ofproto.credit_megaflows(&*self.shared.store);
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

    /// Waits for the thread as long as `is_needed`, but not for longer than the bound.
    fn wait_while(&self, state: &mut MutexGuard<'_, Rounds>, what: &str, is_needed: impl Fn(&Rounds) -> bool) {
        let within = self.wait_within;
        let until_ms = real_ms() + u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        while is_needed(state) {
            let left_ms = until_ms.saturating_sub(real_ms());
            if left_ms == 0 {
                tracing::error!("waited {within:?} for the revalidator, {what}; the switch goes on without it");
                return;
            }
            self.changed.wait_for(state, Duration::from_millis(left_ms));
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
        // By the real clock: clients wait for it.
        let mut next_credit = 0;
        while let Some(round) = self.wait_for_round(timer, next, soonest, next_credit) {
            let (began, began_real) = (now_ms(), real_ms());
            let _busy = heartbeat.begin("revalidation");
            match round {
                Round::Credit => _ = self.ofproto.credit_megaflows(&*self.store),
                Round::Revalidate { max_idle_ms } => {
                    (next, soonest) = (began + ROUND_EVERY_MS, began + HURRIED_EVERY_MS);
                    let done = self.ofproto.revalidate(&*self.store, began, max_idle_ms);
                    self.make_room();
                    let mut state = self.state.lock();
                    state.revalidations.done = state.revalidations.begun;
                    let figures = &mut state.figures;
                    figures.average = (figures.average * (AVERAGE_OVER - 1) + done.dumped) / AVERAGE_OVER;
                    figures.max = figures.max.max(done.dumped);
                    figures.dump_ms = now_ms() - began;
                    drop(state);
                    self.after_round.get().inspect(|run| run());
                }
            }
            let took = real_ms() - began_real;
            next_credit = began_real + CREDIT_EVERY_MS.max(took * CREDIT_PART);
            let mut state = self.state.lock();
            state.credits.done = state.credits.begun;
            self.changed.notify_all();
        }
    }

    /// Waits until a round is due or wanted, or asked for and `soonest` has come, or statistics are and `next_credit`
    /// has; `None` at the end.
    fn wait_for_round(&self, timer: &Timer, due: u64, soonest: u64, next_credit: u64) -> Option<Round> {
        let mut state = self.state.lock();
        loop {
            if state.ending {
                return None;
            }
            let until = if state.is_requested { due.min(soonest) } else { due };
            let left = timer.set((!state.is_paused).then_some(until));
            if !state.is_paused && (left.is_zero() || state.revalidations.is_wanted()) {
                state.is_requested = false;
                state.revalidations.begun += 1;
                state.credits.begun += 1;
                return Some(Round::Revalidate { max_idle_ms: state.max_idle_ms });
            }
            let mut at_most = left;
            if !state.is_paused && state.credits.is_wanted() {
                let pause = next_credit.saturating_sub(real_ms());
                if pause == 0 {
                    state.credits.begun += 1;
                    return Some(Round::Credit);
                }
                at_most = left.min(Duration::from_millis(pause));
            }
            self.changed.wait_for(&mut state, at_most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_action::{AffectedFlow, FlowDump, FlowId, FlowMemory, FlowModification, FlowStats, XcacheHandle};
    use sluice_flow::PacketKey;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    /// A store without megaflows that takes a while to say so.
    struct SlowStore {
        takes: Duration,
        passes: AtomicU64,
        memory: Arc<FlowMemory>,
    }

    impl MegaflowStore for SlowStore {
        fn for_each(&self, _: &mut dyn FnMut(&FlowDump<'_>)) {
            self.passes.fetch_add(1, SeqCst);
            std::thread::sleep(self.takes);
        }

        fn suspend(&self, _: Option<&[FlowId]>, _: &mut AffectedFlow<'_>) -> usize {
            0
        }

        fn take_fresh(&self, _: &mut dyn FnMut(FlowId, &PacketKey, &XcacheHandle)) {}

        fn resume(&self, _: FlowId, _: &mut dyn FnMut() -> bool) -> bool {
            false
        }

        fn capacity(&self) -> usize {
            1000
        }

        fn memory(&self) -> &Arc<FlowMemory> {
            &self.memory
        }

        fn remove(&self, _: FlowId) -> Option<FlowStats> {
            None
        }

        fn remove_same(&self, _: FlowId, _: &XcacheHandle) -> Option<FlowStats> {
            None
        }

        fn modify(&self, _: FlowId, _: &XcacheHandle, _: &mut FlowModification<'_>) -> Option<FlowStats> {
            None
        }

        fn settle(&self, _: &mut dyn FnMut(&XcacheHandle, FlowStats)) {}

        fn len(&self) -> usize {
            0
        }
    }

    /// A revalidator whose thread does not run.
    fn resting(takes: Duration) -> (Revalidator, Arc<SlowStore>) {
        let store = Arc::new(SlowStore { takes, passes: 0.into(), memory: Arc::default() });
        let dyn_store = Arc::clone(&store) as Arc<dyn MegaflowStore>;
        (Revalidator::new(Ofproto::new(), dyn_store, Duration::from_secs(10), 1000), store)
    }

    fn running(takes: Duration) -> (Revalidator, Arc<SlowStore>) {
        let (revalidator, store) = resting(takes);
        revalidator.start().unwrap();
        (revalidator, store)
    }

    #[test]
    fn a_thread_that_does_nothing_is_not_waited_for_without_end() {
        let (mut revalidator, _) = resting(Duration::ZERO);
        let within = Duration::from_millis(50);
        Arc::get_mut(&mut revalidator.shared).unwrap().wait_within = within;
        for wait in [Revalidator::wait, Revalidator::wait_for_credits] {
            let began = real_ms();
            wait(&revalidator);
            assert!(real_ms() - began >= within.as_millis() as u64);
        }
        revalidator.shared.state.lock().revalidations.begun += 1;
        revalidator.pause();
    }

    /// Ten clients ask for statistics all the time, for half a second and until each has two answers. Returns how many
    /// answers and passes there were, and how many milliseconds it took.
    fn ten_clients(takes: Duration) -> (u64, u64, u64) {
        let (revalidator, store) = running(takes);
        let (answers, began) = (AtomicU64::new(0), real_ms());
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let mut own = 0;
                    while real_ms() < began + 500 || own < 2 {
                        revalidator.wait_for_credits();
                        answers.fetch_add(1, SeqCst);
                        own += 1;
                    }
                });
            }
        });
        (answers.load(SeqCst), store.passes.load(SeqCst), real_ms() - began)
    }

    #[test]
    fn clients_that_ask_all_the_time_share_few_passes() {
        let (answers, passes, took_ms) = ten_clients(Duration::ZERO);
        // One each interval, and revalidations beside them.
        assert!(passes <= 2 * took_ms / CREDIT_EVERY_MS, "{passes} passes in {took_ms} ms");
        assert!(answers >= 2 * passes, "{answers} answers by {passes} passes");
    }

    #[test]
    fn passes_that_take_long_take_a_part_of_the_time() {
        let takes = Duration::from_millis(20);
        let (answers, passes, took_ms) = ten_clients(takes);
        assert!(passes * 20 <= took_ms / 2, "{passes} passes in {took_ms} ms");
        assert!(answers >= 20, "{answers} answers");
    }

    #[test]
    fn statistics_come_without_the_clock_and_not_while_it_is_paused() {
        let (revalidator, store) = running(Duration::ZERO);
        revalidator.wait();
        let before = store.passes.load(SeqCst);
        revalidator.wait_for_credits();
        assert!(store.passes.load(SeqCst) > before);
        revalidator.pause();
        let before = store.passes.load(SeqCst);
        revalidator.wait_for_credits();
        assert_eq!(store.passes.load(SeqCst), before);
    }
}
