//! The loop over the actions of a list.

use super::table::SearchBy;
use super::{ActionList, Failure, MAX_NESTING, RunMode, Translator, hash, tags};
use crate::features::Feature;
use crate::port::PortConfig;
use crate::trace::TraceKind;
use crate::xlate_cache::Dependency;
use sluice_action::Action;
use sluice_flow::layout::{self, Span};
use sluice_flow::{FieldId, OfPort};
use sluice_ofp::OfAction;
use sluice_ofp::ofpact::{Bundle, BundleAlgorithm, ControllerAction, Multipath, PacketInReason};
use sluice_packet::headers::ethertype;

/// What to do after an action.
enum AfterAction {
    /// Go on with the next action.
    Next,
    /// Go on with the next action. If this one froze the translation, it has frozen itself already.
    Continue,
    /// Take no more actions of this list.
    End,
    /// Take no more actions of this list: both branches have run them.
    Branched,
}

impl Translator<'_> {
    /// Runs the actions of a list. `last`: nothing comes after it.
    pub(super) fn actions(&mut self, list: ActionList<'_>, last: bool) {
        if list.actions.is_empty() {
            return self.say(TraceKind::Action, || "drop".to_owned());
        }
        if self.nesting >= MAX_NESTING {
            self.error(|| format!("over {MAX_NESTING} nested lists of actions"));
            return self.fail(Failure::TooDeep);
        }
        self.nesting += 1;
        self.each_action(list, last);
        self.nesting -= 1;
    }

    fn each_action(&mut self, list: ActionList<'_>, last: bool) {
        let mut done = false;
        for (i, action) in list.actions.iter().enumerate() {
            let last = last && i + 1 == list.actions.len() && self.action_set.is_empty();
            if self.failure.is_some() || !self.charge(1) {
                break;
            }
            self.recirculate_for_labels(action);
            if self.exit || done {
                if self.freezing {
                    self.freeze_rest(list.from(i));
                }
                break;
            }
            if let Some(restore) = list.restore(i) {
                self.restore(restore);
            }
            self.say(TraceKind::Action, || action.to_string());
            let outer = self.set_actor(|t| t.actor(action));
            let next = self.action(action, list.from(i + 1), last);
            self.attribute_to_actor();
            self.set_actor(|_| outer);
            match next {
                AfterAction::Next => {}
                AfterAction::Continue => continue,
                AfterAction::End => return,
                AfterAction::Branched => done = true,
            }
            if self.failure.is_none() && self.exit && self.freezing && self.frozen.actions.is_empty() {
                self.freeze_rest(list.from(i));
                break;
            }
        }
    }

    /// What looks at bits now, for the trace.
    fn actor(&self, action: &OfAction) -> String {
        let place = match self.rule {
            _ if self.in_action_set => "the action set".to_owned(),
            Some(rule) => format!("table {}, priority {}", rule.table, rule.priority),
            None => "the actions".to_owned(),
        };
        format!("{action} in {place}, bridge \"{}\"", self.bridge.name())
    }

    fn action(&mut self, action: &OfAction, rest: ActionList<'_>, last: bool) -> AfterAction {
        match action {
            OfAction::Output { port, max_len } => self.output(*port, *max_len, last),
            OfAction::OutputTrunc { port, max_len } => self.output_truncated(*port, *max_len, last),
            OfAction::OutputReg { src, max_len } => self.output_to_field(*src, *max_len, last),
            OfAction::Enqueue { port, queue } => self.enqueue(*port, *queue, last),
            OfAction::Group(id) => {
                if !self.group(*id, last) {
                    return AfterAction::End;
                }
            }
            OfAction::Bundle(bundle) => self.bundle(bundle, last),
            OfAction::Resubmit { port, table, with_ct_orig } => {
                let in_port = if *port == OfPort::IN_PORT { self.in_port() } else { *port };
                let table = table.filter(|&t| t != 255).unwrap_or(self.table);
                let by = if *with_ct_orig { SearchBy::Connection } else { SearchBy::Packet };
                self.search_and_go(in_port, table, by, last, RunMode::Inline);
                return AfterAction::Continue;
            }
            OfAction::GotoTable(table) => {
                self.go_to_table(self.in_port(), *table, last, RunMode::Inline);
                return AfterAction::Continue;
            }
            OfAction::Conntrack(ct) => self.conntrack(ct, last),
            OfAction::Clone(actions) => self.cloned(actions, last),
            OfAction::CheckPktLarger { dst, pkt_len } if !self.can(Feature::CheckPktLen) => {
                self.check_packet_length_here(*dst, *pkt_len);
            }
            OfAction::CheckPktLarger { dst, pkt_len } => {
                self.check_packet_length(*dst, *pkt_len, rest);
                return AfterAction::Branched;
            }
            _ => return self.flat_action(action),
        }
        AfterAction::Next
    }

    /// Actions that run no other lists.
    #[inline(never)] // keeps their variables out of nested stack frames
    fn flat_action(&mut self, action: &OfAction) -> AfterAction {
        match action {
            OfAction::DecTtl { controllers, .. } => {
                if self.dec_ttl(controllers) {
                    return AfterAction::End;
                }
            }
            OfAction::CtClear => self.conntrack_clear(),
            OfAction::Meter(id) => {
                self.depend_on(Dependency::Meter(*id));
                if let Some(meter) = self.bridge.meters.get(id) {
                    self.emit(Action::Meter(meter.datapath));
                }
            }
            OfAction::Nat(nat) => self.ct_nat = Some(*nat),
            OfAction::DecMplsTtl => {
                if self.dec_mpls_ttl() {
                    return AfterAction::End;
                }
            }
            OfAction::Exit => self.exit = true,
            OfAction::DebugRecirc => {
                self.trigger_freeze();
                return AfterAction::Continue;
            }
            OfAction::DebugSlow => self.take_slow_path(),
            OfAction::Controller(c) if c.pause => {
                self.pause = Some(c.clone());
                self.trigger_freeze();
                return AfterAction::Continue;
            }
            OfAction::Controller(c) => self.send_to_controller(c),
            OfAction::WriteActions(actions) => self.write_actions(actions),
            OfAction::ClearActions => self.clear_actions(),
            OfAction::Learn(learn) => self.learn(learn),
            OfAction::FinTimeout { idle, hard } => self.fin_timeout(*idle, *hard),
            OfAction::Multipath(multipath) => self.multipath(multipath),
            OfAction::Conjunction { .. } => self.error(|| "executing no-op conjunction action".to_owned()),
            OfAction::PushMpls { ethertype } => self.push_mpls(*ethertype),
            OfAction::PopMpls { ethertype } => self.pop_mpls(*ethertype),
            // Sampling needs a collector, and none can be configured: OVS does nothing then, either.
            OfAction::Note(_) | OfAction::Sample(_) => {}
            _ => self.change_field(action),
        }
        AfterAction::Next
    }

    pub(super) fn in_port(&self) -> OfPort {
        OfPort(self.number(layout::IN_PORT) as u16)
    }

    /// Decrements the time to live; true if it has expired, and then the packet went to the controllers.
    fn dec_ttl(&mut self, controllers: &[u16]) -> bool {
        // Source of the protocol in the mask: OVS's fix of CVE-2023-1668, which Debian's 3.1 has.
        self.look_at(layout::NW_TTL, 0xff);
        self.look_at(layout::NW_PROTO, 0xff);
        if !self.is_ip() {
            return false;
        }
        let ttl = self.number(layout::NW_TTL);
        if ttl > 1 {
            self.flow.set_number(layout::NW_TTL, ttl - 1);
            return false;
        }
        for &id in controllers {
            let reason = PacketInReason::InvalidTtl;
            self.send_to_controller(&ControllerAction { reason, controller_id: id, ..ControllerAction::default() });
        }
        let version = if self.ethertype() == ethertype::IPV4 { 4 } else { 6 };
        self.warn(&format!("IPv{version} decrement TTL exception"));
        true
    }

    fn dec_mpls_ttl(&mut self) -> bool {
        if ethertype::is_mpls(self.ethertype()) {
            tags::look_at_label(self.wc, 0, 0xff);
            let lse = tags::label(self.flow, 0);
            if lse & 0xff > 1 {
                tags::set_label(self.flow, 0, lse - 1);
                return false;
            }
            let reason = PacketInReason::InvalidTtl;
            self.send_to_controller(&ControllerAction { reason, ..ControllerAction::default() });
        }
        self.warn("MPLS decrement TTL exception");
        true
    }

    fn push_mpls(&mut self, ethertype: u16) {
        let n = tags::label_count(self.flow, Some(&mut self.wc));
        if self.labels_popped {
            // A new label may happen to equal a popped one. That makes the value of the popped one part of the
            // decision.
            (0..tags::MAX_LABELS).for_each(|i| tags::look_at_label(self.wc, i, 0xffff_ffff));
        }
        if n == 0 {
            self.commit();
        } else if n >= tags::MAX_LABELS {
            if self.side_effects {
                self.error(|| {
                    "dropping packet on which an MPLS push action can't be performed as it would have more MPLS LSEs \
                     than the 3 supported."
                        .to_owned()
                });
            }
            return self.fail(Failure::TooManyLabels);
        }
        tags::push_label(self.flow, n, ethertype, Some(&mut self.wc), tags::Behind::Forget);
    }

    fn pop_mpls(&mut self, ethertype: u16) {
        let n = tags::label_count(self.flow, Some(&mut self.wc));
        if tags::pop_label(self.flow, n, ethertype, Some(&mut self.wc)) {
            self.labels_popped = true;
            self.was_mpls |= !ethertype::is_mpls(ethertype);
        } else if n >= tags::MAX_LABELS {
            if self.side_effects {
                self.error(|| {
                    "dropping packet on which an MPLS pop action can't be performed as it has more MPLS LSEs than the \
                     3 supported."
                        .to_owned()
                });
            }
            self.fail(Failure::TooManyLabels);
        }
    }

    fn multipath(&mut self, m: &Multipath) {
        let hash = hash::of_fields(self.flow, m.fields, m.basis);
        let link = hash::choose_link(hash, m.algorithm, u32::from(m.max_link) + 1, m.arg);
        hash::look_at_fields(self.flow, self.wc, m.fields);
        self.load(m.dst, link.into());
        self.report_value(m.dst);
    }

    fn bundle(&mut self, bundle: &Bundle, last: bool) {
        if !self.charge(bundle.members.len()) {
            return;
        }
        bundle.members.iter().for_each(|port| self.depend_on(Dependency::Port(*port)));
        let port = match bundle.algorithm {
            BundleAlgorithm::ActiveBackup => bundle.members.iter().copied().find(|&port| self.is_usable(port)),
            BundleAlgorithm::Hrw => {
                if bundle.members.len() > 1 {
                    hash::look_at_fields(self.flow, self.wc, bundle.fields);
                }
                let hash = hash::of_fields(self.flow, bundle.fields, bundle.basis);
                let usable = (0u32..).zip(&bundle.members).filter(|(_, port)| self.is_usable(**port));
                // Of equal weights the first one wins.
                let weighed = usable.map(|(i, port)| (hash::two_words(i, hash), std::cmp::Reverse(i), *port));
                weighed.max().map(|(_, _, port)| port)
            }
        };
        let port = port.unwrap_or(OfPort::NONE);
        match bundle.dst {
            Some(dst) => {
                self.load(dst, port.0.into());
                self.report_value(dst);
            }
            None => self.output(port, 0, last),
        }
    }

    /// Whether `bundle` may choose that port.
    fn is_usable(&self, port: OfPort) -> bool {
        match port {
            OfPort::IN_PORT | OfPort::TABLE | OfPort::NORMAL | OfPort::FLOOD | OfPort::ALL | OfPort::NONE => true,
            OfPort::CONTROLLER => false,
            _ => self.bridge.ports.get(&port).is_some_and(PortConfig::is_live),
        }
    }

    /// After the last label is popped, the key lacks the header after it. Outputs, and actions on fields before the
    /// network header, can still run; for any other action the packet must recirculate.
    fn recirculate_for_labels(&mut self, action: &OfAction) {
        if self.exit || !self.was_mpls {
            return;
        }
        let can_go_on = match action {
            OfAction::Output { .. }
            | OfAction::OutputTrunc { .. }
            | OfAction::Enqueue { .. }
            | OfAction::OutputReg { .. }
            | OfAction::Group(_)
            | OfAction::SetVlanVid { .. }
            | OfAction::SetVlanPcp { .. }
            | OfAction::ModDlSrc(_)
            | OfAction::ModDlDst(_)
            | OfAction::SetTunnel { .. }
            | OfAction::SetQueue(_) => true,
            OfAction::SetField { field, .. } => !is_behind_ethernet(*field),
            OfAction::Load { dst, .. } => !is_behind_ethernet(dst.field),
            _ => false,
        };
        if !can_go_on {
            self.trigger_freeze();
        }
    }

    pub(super) fn look_at(&mut self, span: Span, bits: u64) {
        self.wc.set_number(span, self.wc.number(span) | bits);
    }
}

/// Whether a field belongs to the network header or a later one.
fn is_behind_ethernet(field: FieldId) -> bool {
    field >= FieldId::Ipv4Src
}
