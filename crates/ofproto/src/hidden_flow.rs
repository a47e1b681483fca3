//! Flows that OpenFlow neither shows nor changes: those by which in-band control keeps controllers reachable, and the one
//! by which a standalone bridge forwards without its controllers. Their priorities are above all that OpenFlow can say.

use crate::bridge::{Bridge, SwitchState};
use crate::bridges::position;
use crate::depends::Changes;
use crate::error::Error;
use crate::flow_mod::{PendingTransaction, TableChange, WideChange};
use crate::ofproto::Ofproto;
use crate::rule_select::rules_of;
use crate::rules::RuleEntry;
use crate::transaction::STAYS;
use sluice_classifier::LATEST;
use sluice_flow::Match;
use sluice_ofp::{FlowCommand, FlowMod, FlowRemovedReason, OfAction};
use std::sync::Arc;

/// The table of hidden flows.
const TABLE: u8 = 0;

/// A hidden flow.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenFlow {
    /// What it matches.
    pub matches: Match,
    /// Its priority, above `u16::MAX`.
    pub priority: u32,
    /// What it does.
    pub actions: Vec<OfAction>,
}

/// A change of one.
#[derive(Clone, Copy)]
enum HiddenChange<'a> {
    Add(&'a HiddenFlow),
    Delete(&'a HiddenFlow),
}

impl TableChange for HiddenChange<'_> {
    fn selects(&self) -> Option<WideChange<'_>> {
        None
    }
}

/// Hidden flows.
impl Ofproto {
    /// Deletes and adds hidden flows of a bridge; the tables change at once.
    ///
    /// # Errors
    /// If there is no such bridge, or a flow's actions cannot be: nothing has changed then.
    pub fn change_hidden_flows(
        &self,
        bridge: &str,
        delete: &[HiddenFlow],
        add: &[HiddenFlow],
        now_ms: u64,
    ) -> Result<(), Error> {
        let changes = delete.iter().map(HiddenChange::Delete).chain(add.iter().map(HiddenChange::Add));
        let apply = |pending: &mut PendingTransaction, state: &mut SwitchState, id, change: &HiddenChange<'_>| {
            let bridge = state.bridge_mut(id).expect(STAYS);
            match change {
                HiddenChange::Add(flow) => pending.add_hidden_flow(bridge, flow),
                HiddenChange::Delete(flow) => {
                    pending.delete_hidden_flow(bridge, flow);
                    Ok(())
                }
            }
        };
        self.transact(bridge, changes, None, now_ms, apply).map_err(|(_, error)| error)?;
        self.change(&mut self.writer(), |state| {
            let at = position(state, bridge)?;
            let flows = &mut state.bridges[at].hidden_flows;
            flows.retain(|flow| !delete.contains(flow));
            flows.extend_from_slice(add);
            Ok(())
        })
    }

    /// The hidden flows of a bridge as rules.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn hidden_rules(&self, bridge: &str) -> Result<Vec<RuleEntry>, Error> {
        let state = self.state();
        let bridge = &state.bridges[position(&state, bridge)?];
        let rule = |flow: &HiddenFlow| {
            let found = rules_of(bridge, TABLE)?.find_exact(&flow.matches, flow.priority, LATEST)?;
            Some(RuleEntry { matches: flow.matches.clone(), rule: Arc::clone(found.payload()) })
        };
        Ok(bridge.hidden_flows.iter().filter_map(rule).collect())
    }

    /// Sets whether a bridge has controllers in its own network: then DHCP replies reach its LOCAL port in any case.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn set_in_band(&self, bridge: &str, has_in_band: bool) -> Result<(), Error> {
        let changes = self.change(&mut self.writer(), |state| {
            let at = position(state, bridge)?;
            let bridge = &mut state.bridges[at];
            let had = std::mem::replace(&mut bridge.has_in_band, has_in_band);
            Ok(if had == has_in_band { Changes::default() } else { Changes::of_bridge(bridge.id) })
        })?;
        self.announce(&changes);
        Ok(())
    }
}

impl PendingTransaction {
    fn add_hidden_flow(&mut self, bridge: &mut Bridge, flow: &HiddenFlow) -> Result<(), Error> {
        let mut fm = FlowMod::new(FlowCommand::Add);
        (fm.table, fm.matches, fm.new_cookie) = (Some(TABLE), flow.matches.clone(), Some(0));
        fm.actions.clone_from(&flow.actions);
        self.add_at(bridge, &fm, flow.priority)
    }

    fn delete_hidden_flow(&mut self, bridge: &mut Bridge, flow: &HiddenFlow) {
        let rules = rules_of(bridge, TABLE);
        let found = rules.and_then(|rules| rules.find_exact(&flow.matches, flow.priority, LATEST));
        if let Some(id) = found.map(|rule| rule.id()) {
            self.hide(bridge, TABLE, id, Some(FlowRemovedReason::Delete));
        }
    }
}
