//! Nested actions: `clone`, the action set, the two branches of `check_pkt_larger`.

use super::{ActionList, Translator, freeze};
use crate::features::Feature;
use crate::recirc::StackValue;
use crate::trace::TraceKind;
use sluice_action::Action;
use sluice_flow::{FlowKey, OfPort, SubField, layout};
use sluice_ofp::OfAction;
use std::sync::Arc;

/// Samples that must be able to nest for a clone to be made of one. Source: OVS ofproto-dpif-xlate.c, `compose_clone`.
const SAMPLE_NESTING: u64 = 3;

/// What is known of the datapath's packet.
#[derive(Clone)]
struct DatapathState {
    base: FlowKey,
    was_mpls: bool,
    conntracked: bool,
}

/// What nested actions may change; see [`Translator::save`].
struct SavedContext {
    flow: FlowKey,
    datapath: DatapathState,
    stack: Vec<StackValue>,
    action_set: Vec<OfAction>,
}

impl Translator<'_> {
    /// Runs actions on a copy of the packet.
    ///
    /// The datapath needs no copy if setting fields back can undo the actions, or if nothing comes after them.
    pub(super) fn cloned(&mut self, actions: &[OfAction], last: bool) {
        if !self.charge(self.action_set.len() + self.stack.len()) {
            return;
        }
        let mut before = self.save();
        if last || actions.iter().all(can_be_undone) {
            self.actions(ActionList::of(actions), last);
            self.end_of_pipeline();
        } else {
            self.commit();
            before.datapath = self.datapath();
            self.clone_in_datapath(actions);
            self.restore_datapath(&before);
        }
        self.restore_context(&before);
    }

    /// Emits actions on a copy that the datapath makes: by `clone`, or by a `sample` of all packets.
    fn clone_in_datapath(&mut self, actions: &[OfAction]) {
        if !self.can(Feature::Clone) && self.state.features.number(Feature::SampleNesting) <= SAMPLE_NESTING {
            return self.error(|| "Failed to compose clone action".to_owned());
        }
        let actions = self.nested(|t| {
            t.actions(ActionList::of(actions), true);
            t.end_of_pipeline();
        });
        if !actions.is_empty() {
            self.out_bytes += 4;
            let by_clone = self.can(Feature::Clone);
            self.out.push(match by_clone {
                true => Action::Clone(actions),
                false => Action::Sample { probability: u32::MAX, actions },
            });
        }
    }

    /// `check_pkt_larger` without the datapath's help: by the packet that is translated.
    pub(super) fn check_packet_length_here(&mut self, dst: SubField, len: u16) {
        let is_larger = self.packet_len.is_some_and(|packet_len| packet_len > usize::from(len));
        dst.set(self.flow, is_larger.into());
        self.take_slow_path();
    }

    /// `check_pkt_larger`: runs the rest of the list twice, with the bit set and with the bit clear.
    ///
    /// It counts as a resubmit, because the number of branches is exponential in the number of these actions.
    pub(super) fn check_packet_length(&mut self, dst: SubField, len: u16, rest: ActionList<'_>) {
        if !self.may_resubmit() {
            return;
        }
        if !self.charge(self.action_set.len() + self.stack.len()) {
            return;
        }
        self.resubmits += 1;
        let mut before = self.save();
        self.commit();
        before.datapath = self.datapath();
        let greater = self.branch(dst, 1, rest, &before);
        // A freeze in the first branch must not prevent the second one.
        let exit = std::mem::replace(&mut self.exit, false);
        let less_or_equal = self.branch(dst, 0, rest, &before);
        self.exit = exit;
        self.out_bytes += 20;
        self.out.push(Action::CheckPktLen { len, greater, less_or_equal });
    }

    /// Runs one branch. In OVS the second branch sees the stack and the action set that the first one leaves; here it
    /// does not.
    fn branch(&mut self, dst: SubField, bit: u128, rest: ActionList<'_>, before: &SavedContext) -> Arc<[Action]> {
        let made = self.nested(|t| {
            dst.set(t.flow, bit);
            t.actions(rest, true);
            t.end_of_pipeline();
        });
        self.restore_datapath(before);
        self.restore_context(before);
        made
    }

    /// The actions that `f` emits, as a list of their own.
    pub(super) fn nested(&mut self, f: impl FnOnce(&mut Self)) -> Arc<[Action]> {
        let outer = std::mem::take(&mut self.out);
        f(self);
        Arc::from(std::mem::replace(&mut self.out, outer))
    }

    /// Saves what nested actions may change and later actions must not see. On the heap, because lists nest deeply.
    #[inline(never)]
    fn save(&self) -> Box<SavedContext> {
        let (flow, datapath) = (self.flow.clone(), self.datapath());
        Box::new(SavedContext { flow, datapath, stack: self.stack.clone(), action_set: self.action_set.clone() })
    }

    #[inline(never)]
    fn restore_context(&mut self, saved: &SavedContext) {
        self.flow.clone_from(&saved.flow);
        self.stack.clone_from(&saved.stack);
        self.action_set.clone_from(&saved.action_set);
    }

    fn datapath(&self) -> DatapathState {
        DatapathState { base: self.base.clone(), was_mpls: self.was_mpls, conntracked: self.conntracked }
    }

    #[inline(never)]
    fn restore_datapath(&mut self, saved: &SavedContext) {
        let DatapathState { base, was_mpls, conntracked } = &saved.datapath;
        self.base.clone_from(base);
        (self.was_mpls, self.conntracked) = (*was_mpls, *conntracked);
    }

    pub(super) fn write_actions(&mut self, actions: &[OfAction]) {
        self.write_actions_silently(actions);
        self.report_action_set("is");
    }

    /// Adds to the action set. Its output port is a field that rules can match.
    pub(super) fn write_actions_silently(&mut self, actions: &[OfAction]) {
        if !self.charge(actions.len()) {
            return;
        }
        let is_group = |action: &OfAction| matches!(action, OfAction::Group(_));
        if !self.action_set.iter().any(is_group) {
            for action in actions {
                match action {
                    OfAction::Output { port, .. } => self.flow.set_number(layout::ACTSET_OUTPUT, port.0.into()),
                    OfAction::Group(_) => {
                        self.flow.set_number(layout::ACTSET_OUTPUT, OfPort::UNSET.0.into());
                        break;
                    }
                    _ => {}
                }
            }
        }
        self.action_set.extend_from_slice(actions);
    }

    pub(super) fn clear_actions(&mut self) {
        self.report_action_set("was");
        self.action_set.clear();
        self.flow.set_number(layout::ACTSET_OUTPUT, OfPort::UNSET.0.into());
    }

    fn report_action_set(&mut self, verb: &str) {
        if self.tracer.as_ref().is_some_and(|tracer| !tracer.is_full()) {
            let set = in_order(&self.action_set);
            let text = if set.is_empty() { " empty".to_owned() } else { format!(": {}", freeze::list(&set)) };
            self.detail(&format!("action set {verb}{text}"));
        }
    }

    /// Runs the action set.
    pub(super) fn run_action_set(&mut self) {
        let set = in_order(&std::mem::take(&mut self.action_set));
        if set.is_empty() {
            return;
        }
        self.in_action_set = true;
        let section = self.open(TraceKind::Table, || "--. Executing action set:".to_owned());
        self.actions(ActionList::of(&set), true);
        self.close(section);
        self.in_action_set = false;
    }
}

/// Whether an action can be undone without a copy of the packet: all but truncation, metering and connection tracking.
/// (OVS also names encapsulation, which is not implemented yet.)
fn can_be_undone(action: &OfAction) -> bool {
    !matches!(action, OfAction::OutputTrunc { .. } | OfAction::Conntrack(_) | OfAction::Nat(_) | OfAction::Meter(_))
}

/// The actions of a set in the order of the OpenFlow specification; none if nothing ends the set. Source of the
/// ends: OVS lib/ofp-actions.c, `ACTION_SET_FINAL_PRIORITY`.
pub(super) fn in_order(set: &[OfAction]) -> Vec<OfAction> {
    const SLOTS: [fn(&OfAction) -> bool; 6] = [
        |a| matches!(a, OfAction::StripVlan | OfAction::PopVlan),
        |a| matches!(a, OfAction::PopMpls { .. }),
        |a| matches!(a, OfAction::PushMpls { .. }),
        |a| matches!(a, OfAction::PushVlan { .. }),
        |a| matches!(a, OfAction::DecTtl { .. }),
        |a| matches!(a, OfAction::DecMplsTtl),
    ];
    /// What can end a set, what has precedence first. Of several of a kind, the last one counts.
    const ENDS: [fn(&OfAction) -> bool; 5] = [
        |a| matches!(a, OfAction::Group(_)),
        |a| matches!(a, OfAction::Output { .. }),
        |a| matches!(a, OfAction::Resubmit { .. }),
        |a| matches!(a, OfAction::CtClear),
        |a| matches!(a, OfAction::Conntrack(_)),
    ];
    let last = |is: fn(&OfAction) -> bool| set.iter().rev().find(|a| is(a));
    let Some(end) = ENDS.into_iter().find_map(last) else { return Vec::new() };
    let once = SLOTS.into_iter().filter_map(last);
    let sets = set.iter().filter(|a| is_set_or_move(a));
    once.chain(sets).chain([end]).cloned().collect()
}

fn is_set_or_move(action: &OfAction) -> bool {
    matches!(
        action,
        OfAction::SetField { .. }
            | OfAction::SetOption(_)
            | OfAction::Load { .. }
            | OfAction::Move { .. }
            | OfAction::ModDlSrc(_)
            | OfAction::ModDlDst(_)
            | OfAction::ModNwSrc(_)
            | OfAction::ModNwDst(_)
            | OfAction::ModNwTos(_)
            | OfAction::ModNwEcn(_)
            | OfAction::ModNwTtl(_)
            | OfAction::ModTpSrc(_)
            | OfAction::ModTpDst(_)
            | OfAction::SetMplsLabel(_)
            | OfAction::SetMplsTc(_)
            | OfAction::SetMplsTtl(_)
            | OfAction::SetQueue(_)
            | OfAction::SetTunnel { .. }
            | OfAction::SetVlanVid { .. }
            | OfAction::SetVlanPcp { .. }
    )
}
