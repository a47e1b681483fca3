//! Freezing a translation, and resuming it when the packet recirculates.
//!
//! A freeze sets `freezing` and `exit`. Every action list in progress then adds its remaining actions to `frozen`, the
//! innermost first, and ends. The code that started the pipeline finishes the freeze.

use super::{ActionList, Failure, Translator};
use crate::features::Feature;
use crate::recirc::{Frozen, FrozenActions, LockedIds, Recirculation, Restore};
use crate::trace::TraceKind;
use crate::tunnel::Tunnel;
use crate::xlate_cache::XcEntry;
use sluice_action::{Action, HashAlgorithm};
use sluice_flow::text::number::show_hex;
use sluice_flow::{FieldId, OfPort, layout};
use sluice_ofp::OfAction;
use sluice_sync::try_in_passing;
use std::sync::Arc;

/// What a freeze takes out of the budget of work: its state is a kilobyte, and is looked for among all others.
const FREEZE_STEPS: usize = 8;

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

    /// Commits, then recirculates the packet, or sends it to a controller if it is paused.
    pub(super) fn finish_freezing(&mut self) {
        self.commit();
        let (actions, action_set) = (std::mem::take(&mut self.frozen), std::mem::take(&mut self.action_set));
        self.look_at_options();
        let mut frozen = self.state_to_freeze(0, actions, action_set);
        let (hash, pause) = (self.hash, self.pause.take());
        self.cancel_freeze();
        if let Some(pause) = pause {
            frozen.userdata.clone_from(&pause.userdata);
            let Some(recirculation) = self.freeze(frozen) else { return };
            // As in OVS, a trace without a packet leaves this out.
            if self.side_effects || self.tracer.is_none() {
                self.send_paused(&pause, recirculation.id);
            }
        } else if let Some(recirculation) = self.freeze(frozen) {
            if let Some((algorithm, basis)) = hash {
                let most = self.state.features.number(Feature::MaxHashAlg);
                let algorithm = if most == 0 { HashAlgorithm::L4 } else { algorithm };
                self.emit(Action::Hash { algorithm, basis });
            }
            self.emit(Action::Recirc(recirculation.id));
        }
    }

    /// The ids, unless they are locked and this thread may not wait: then the translation is void.
    fn recirculations(&self) -> Option<LockedIds<'_>> {
        let ids = &self.shared.recirculations;
        let locked = if self.may_wait { Some(ids.lock()) } else { try_in_passing(|| ids.try_lock()) };
        self.is_busy.set(self.is_busy.get() || locked.is_none());
        locked
    }

    /// The state of an id.
    pub(super) fn recirculation(&self, id: u32) -> Option<Arc<Recirculation>> {
        self.recirculations()?.thaw(id, self.now_ms)
    }

    /// The id of a state. If there are too many, none, and the translation fails.
    pub(super) fn freeze(&mut self, frozen: Frozen) -> Option<Arc<Recirculation>> {
        if !self.charge(FREEZE_STEPS) {
            return None;
        }
        let mut ids = self.recirculations()?;
        let frozen = ids.freeze(frozen, self.ingress, self.now_ms);
        drop(ids);
        let Some(recirculation) = frozen else {
            self.error(|| "Failed to allocate recirculation id".to_owned());
            self.fail(Failure::NoRecircIds);
            return None;
        };
        self.xcache.push(XcEntry::Recirculation(Arc::clone(&recirculation)));
        Some(recirculation)
    }

    /// The state that a resumed translation needs. Who resumes it has looked at the options that it keeps.
    pub(super) fn state_to_freeze(&self, table: u8, actions: FrozenActions, action_set: Vec<OfAction>) -> Frozen {
        Frozen {
            bridge: self.bridge.id,
            table,
            in_port: self.in_port(),
            tunnel: Tunnel::of(self.flow),
            registers: self.flow.lines[layout::REGS.line()],
            metadata: self.number(layout::METADATA),
            queue: self.number(layout::SKB_PRIORITY) as u32,
            stack: self.stack.clone(),
            was_mpls: self.was_mpls,
            conntracked: self.conntracked,
            mirrors: self.mirrors,
            actions,
            action_set,
            userdata: Vec::new(),
            bond: None,
        }
    }

    /// Restores a frozen state; false if its bridge is gone.
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
        frozen.put_metadata(self.flow);
        self.thaw_queue(frozen.queue);
        self.stack.clone_from(&frozen.stack);
        self.mirrors = frozen.mirrors;
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

    /// The packet is still in the queue that the pass before put it into.
    fn thaw_queue(&mut self, queue: u32) {
        if queue != 0 {
            for key in [&mut self.flow, &mut self.base, &mut self.original] {
                key.set_number(layout::SKB_PRIORITY, queue.into());
            }
        }
    }

    /// Adds the remaining actions of a list to the frozen ones.
    pub(super) fn freeze_rest(&mut self, rest: ActionList<'_>) {
        if !self.charge(rest.actions.len()) {
            return;
        }
        let mut here = Restore { table: self.table, cookie: self.cookie };
        for (i, action) in rest.actions.iter().enumerate() {
            if let Some(restore) = rest.restore(i) {
                here = restore;
                self.put_restore(restore);
            }
            let action = match action {
                OfAction::Note(_) | OfAction::Conjunction { .. } => continue,
                // Instructions become equivalent actions.
                OfAction::GotoTable(table) => {
                    OfAction::Resubmit { port: OfPort::IN_PORT, table: Some(*table), with_ct_orig: false }
                }
                OfAction::WriteMetadata { metadata, mask } => {
                    OfAction::SetField { field: FieldId::Metadata, value: (*metadata).into(), mask: (*mask).into() }
                }
                // These need the current table and cookie: they send them to controllers, or search that table.
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
            format!("restored state: table={}, cookie={}", restore.table, show_hex(restore.cookie.into()))
        });
    }
}

/// The text of actions.
pub(super) fn list(actions: &[OfAction]) -> String {
    if actions.is_empty() {
        return "drop".to_owned();
    }
    actions.iter().map(OfAction::to_string).collect::<Vec<_>>().join(",")
}

/// The text of frozen actions as OVS prints it, with the restored tables and cookies.
fn frozen_list(frozen: &FrozenActions) -> String {
    let restore = |i| frozen.restores.iter().find(move |(at, _)| *at == i);
    let texts = frozen.actions.iter().enumerate().flat_map(|(i, action)| {
        let restore = restore(i).map(|(_, r)| format!("unroll_xlate(table={}, cookie={})", r.table, r.cookie));
        restore.into_iter().chain([action.to_string()])
    });
    texts.collect::<Vec<_>>().join(",")
}
