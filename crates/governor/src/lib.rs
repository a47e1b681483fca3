//! The flow-setup governor: should this missed flow be installed now, or should its packets be counted first?
//!
//! Installing a megaflow costs more than forwarding one packet without it. When most flows end after a packet or two,
//! installing them all is a loss. The governor then counts a flow's packets in a small table of 4-bit counters and
//! installs the flow at its [`THRESHOLD`]th packet. When nearly every flow reaches the threshold, counting is the loss.
//! The governor then installs flows at their first packet (the **shortcut**), except for one in [`SAMPLE`], which it
//! still counts in order to notice a change.
//!
//! **Auto** counts only while that pays. It follows a few flows at a time, a *cohort*, from their first packet to their
//! last, compares what counting and installing would have cost for them in measured cycles, and installs every flow
//! unless counting is cheaper. See `cohort.rs`.
//!
//! **Generations.** Counters do not age one by one. When the table has counted a quarter as many packets as it has
//! bytes, a new generation of counters begins, and the numbers of flows seen and set up are halved. The previous
//! generation's counts stay readable; the original forgot them, so it took running flows for new ones, and never took
//! the shortcut when flows were hardly longer than the threshold. A generation shorter than a second doubles the table;
//! one longer than five seconds halves it. Each generation samples other flows, so a lasting flow is installed when its
//! generation ends, where the original counted it again and again. In mode auto the largest table stays for a second at
//! least; otherwise flows of a few packets a second would always be forgotten before they are installed.
//!
//! **2012.** The governor as it was before and after the patch can be chosen, too, to be compared with (`literal.rs`).
//!
//! **Errors.** Two flows that share a counter may be installed a little early. No packet is ever misrouted; a flow is
//! only cached sooner or later.
//!
//! **Threads.** One governor per PMD, no locks. Time and hashes are arguments.
//! Source: B. Pfaff, ovs-dev, 25 June 2012, "ofproto-dpif-governor: Improve performance when most flows get set up".
#![forbid(unsafe_code)]

mod cohort;
mod counters;
mod literal;

use cohort::Cohort;
pub use cohort::Costs;
use counters::Counters;
use literal::Literal;
use std::fmt;

/// Packets of a flow before it is installed. Source: as above.
pub const THRESHOLD: u8 = 5;

/// While the shortcut is taken, one flow in this many is still counted. Source: as above (the low six bits of the
/// hash).
pub const SAMPLE: u64 = 64;

/// Flows that must be seen before the shortcut is taken. Source: as above.
const SHORTCUT_MIN_FLOWS: u64 = 64;

/// The shortcut is taken when at most one flow in this many is not set up. Source: as above.
const SHORTCUT_SLACK: u64 = 16;

/// Misses a second from which auto decides. With fewer, both ways are cheap, and every flow is installed at its first
/// packet.
const BUSY_MISSES: u64 = 1000;

/// Table sizes, bytes. Source: as above (16 to 256 KiB).
const SIZE_MIN: usize = 16 << 10;
const SIZE_MAX: usize = 256 << 10;

/// A generation shorter than this doubles the table, in milliseconds.
const SHORT_GENERATION_MS: u64 = 1000;
/// A generation longer than this halves it.
const LONG_GENERATION_MS: u64 = 5000;

/// How the governor decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every flow is installed at its first packet.
    Off,
    /// Every flow is counted first.
    Classic,
    /// Flows are counted first until nearly all of them are installed.
    Shortcut,
    /// Flows are counted first while that costs less than installing all of them at their first packet.
    Auto,
    /// The governor of 2012 as it was: every flow is counted first, and a generation forgets all counts.
    Before2012,
    /// The same after the patch of June 2012: until nearly all flows are installed.
    After2012,
}

/// There is no such mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMode(pub String);

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 6] =
        [Mode::Auto, Mode::Off, Mode::Classic, Mode::Shortcut, Mode::Before2012, Mode::After2012];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Off => "off",
            Mode::Classic => "classic",
            Mode::Shortcut => "shortcut",
            Mode::Before2012 => "2012-before",
            Mode::After2012 => "2012-after",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| UnknownMode(name.to_owned()))
    }
}

/// What to do with a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Install it: its count has reached the threshold, or the governor is off.
    Install,
    /// Install it at its first packet: nearly all flows reach the threshold, or counting costs more.
    Shortcut,
    /// Forward this packet without installing the flow.
    Count,
}

impl Decision {
    /// Whether the flow is to be installed.
    pub fn installs(self) -> bool {
        self != Decision::Count
    }
}

/// What the governor has decided since it was made. Flows that share a counter count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Flows whose first packet was counted.
    pub flows: u64,
    /// Flows installed because their count reached the threshold.
    pub setups: u64,
    /// Flows installed at their first packet.
    pub shortcuts: u64,
    /// Packets forwarded without installing their flow.
    pub counted: u64,
    /// Generations begun.
    pub generations: u64,
    /// The table's current size, bytes.
    pub table_bytes: usize,
}

/// Decides for one PMD which missed flows are installed.
#[derive(Debug)]
pub struct Governor {
    mode: Mode,
    counters: Counters,
    /// When this generation began.
    since_ms: u64,
    /// Packets counted in this generation.
    packets: u64,
    /// Flows seen and set up recently; halved with each generation.
    recent_flows: u64,
    recent_setups: u64,
    /// Misses since `second_ms`, when the current second began; whether the previous second had [`BUSY_MISSES`].
    misses: u64,
    second_ms: u64,
    was_busy: bool,
    cohort: Cohort,
    /// The governor of 2012, while its mode is chosen.
    literal: Option<Box<Literal>>,
    /// What the log says of the last generation; taken by [`Governor::take_generation`].
    generation: Option<Generation>,
    /// The numbers of flows, setups and shortcuts when this generation began.
    before: [u64; 3],
    stats: Stats,
}

/// A generation that has ended. Its text is what the governor of 2012 logged, with the number of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number, from 1.
    pub number: u64,
    /// Packets that it processed.
    pub packets: u64,
    /// How long it lasted, milliseconds.
    pub lasted_ms: u64,
    /// Bytes of its table, and of the next one's.
    pub bytes: [usize; 2],
    /// Flows counted, hashes that the table told apart.
    pub flows: u64,
    /// Flows installed because their count reached the threshold.
    pub setups: u64,
    /// Flows installed at their first packet.
    pub shortcuts: u64,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Generation { number, packets, lasted_ms, bytes: [before, after], flows, setups, shortcuts } = *self;
        write!(f, "processed {packets} packets in {:.2} s", lasted_ms as f64 / 1000.0)?;
        match after.cmp(&before) {
            std::cmp::Ordering::Greater => write!(f, ", enlarging hash table to {} kB", after >> 10)?,
            std::cmp::Ordering::Less => write!(f, ", shrinking hash table to {} kB", after >> 10)?,
            std::cmp::Ordering::Equal => write!(f, " with {} kB hash table", after >> 10)?,
        }
        write!(f, " ({flows} hashes, {setups} setups, {shortcuts} shortcuts), generation {number}")
    }
}

impl Governor {
    /// A governor that has seen nothing. `idle_ms` is the idle timeout of megaflows.
    pub fn new(mode: Mode, now_ms: u64, idle_ms: u64) -> Self {
        let mut governor = Governor {
            mode: Mode::Off,
            counters: Counters::new(SIZE_MIN),
            since_ms: now_ms,
            packets: 0,
            recent_flows: 0,
            recent_setups: 0,
            misses: 0,
            second_ms: now_ms,
            was_busy: false,
            cohort: Cohort::new(idle_ms),
            literal: None,
            generation: None,
            before: [0; 3],
            stats: Stats::default(),
        };
        governor.set_mode(mode);
        governor
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Changes the mode. Counts stay, but for those of the governor of 2012.
    pub fn set_mode(&mut self, mode: Mode) {
        if mode != self.mode {
            let patched = match mode {
                Mode::Before2012 => Some(false),
                Mode::After2012 => Some(true),
                Mode::Off | Mode::Classic | Mode::Shortcut | Mode::Auto => None,
            };
            self.literal = patched.map(|patched| Box::new(Literal::new(patched, self.since_ms)));
        }
        self.mode = mode;
    }

    /// The generation that ended last, once.
    pub fn take_generation(&mut self) -> Option<Generation> {
        self.generation.take()
    }

    /// What it has decided so far.
    pub fn stats(&self) -> Stats {
        let table_bytes = self.literal.as_ref().map_or(self.counters.size(), |literal| literal.size());
        Stats { table_bytes, ..self.stats }
    }

    /// Whether nearly all recent flows were installed, so that counting them is a waste.
    pub fn most_flows_get_set_up(&self) -> bool {
        self.recent_flows >= SHORTCUT_MIN_FLOWS
            && self.recent_setups >= self.recent_flows - self.recent_flows / SHORTCUT_SLACK
    }

    /// Decides about a flow that has just missed. `packets` is called if the flow is counted, and returns how many
    /// packets of it missed together, at least one.
    ///
    /// `hash` returns the hash of the flow's masked key, which all its packets share; all 64 bits must be well distributed. It is
    /// not called while no flow is looked at, as in most of the time of mode auto: the hash, and the counters that it leads to, cost 180
    /// cycles a flow, 3 % (2026-11-30).
    pub fn decide(&mut self, hash: impl FnOnce() -> u64, packets: impl Fn() -> usize, now_ms: u64) -> Decision {
        if self.mode == Mode::Off {
            self.stats.setups += 1;
            return Decision::Install;
        }
        if self.literal.is_some() {
            return self.decide_literally(hash(), packets(), now_ms);
        }
        if self.packets >= self.counters.size() as u64 / 4 && self.may_end_generation(now_ms) {
            self.begin_generation(now_ms);
        }
        let is_auto = self.mode == Mode::Auto;
        if is_auto && !self.is_busy(now_ms) {
            self.cohort.abandon();
            return self.shortcut(1);
        }
        if is_auto && self.cohort.rests() {
            return self.shortcut(1);
        }
        let hash = hash();
        let is_sampled = is_sampled(hash, if is_auto { 0 } else { self.stats.generations });
        if !is_sampled && !self.counts_all() {
            if !is_auto {
                self.forget_count(hash);
            }
            return self.shortcut(1);
        }
        if is_auto && is_sampled {
            if let Some(followed) = self.cohort.follow(hash, &packets, now_ms) {
                return self.decided(followed.is_new, followed.is_set_up, followed.packets);
            }
            if !self.counts_all() {
                return self.shortcut(1);
            }
        }
        let packets = packets();
        let before = self.counters.get(hash);
        let count = usize::from(before).saturating_add(packets);
        let is_set_up = count >= usize::from(THRESHOLD);
        self.counters.set(hash, if is_set_up { 0 } else { count as u8 });
        self.decided(before == 0, is_set_up, packets)
    }

    /// Decides as the governor of 2012 did.
    #[cold]
    fn decide_literally(&mut self, hash: u64, packets: usize, now_ms: u64) -> Decision {
        let Some(literal) = &mut self.literal else { return Decision::Install };
        let before = literal.size();
        let judged = literal.decide(hash as u32, packets, now_ms);
        let after = literal.size();
        if let Some(ended) = judged.ended {
            self.stats.generations += 1;
            self.generation = Some(Generation {
                number: self.stats.generations,
                packets: ended.packets,
                lasted_ms: ended.lasted_ms,
                bytes: [before, after],
                flows: ended.flows,
                setups: ended.setups,
                shortcuts: ended.shortcuts,
            });
        }
        self.stats.flows += u64::from(judged.is_new);
        match judged.decision {
            Decision::Install => self.stats.setups += 1,
            Decision::Shortcut => self.stats.shortcuts += 1,
            Decision::Count => self.stats.counted += packets as u64,
        }
        judged.decision
    }

    /// Forgets the count of a flow that is installed early: whether it would have reached the threshold stays unknown.
    /// Auto does not use that number, so it saves the two cache misses.
    fn forget_count(&mut self, hash: u64) {
        if self.counters.get(hash) != 0 {
            self.counters.set(hash, 0);
            self.recent_flows = self.recent_flows.saturating_sub(1);
        }
    }

    /// Installs a flow that is not counted.
    fn shortcut(&mut self, packets: usize) -> Decision {
        self.packets += packets as u64;
        self.stats.shortcuts += 1;
        Decision::Shortcut
    }

    /// Records the decision about a counted flow.
    fn decided(&mut self, is_new: bool, is_set_up: bool, packets: usize) -> Decision {
        self.packets += packets as u64;
        self.recent_flows += u64::from(is_new);
        self.stats.flows += u64::from(is_new);
        if is_set_up {
            self.recent_setups += 1;
            self.stats.setups += 1;
            Decision::Install
        } else {
            self.stats.counted += packets as u64;
            Decision::Count
        }
    }

    /// Records what a miss has cost. A part that did not occur is 0.
    pub fn spent(&mut self, costs: Costs) {
        self.cohort.spent(costs);
    }

    /// Whether every flow is counted now, not only the sample.
    pub fn counts_all(&self) -> bool {
        match self.mode {
            Mode::Off => false,
            Mode::Classic | Mode::Before2012 | Mode::After2012 => true,
            Mode::Shortcut => !self.most_flows_get_set_up(),
            Mode::Auto => self.cohort.pays(),
        }
    }

    /// Counts a miss; whether there are enough misses a second for the decision to matter.
    fn is_busy(&mut self, now_ms: u64) -> bool {
        if now_ms.saturating_sub(self.second_ms) >= 1000 {
            self.was_busy = self.misses >= BUSY_MISSES && now_ms - self.second_ms < 2000;
            (self.second_ms, self.misses) = (now_ms, 0);
        }
        self.misses += 1;
        self.was_busy || self.misses >= BUSY_MISSES
    }

    /// Whether a generation that has counted enough packets may end.
    fn may_end_generation(&self, now_ms: u64) -> bool {
        self.mode != Mode::Auto
            || self.counters.size() < SIZE_MAX
            || now_ms.saturating_sub(self.since_ms) >= SHORT_GENERATION_MS
    }

    fn begin_generation(&mut self, now_ms: u64) {
        let lasted = now_ms.saturating_sub(self.since_ms);
        let size = self.counters.size();
        let size = match lasted {
            ..SHORT_GENERATION_MS => (size * 2).min(SIZE_MAX),
            _ if lasted > LONG_GENERATION_MS => (size / 2).max(SIZE_MIN),
            _ => size,
        };
        let Stats { flows, setups, shortcuts, .. } = self.stats;
        let [flows_before, setups_before, shortcuts_before] = self.before;
        self.generation = Some(Generation {
            number: self.stats.generations + 1,
            packets: self.packets,
            lasted_ms: lasted,
            bytes: [self.counters.size(), size],
            flows: flows - flows_before,
            setups: setups - setups_before,
            shortcuts: shortcuts - shortcuts_before,
        });
        self.before = [flows, setups, shortcuts];
        self.counters.begin_generation(size);
        self.since_ms = now_ms;
        self.packets = 0;
        self.recent_flows /= 2;
        self.recent_setups /= 2;
        self.stats.generations += 1;
    }
}

/// Whether a flow belongs to the sample of that generation. Uses high bits of the hash: low bits select the counter.
fn is_sampled(hash: u64, generation: u64) -> bool {
    (hash >> 40 ^ generation).is_multiple_of(SAMPLE)
}

#[cfg(test)]
mod tests;
