//! Actions within actions: clones, the action set, the two branches of check_pkt_larger.

use super::{ActionList, Translator, freeze};
use crate::recirc::StackValue;
use crate::trace::TraceKind;
use sluice_action::Action;
use sluice_flow::{FlowKey, OfPort, SubField, layout};
use sluice_ofp::OfAction;
use std::sync::Arc;

/// See [`Translator::save`].
struct SavedContext {
    flow: FlowKey,
    /// What the datapath has: its key, whether the last label has gone, whether there is a connection.
    datapath: (FlowKey, bool, bool),
    stack: Vec<StackValue>,
    action_set: Vec<OfAction>,
}

impl Translator<'_> {
    /// Takes actions on a copy of the packet.
    ///
    /// If all they do to it can be undone by setting fields back, or if nothing comes after them, the datapath needs
    /// no copy.
    pub(super) fn cloned(&mut self, actions: &[OfAction], last: bool) {
        let mut before = self.save();
        if last || actions.iter().all(can_be_undone) {
            self.actions(ActionList::of(actions), last);
            self.end_of_pipeline();
        } else {
            self.commit();
            before.datapath = self.datapath();
            let inner = self.nested(|t| {
                t.actions(ActionList::of(actions), true);
                t.end_of_pipeline();
            });
            if !inner.is_empty() {
                self.out_bytes += 4;
                self.out.push(Action::Clone(inner));
            }
            self.take_back_datapath(&before);
        }
        self.take_back(&before);
    }

    /// Chooses between the rest of the list with the bit set and the rest with it clear.
    ///
    /// Each choice counts as a resubmit: a list of many would otherwise have exponentially many branches.
    pub(super) fn check_packet_length(&mut self, dst: SubField, len: u16, rest: ActionList<'_>) {
        if !self.may_resubmit() {
            return;
        }
        self.resubmits += 1;
        let mut before = self.save();
        self.commit();
        before.datapath = self.datapath();
        let greater = self.branch(dst, 1, rest, &before);
        // A freeze in the first branch must not keep the second from being taken.
        let exit = std::mem::replace(&mut self.exit, false);
        let less_or_equal = self.branch(dst, 0, rest, &before);
        self.exit = exit;
        self.out_bytes += 20;
        self.out.push(Action::CheckPktLen { len, greater, less_or_equal });
    }

    /// One branch. OVS lets the second see what the first left of stack and action set; here each begins afresh.
    fn branch(&mut self, dst: SubField, bit: u128, rest: ActionList<'_>, before: &SavedContext) -> Arc<[Action]> {
        let made = self.nested(|t| {
            dst.set(&mut t.flow, bit);
            t.actions(rest, true);
            t.end_of_pipeline();
        });
        self.take_back_datapath(before);
        self.take_back(before);
        made
    }

    /// The actions that `f` makes, apart.
    fn nested(&mut self, f: impl FnOnce(&mut Self)) -> Arc<[Action]> {
        let outer = std::mem::take(&mut self.out);
        f(self);
        Arc::from(std::mem::replace(&mut self.out, outer))
    }

    /// What nested actions may change and those after them must not see. On the heap: lists nest deeply.
    #[inline(never)]
    fn save(&self) -> Box<SavedContext> {
        let (flow, datapath) = (self.flow, self.datapath());
        Box::new(SavedContext { flow, datapath, stack: self.stack.clone(), action_set: self.action_set.clone() })
    }

    #[inline(never)]
    fn take_back(&mut self, saved: &SavedContext) {
        self.flow = saved.flow;
        self.stack.clone_from(&saved.stack);
        self.action_set.clone_from(&saved.action_set);
    }

    fn datapath(&self) -> (FlowKey, bool, bool) {
        (self.base, self.was_mpls, self.conntracked)
    }

    #[inline(never)]
    fn take_back_datapath(&mut self, saved: &SavedContext) {
        (self.base, self.was_mpls, self.conntracked) = saved.datapath;
    }

    pub(super) fn write_actions(&mut self, actions: &[OfAction]) {
        self.write_actions_silently(actions);
        self.report_action_set("is");
    }

    /// Adds to the action set; the port it would output to is a field that rules can match.
    pub(super) fn write_actions_silently(&mut self, actions: &[OfAction]) {
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
        if self.tracer.is_some() {
            let set = in_order(&self.action_set);
            let text = if set.is_empty() { " empty".to_owned() } else { format!(": {}", freeze::list(&set)) };
            self.detail(&format!("action set {verb}{text}"));
        }
    }

    /// Takes the actions of the action set.
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

/// What can be undone without a copy of the packet: everything but cutting it short and tracking it. (What else OVS
/// names here, encapsulation, is not built yet.)
fn can_be_undone(action: &OfAction) -> bool {
    !matches!(action, OfAction::OutputTrunc { .. } | OfAction::Conntrack(_) | OfAction::Nat(_) | OfAction::Meter(_))
}

/// The actions of a set in the order the OpenFlow specification gives; none if it outputs nowhere.
pub(super) fn in_order(set: &[OfAction]) -> Vec<OfAction> {
    const SLOTS: [fn(&OfAction) -> bool; 6] = [
        |a| matches!(a, OfAction::StripVlan | OfAction::PopVlan),
        |a| matches!(a, OfAction::PopMpls { .. }),
        |a| matches!(a, OfAction::PushMpls { .. }),
        |a| matches!(a, OfAction::PushVlan { .. }),
        |a| matches!(a, OfAction::DecTtl { .. }),
        |a| matches!(a, OfAction::DecMplsTtl),
    ];
    // A group beats an output, and an output a resubmit; of several, the last one counts.
    let last = |is: fn(&OfAction) -> bool| set.iter().rev().find(|a| is(a));
    let end = last(|a| matches!(a, OfAction::Group(_)))
        .or_else(|| last(|a| matches!(a, OfAction::Output { .. })))
        .or_else(|| last(|a| matches!(a, OfAction::Resubmit { .. })));
    let Some(end) = end else { return Vec::new() };
    let once = SLOTS.into_iter().filter_map(last);
    let sets = set.iter().filter(|a| is_set_or_move(a));
    once.chain(sets).chain([end]).cloned().collect()
}

fn is_set_or_move(action: &OfAction) -> bool {
    matches!(
        action,
        OfAction::SetField { .. }
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
