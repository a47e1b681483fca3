//! The memory of rules and groups, over all bridges.
//!
//! A rule and a group hold a charge for what they take, from when they are made until the last megaflow has forgotten
//! them. Their owners share the memory: the operator, each controller, other peers on the network, and each port whose
//! packets teach rules, of each bridge. So one that fills the memory leaves some for each other. The rules of a
//! modification share their actions, and the charge for them. An eighth is the operators' alone, who mend what others
//! have filled.

use crate::bridge::Rules;
use crate::bridge_config::BridgeId;
use crate::cookie_counts::COOKIE_BYTES;
use crate::rule::{Rule, RuleCounts};
use crate::rule_users::USE_BYTES;
use parking_lot::Mutex;
use sluice_fate::{Limit, MemoryCharge, MemoryShare, SharedMemory};
use sluice_flow::{Match, OfPort};
use sluice_ofp::OfAction;
use std::collections::HashMap;
use std::sync::Arc;

/// The memory of rules and groups, by default: more than a million rules of a few fields and actions, of one owner.
pub const RULE_MEMORY: usize = 2 << 30;

/// What an allocation takes beside its content.
const ALLOCATION: usize = 32;

/// A rule's entries in the orders of expiry and of eviction: nodes of trees, half full.
const ORDER_BYTES: usize = 160;

/// Who makes rules and groups. Each owner has a share of their memory, in each bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RuleOwner {
    /// The configuration, commands, and clients of the management socket.
    #[default]
    Operator,
    /// A controller that the bridge connects to, by a number of its own.
    Controller(u64),
    /// All clients of other listeners: a peer may have many connections and addresses, and leave rules with each.
    Peers,
    /// Packets that teach rules, by the port of the bridge by which they came.
    Packets(OfPort),
}

/// The memory of rules and groups.
#[derive(Debug)]
pub struct RuleMemory {
    all: Arc<SharedMemory>,
    /// That of all owners but the operators.
    others: Arc<SharedMemory>,
    /// What tables take for all rules together.
    tables: Arc<MemoryShare>,
    shares: Mutex<HashMap<(BridgeId, RuleOwner), Arc<MemoryShare>>>,
}

fn part_of_others(limit: usize) -> usize {
    limit - limit / 8
}

impl Default for RuleMemory {
    fn default() -> Self {
        let all = Arc::new(SharedMemory::new(Limit::RuleMemory, RULE_MEMORY));
        let others = Arc::new(SharedMemory::part_of(&all, part_of_others(RULE_MEMORY)));
        let tables = Arc::new(MemoryShare::new(Arc::clone(&others)));
        RuleMemory { all, others, tables, shares: Mutex::default() }
    }
}

impl RuleMemory {
    /// Changes the bound, bytes. Rules and groups that are there stay.
    pub fn set_limit(&self, limit: usize) {
        self.all.set_limit(limit);
        self.others.set_limit(part_of_others(limit));
    }

    /// Bytes in use, and the bound.
    pub fn usage(&self) -> (usize, usize) {
        self.all.usage()
    }

    /// The share of what no owner has alone.
    pub(crate) fn tables(&self) -> &Arc<MemoryShare> {
        &self.tables
    }

    /// The share of an owner.
    pub(crate) fn share(&self, bridge: BridgeId, owner: RuleOwner) -> Arc<MemoryShare> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(&(bridge, owner)) {
            return Arc::clone(share);
        }
        // Owners come and go; those that have nothing are forgotten.
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        let memory = if owner == RuleOwner::Operator { &self.all } else { &self.others };
        let share = Arc::new(MemoryShare::new(Arc::clone(memory)));
        shares.insert((bridge, owner), Arc::clone(&share));
        share
    }
}

/// What a rule takes.
#[derive(Debug, Default)]
pub(crate) struct RuleCharge {
    /// Without its actions.
    own: Option<MemoryCharge>,
    /// Its actions, which rules may share.
    actions: Option<Arc<MemoryCharge>>,
}

impl RuleCharge {
    /// A charge for a rule with a match among `rules`, and with actions that are charged already. The rule may replace
    /// another one; `freed` is what that one gives back. `None` if the owner may not have it.
    pub fn take(share: &Arc<MemoryShare>, own: usize, actions: &Arc<MemoryCharge>, freed: usize) -> Option<Self> {
        let own = Some(MemoryCharge::take(share, own, freed)?);
        Some(RuleCharge { own, actions: Some(Arc::clone(actions)) })
    }

    /// What it gives back when the rule goes.
    pub fn bytes(&self) -> usize {
        self.own.as_ref().map_or(0, MemoryCharge::bytes) + self.actions_bytes()
    }

    /// What the rule's actions give back when it goes: nothing if other rules have them, too.
    pub fn actions_bytes(&self) -> usize {
        self.actions.as_ref().filter(|actions| Arc::strong_count(actions) == 1).map_or(0, |actions| actions.bytes())
    }
}

/// What a rule takes without its actions.
pub(crate) fn rule_bytes(rules: &Rules, matches: &Match) -> usize {
    let own = size_of::<Rule>() + size_of::<RuleCounts>() + size_of::<MemoryCharge>() + 3 * ALLOCATION;
    own + ORDER_BYTES + COOKIE_BYTES + rules.rule_bytes(matches)
}

/// What actions take that some rules share. Conjunctions are copied for each rule.
pub(crate) fn actions_bytes(actions: &[OfAction], rules: usize) -> usize {
    let conjunctions = actions.iter().filter(|action| matches!(action, OfAction::Conjunction { .. })).count();
    let is_use = |action: &&OfAction| matches!(action, OfAction::Group(_) | OfAction::Meter(_));
    let uses = OfAction::flattened(actions).filter(is_use).count();
    OfAction::bytes_of(actions) + rules * (Rules::conjunctions_bytes(conjunctions) + uses * USE_BYTES)
}

/// What the subtables of a table take. It is no owner's: rules of many use them.
#[derive(Debug)]
pub(crate) struct SubtableCharge {
    share: Arc<MemoryShare>,
    charge: Option<MemoryCharge>,
}

impl SubtableCharge {
    pub fn new(share: &Arc<MemoryShare>) -> Self {
        SubtableCharge { share: Arc::clone(share), charge: None }
    }

    /// Charges what the subtables take now. They are there already, so nothing is refused.
    pub fn set(&mut self, bytes: usize) {
        if self.charge.as_ref().map_or(0, MemoryCharge::bytes) != bytes {
            self.charge = MemoryCharge::take(&self.share, bytes, bytes);
        }
    }
}
