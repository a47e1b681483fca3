//! Actions within actions: clones, the action set, the two branches of check_pkt_larger.

use super::{Steps, Translator, freeze};
use crate::trace::Kind;
use sluice_action::Action;
use sluice_flow::{OfAction, OfPort, SubField, layout};
use std::sync::Arc;

impl Translator<'_> {
    /// Takes actions on a copy of the packet.
    ///
    /// If all they do to it can be undone by setting fields back, or if nothing comes after them, the datapath needs
    /// no copy.
    pub(super) fn cloned(&mut self, actions: &[OfAction], last: bool) {
        let (stack, action_set, flow) = (self.stack.clone(), self.action_set.clone(), self.flow);
        if last || actions.iter().all(can_be_undone) {
            self.actions(Steps::of(actions), last);
            self.end_of_pipeline();
        } else {
            self.commit();
            let (base, was_mpls) = (self.base, self.was_mpls);
            let inner = self.nested(|t| {
                t.actions(Steps::of(actions), true);
                t.end_of_pipeline();
            });
            if !inner.is_empty() {
                self.out_bytes += 4;
                self.out.push(Action::Clone(inner));
            }
            self.was_mpls = was_mpls;
            self.base = base;
        }
        (self.stack, self.action_set, self.flow) = (stack, action_set, flow);
    }

    /// The actions that `f` makes, apart.
    fn nested(&mut self, f: impl FnOnce(&mut Self)) -> Arc<[Action]> {
        let outer = std::mem::take(&mut self.out);
        f(self);
        Arc::from(std::mem::replace(&mut self.out, outer))
    }

    /// Chooses between the rest of the list with the bit set and the rest with it clear.
    pub(super) fn check_packet_length(&mut self, dst: SubField, len: u16, rest: Steps<'_>) {
        let (stack, action_set, flow) = (self.stack.clone(), self.action_set.clone(), self.flow);
        self.commit();
        let (base, was_mpls) = (self.base, self.was_mpls);
        let branch = |t: &mut Self, bit| {
            let made = t.nested(|t| {
                dst.set(&mut t.flow, bit);
                t.actions(rest, true);
                t.end_of_pipeline();
            });
            (t.base, t.was_mpls, t.flow) = (base, was_mpls, flow);
            // OVS lets the second branch see what the first left of stack and action set; here each begins afresh.
            (t.stack, t.action_set) = (stack.clone(), action_set.clone());
            made
        };
        let greater = branch(self, 1);
        // A freeze in the first branch must not keep the second from being taken.
        let exit = std::mem::replace(&mut self.exit, false);
        let less_or_equal = branch(self, 0);
        self.exit = exit;
        self.out_bytes += 20;
        self.out.push(Action::CheckPktLen { len, greater, less_or_equal });
    }

    pub(super) fn write_actions(&mut self, actions: &[OfAction]) {
        self.write_actions_silently(actions);
        self.report_action_set("is");
    }

    /// Adds to the action set; the port it would output to is a field that rules can match.
    pub(super) fn write_actions_silently(&mut self, actions: &[OfAction]) {
        for action in actions {
            if let OfAction::Output { port, .. } = action {
                self.flow.set_number(layout::ACTSET_OUTPUT, port.0.into());
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
        let section = self.open(Kind::Table, || "--. Executing action set:".to_owned());
        self.actions(Steps::of(&set), true);
        self.close(section);
        self.in_action_set = false;
    }
}

/// What can be undone without a copy of the packet: everything but cutting it short. (What else OVS names here,
/// connection tracking, meters, encapsulation, is not built yet.)
fn can_be_undone(action: &OfAction) -> bool {
    !matches!(action, OfAction::OutputTrunc { .. })
}

/// The actions of a set in the order the OpenFlow specification gives; none if it outputs nowhere.
fn in_order(set: &[OfAction]) -> Vec<OfAction> {
    const SLOTS: [fn(&OfAction) -> bool; 6] = [
        |a| matches!(a, OfAction::StripVlan | OfAction::PopVlan),
        |a| matches!(a, OfAction::PopMpls { .. }),
        |a| matches!(a, OfAction::PushMpls { .. }),
        |a| matches!(a, OfAction::PushVlan { .. }),
        |a| matches!(a, OfAction::DecTtl { .. }),
        |a| matches!(a, OfAction::DecMplsTtl),
    ];
    // An output beats a resubmit; of several, the last one counts.
    let last = |is: fn(&OfAction) -> bool| set.iter().rev().find(|a| is(a));
    let end =
        last(|a| matches!(a, OfAction::Output { .. })).or_else(|| last(|a| matches!(a, OfAction::Resubmit { .. })));
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
