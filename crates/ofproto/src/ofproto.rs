//! What a switch shares: the state of all bridges, who may change it, and how its megaflows learn of a change.
//!
//! **Threads.** Any thread may call. Changes are made one at a time. A translation holds the state's lock for reading
//! from its beginning to its end, so it sees one consistent state. Changes take the lock for writing, briefly.
//!
//! **Epoch.** One number for everything that a translation depends on: rules, ports, MAC entries. It increases after
//! each change. A translation carries the epoch in which it began, and its megaflow is installed only if that is still
//! the current one. Then, before the change returns, the megaflows that depend on it (see `depends`) are suspended:
//! from there on no packet follows the old state. The crate's essay has the whole story.

use crate::bridge::SwitchState;
use crate::dependency_index::DependencyIndex;
use crate::depends::Changes;
use crate::effects::{EffectQueue, EffectStats};
use crate::log_limit::LogLimit;
use crate::meter::DatapathMeters;
use crate::neighbours::Neighbours;
use crate::postponed_free::PostponedFree;
use crate::recirc::Recirculations;
use crate::removed::RemovedRules;
use crate::rule_memory::RuleMemory;
use crate::rule_monitor::RuleMonitor;
use crate::table_capacity::VacancyEvent;
use crate::tables_lock::{TablesGuard, TablesLock};
use crate::usage::PendingEvents;
use crate::xlate_cache::XlateCache;
use parking_lot::{Mutex, MutexGuard, RwLockReadGuard};
use sluice_action::{FlowMemory, MegaflowStore};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// The switch's bridges. Clones share them.
#[derive(Clone)]
pub struct Ofproto(pub(crate) Arc<Shared>);

/// What all clones share.
pub(crate) struct Shared {
    pub state: TablesLock<SwitchState>,
    /// Held during a whole change; the state's lock is taken only for moments.
    writer: Mutex<Writer>,
    pub epoch: AtomicU64,
    /// The megaflows that depend on the tables.
    store: OnceLock<Arc<dyn MegaflowStore>>,
    /// What finds them.
    pub dependencies: Mutex<DependencyIndex>,
    visited: AtomicU64,
    pub recirculations: Recirculations,
    /// The next hops of tunnels.
    pub neighbours: Neighbours,
    /// Of what goes wrong with packets.
    pub xlate_errors: LogLimit,
    /// Of traces of packets whose rules recurse.
    pub recursion_traces: LogLimit,
    pub effects: EffectQueue,
    pub rule_memory: RuleMemory,
    pub pending_events: PendingEvents,
    /// Whether megaflows match only the bits that were looked at. If not, they match every field.
    pub megaflows: AtomicBool,
    /// Whether no packet is answered, since the tables are being filled.
    pub flow_restore_wait: AtomicBool,
    /// Whether dumps name megaflows by their identity alone, which shows in the log.
    pub uses_ufid: AtomicBool,
    /// Packets that showed the address of a static MAC entry at another port.
    pub static_mac_moves: AtomicU64,
    /// Receives every change of rules.
    pub monitor: OnceLock<Arc<dyn RuleMonitor>>,
}

/// What only the thread that makes a change needs.
#[derive(Default)]
pub(crate) struct Writer {
    pub next_bridge: u32,
    pub next_bond: u32,
    /// Removed rules that controllers are told of.
    pub removed: RemovedRules,
    /// Vacancy events that controllers are told of.
    pub vacancy_events: Vec<VacancyEvent>,
    /// The datapath's meters.
    pub meters: DatapathMeters,
    /// What changes have removed.
    pub postponed_free: PostponedFree,
    /// How often the state was locked for a change.
    holds: u64,
}

impl std::fmt::Debug for Ofproto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.state().bridges.iter().map(|b| b.name())).finish()
    }
}

impl Default for Ofproto {
    fn default() -> Self {
        Self::new()
    }
}

impl Ofproto {
    /// A switch without bridges.
    pub fn new() -> Self {
        Ofproto(Arc::new(Shared {
            state: TablesLock::default(),
            writer: Mutex::default(),
            epoch: AtomicU64::new(1),
            store: OnceLock::new(),
            dependencies: Mutex::default(),
            visited: AtomicU64::new(0),
            recirculations: Recirculations::default(),
            neighbours: Neighbours::default(),
            xlate_errors: LogLimit::with_burst(5),
            recursion_traces: LogLimit::with_burst(1),
            effects: EffectQueue::default(),
            rule_memory: RuleMemory::default(),
            pending_events: PendingEvents::default(),
            megaflows: AtomicBool::new(true),
            flow_restore_wait: AtomicBool::new(false),
            uses_ufid: AtomicBool::new(true),
            static_mac_moves: AtomicU64::new(0),
            monitor: OnceLock::new(),
        }))
    }

    /// The state, as a control thread reads it: PMDs go on translating, changes wait. Not to be taken twice.
    pub(crate) fn state(&self) -> TablesGuard<'_, SwitchState> {
        self.0.state.read()
    }

    /// The state, as a PMD reads it, unless a change has it.
    pub(crate) fn try_state(&self) -> Option<RwLockReadGuard<'_, SwitchState>> {
        self.0.state.try_read()
    }

    /// A PMD has misses to translate, or none any more: changes wait for it meanwhile, within a bound.
    pub(crate) fn set_asking(&self, is_asking: bool) {
        if is_asking { self.0.state.begin_asking() } else { self.0.state.end_asking() }
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock()
    }

    /// The same, unless a change is under way.
    pub(crate) fn try_writer(&self) -> Option<MutexGuard<'_, Writer>> {
        self.0.writer.try_lock()
    }

    /// Changes the state. The caller holds the writer's lock.
    pub(crate) fn change<T>(&self, writer: &mut Writer, f: impl FnOnce(&mut SwitchState) -> T) -> T {
        writer.holds += 1;
        self.0.state.change(f)
    }

    /// How often the tables were locked for a change. Large changes hold the lock for a piece at a time, so that packets
    /// are translated in between.
    pub fn write_holds(&self) -> u64 {
        self.writer().holds
    }

    /// Sets the store in which changes suspend the megaflows that depend on them. Only the first call has an effect.
    pub fn set_store(&self, store: Arc<dyn MegaflowStore>) {
        self.0.store.get_or_init(|| store);
    }

    /// Recirculation ids in use, large states as several, and how many there may be.
    pub fn recirc_usage(&self) -> (usize, usize) {
        self.0.recirculations.usage()
    }

    /// The memory of rules and groups.
    pub fn rule_memory(&self) -> &RuleMemory {
        &self.0.rule_memory
    }

    /// The account of the megaflows' memory, once there is a store.
    pub(crate) fn flow_memory(&self) -> Option<&Arc<FlowMemory>> {
        self.0.store.get().map(|store| store.memory())
    }

    /// Increases the epoch, and suspends the megaflows that the changes affect. The caller must not hold the state's
    /// lock.
    pub(crate) fn announce(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        self.0.epoch.fetch_add(1, SeqCst);
        if let Some(store) = self.0.store.get() {
            let candidates = {
                let mut index = self.0.dependencies.lock();
                index.catch_up(&**store);
                index.candidates(changes, &**store)
            };
            let mut visited = 0;
            store.suspend(candidates.as_deref(), &mut |_, mask, xcache| {
                visited += 1;
                let record = xcache.0.downcast_ref::<XlateCache>();
                record.is_some_and(|record| changes.affect(mask, record))
            });
            self.0.visited.fetch_add(visited, Relaxed);
        }
    }

    /// How many megaflows changes have been compared with.
    pub fn visited_megaflows(&self) -> u64 {
        self.0.visited.load(Relaxed)
    }

    /// The epoch, which increases with every change that translations depend on.
    pub fn epoch(&self) -> u64 {
        self.0.epoch.load(SeqCst)
    }

    /// Counters of the effects of translations.
    pub fn effects(&self) -> EffectStats {
        self.0.effects.read()
    }
}
