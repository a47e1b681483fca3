//! Stopping in the middle, and going on when the packet comes round again.
//!
//! To stop is to set `freezing` and `exit`. Every list of actions that is being taken then adds what it has left to
//! `frozen`, innermost first, on the way out; whoever began the pipeline finishes the freeze.

use super::fields::hex;
use super::{ActionList, Failure, Translator};
use crate::recirc::{Frozen, FrozenActions, Recirculation, Restore};
use crate::trace::TraceKind;
use crate::tunnel::Tunnel;
use crate::xlate_cache::XcEntry;
use sluice_action::Action;
use sluice_flow::{FieldId, OfPort, layout};
use sluice_ofp::OfAction;
use std::sync::Arc;

impl Translator<'_> {
    pub(super) fn trigger_freeze(&mut self) {
        self.exit = true;
        self.freezing = true;
    }

    fn cancel_freeze(&mut self) {
        self.freezing = false;
        self.frozen = FrozenActions::default();
        self.hash = None;
        self.pause = None;
    }

    /// Brings the packet up to date, then sends it round, or to a controller if it pauses.
    pub(super) fn finish_freezing(&mut self) {
        self.commit();
        let (actions, action_set) = (std::mem::take(&mut self.frozen), std::mem::take(&mut self.action_set));
        let mut frozen = self.state_to_freeze(0, actions, action_set);
        let (hash, pause) = (self.hash, self.pause.take());
        self.cancel_freeze();
        if let Some(pause) = pause {
            frozen.userdata.clone_from(&pause.userdata);
            let Some(recirculation) = self.freeze(frozen) else { return };
            // As in OVS, a trace without a packet says nothing of it.
            if self.side_effects || self.tracer.is_none() {
                self.tell_controller(&pause, recirculation.id);
            }
        } else if let Some(recirculation) = self.freeze(frozen) {
            if let Some((algorithm, basis)) = hash {
                self.emit(Action::Hash { algorithm, basis });
            }
            self.emit(Action::Recirc(recirculation.id));
        }
    }

    /// An id for a state; none, and the translation fails, if there are too many.
    pub(super) fn freeze(&mut self, frozen: Frozen) -> Option<Arc<Recirculation>> {
        let Some(recirculation) = self.shared.recirculations.freeze(frozen, self.now_ms) else {
            self.error(|| "Failed to allocate recirculation id".to_owned());
            self.fail(Failure::NoRecirculation);
            return None;
        };
        self.xcache.push(XcEntry::Recirculation(Arc::clone(&recirculation)));
        Some(recirculation)
    }

    /// What a second translation must know.
    pub(super) fn state_to_freeze(&self, table: u8, actions: FrozenActions, action_set: Vec<OfAction>) -> Frozen {
        Frozen {
            bridge: self.bridge.id,
            table,
            in_port: self.in_port(),
            tunnel: Tunnel::of(&self.flow),
            registers: self.flow.lines[layout::REGS.line()],
            metadata: self.number(layout::METADATA),
            stack: self.stack.clone(),
            was_mpls: self.was_mpls,
            conntracked: self.conntracked,
            actions,
            action_set,
            userdata: Vec::new(),
        }
    }

    /// Takes up a frozen state; false if it cannot be.
    pub(super) fn thaw(&mut self, frozen: &Frozen) -> bool {
        let section = self.open(TraceKind::Thaw, || "thaw".to_owned());
        let Some(bridge) = self.state.bridge(frozen.bridge) else {
            self.error(|| "Frozen bridge no longer exists.".to_owned());
            self.close(section);
            self.fail(Failure::BridgeNotFound);
            return false;
        };
        self.bridge = bridge;
        self.table = frozen.table;
        self.say(TraceKind::Thaw, || format!("Resuming from table {}", frozen.table));
        self.thaw_connection(frozen.conntracked);
        frozen.put_metadata(&mut self.flow);
        self.stack.clone_from(&frozen.stack);
        if !frozen.action_set.is_empty() {
            self.say(TraceKind::Thaw, || format!("Restoring action set: {}", list(&frozen.action_set)));
            self.flow.set_number(layout::ACTSET_OUTPUT, OfPort::UNSET.0.into());
            self.write_actions_silently(&frozen.action_set);
        }
        if !frozen.actions.actions.is_empty() {
            self.say(TraceKind::Thaw, || format!("Restoring actions: {}", frozen_list(&frozen.actions)));
        }
        self.close(section);
        true
    }

    /// Adds what is left of a list to what is frozen.
    pub(super) fn freeze_rest(&mut self, steps: ActionList<'_>) {
        let mut here = Restore { table: self.table, cookie: self.cookie };
        for (i, action) in steps.actions.iter().enumerate() {
            if let Some(restore) = steps.restore(i) {
                here = restore;
                self.put_restore(restore);
            }
            let action = match action {
                OfAction::Note(_) | OfAction::Conjunction { .. } => continue,
                // Instructions become the actions that do the same.
                OfAction::GotoTable(table) => {
                    OfAction::Resubmit { port: OfPort::IN_PORT, table: Some(*table), with_ct_orig: false }
                }
                OfAction::WriteMetadata { metadata, mask } => {
                    OfAction::SetField { field: FieldId::Metadata, value: (*metadata).into(), mask: (*mask).into() }
                }
                // These send messages that say where they come from, or search the table they are in.
                OfAction::OutputReg { .. }
                | OfAction::OutputTrunc { .. }
                | OfAction::Group(_)
                | OfAction::Output { .. }
                | OfAction::Controller(_)
                | OfAction::DecMplsTtl
                | OfAction::DecTtl { .. }
                | OfAction::Resubmit { table: None | Some(255), .. } => {
                    self.put_restore(here);
                    action.clone()
                }
                _ => action.clone(),
            };
            self.frozen.actions.push(action);
        }
    }

    fn put_restore(&mut self, restore: Restore) {
        if self.frozen.restores.last().is_none_or(|(_, last)| *last != restore) {
            let at = self.frozen.actions.len();
            self.frozen.restores.retain(|(i, _)| *i != at);
            self.frozen.restores.push((at, restore));
        }
    }

    pub(super) fn restore(&mut self, restore: Restore) {
        self.table = restore.table;
        self.cookie = restore.cookie;
        self.say(TraceKind::Thaw, || {
            format!("restored state: table={}, cookie={}", restore.table, hex(restore.cookie.into()))
        });
    }
}

/// Actions as one text.
pub(super) fn list(actions: &[OfAction]) -> String {
    if actions.is_empty() {
        return "drop".to_owned();
    }
    actions.iter().map(OfAction::to_string).collect::<Vec<_>>().join(",")
}

/// Frozen actions as OVS prints them, with the restores among them.
fn frozen_list(frozen: &FrozenActions) -> String {
    let restore = |i| frozen.restores.iter().find(move |(at, _)| *at == i);
    let texts = frozen.actions.iter().enumerate().flat_map(|(i, action)| {
        let restore = restore(i).map(|(_, r)| format!("unroll_xlate(table={}, cookie={})", r.table, r.cookie));
        restore.into_iter().chain([action.to_string()])
    });
    texts.collect::<Vec<_>>().join(",")
}
