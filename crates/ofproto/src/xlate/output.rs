//! Outputs: ports, floods, patch ports, controllers.

use super::tunnel::TunnelOutput;
use super::{Failure, RunMode, Translator};
use crate::bridge::Bridge;
use crate::features::Feature;
use crate::port::{Attach, PortConfig};
use crate::recirc::FrozenActions;
use crate::trace::TraceKind;
use crate::tunnel::Tunnel;
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_action::Action;
use sluice_fate::DropReason;
use sluice_flow::{Line, OfPort, PortNames, SubField, layout};
use sluice_ofp::METER_CONTROLLER;
use sluice_ofp::ofpact::{ControllerAction, PacketInReason};

impl<'a> Translator<'a> {
    /// `output:PORT`, reserved ports included.
    pub(super) fn output(&mut self, port: OfPort, max_len: u16, last: bool) {
        match port {
            OfPort::IN_PORT => self.output_to(self.in_port(), last, false),
            OfPort::TABLE => self.go_to_table(self.in_port(), 0, false, RunMode::Inline),
            OfPort::NORMAL => self.normal(),
            OfPort::FLOOD => self.flood(false, last),
            OfPort::ALL => self.flood(true, last),
            OfPort::CONTROLLER => {
                let reason = if self.in_packet_out {
                    PacketInReason::PacketOut
                } else if self.in_bucket {
                    PacketInReason::Group
                } else if self.in_action_set {
                    PacketInReason::ActionSet
                } else {
                    PacketInReason::Action
                };
                self.send_to_controller(&ControllerAction { max_len, reason, ..ControllerAction::default() });
            }
            OfPort::NONE => {}
            _ => self.output_unless_in_port(port, last, false),
        }
    }

    fn output_unless_in_port(&mut self, port: OfPort, last: bool, truncated: bool) {
        if port == self.in_port() {
            self.warn("skipping output to input port");
        } else {
            self.output_to(port, last, truncated);
        }
    }

    /// `output:FIELD[…]`.
    pub(super) fn output_to_field(&mut self, src: SubField, max_len: u16, last: bool) {
        let port = src.get(self.flow);
        match u16::try_from(port) {
            Ok(port) => {
                self.detail(&format!("output port is {port}"));
                self.look_at_bits(src);
                self.output(OfPort(port), max_len, last);
            }
            Err(_) => {
                // OVS leaves the bits out of the mask, so its megaflow also drops packets with a valid port.
                self.look_at_bits(src);
                self.warn(&format!("output port {port} is out of range"));
            }
        }
    }

    /// `output(port=…,max_len=…)`.
    pub(super) fn output_truncated(&mut self, port: OfPort, max_len: u32, last: bool) {
        match port {
            OfPort::TABLE | OfPort::NORMAL | OfPort::FLOOD | OfPort::ALL | OfPort::CONTROLLER | OfPort::NONE => {
                let name = PortNames::NONE.display(port);
                self.warn(&format!("output_trunc does not support port: {name}"));
            }
            _ if port == self.in_port() => self.warn("skipping output to input port"),
            // OVS looks up a port with number IN_PORT and finds none.
            _ if self.datapath_port(port).is_none() => {
                let name = PortNames::NONE.display(port);
                self.error(|| format!("output_trunc does not support patch port {name}"));
            }
            _ => {
                self.require_truncation();
                self.emit(Action::Trunc(max_len));
                self.output_to(port, last, true);
            }
        }
    }

    /// Notes that the datapath has to cut packets.
    pub(super) fn require_truncation(&mut self) {
        if !self.can(Feature::Trunc) {
            self.take_slow_path();
        }
    }

    /// `enqueue:PORT:QUEUE`: sets the queue for this output only.
    pub(super) fn enqueue(&mut self, port: OfPort, queue: u32, last: bool) {
        self.look_at(layout::SKB_PRIORITY, u64::MAX);
        let port = match port {
            OfPort::IN_PORT => self.in_port(),
            _ if port == self.in_port() => return,
            _ => port,
        };
        let old = self.number(layout::SKB_PRIORITY);
        self.flow.set_number(layout::SKB_PRIORITY, queue.into());
        self.output_to(port, last, false);
        self.flow.set_number(layout::SKB_PRIORITY, old);
    }

    /// Outputs to all ports except the input port and, unless `all`, those with `no_flood`.
    fn flood(&mut self, all: bool, last: bool) {
        self.depend_on(Dependency::AllPorts);
        let in_port = self.in_port();
        let open = |p: &&PortConfig| p.number != in_port && (all || !p.no_flood);
        let ports: Vec<OfPort> = self.bridge.ports.values().filter(open).map(|p| p.number).collect();
        if !self.charge(ports.len()) {
            return;
        }
        for (i, port) in ports.iter().enumerate() {
            self.output_to(*port, last && i + 1 == ports.len(), false);
        }
    }

    /// Outputs to a port, or goes on in another bridge through a patch port.
    pub(super) fn output_to(&mut self, port: OfPort, last: bool, truncated: bool) {
        self.depend_on(Dependency::Port(port));
        let bridge = self.bridge;
        let Some(config) = bridge.ports.get(&port) else {
            self.no_output = DropReason::TxNoPort;
            return self.warn("Nonexistent output port");
        };
        if config.down {
            self.no_output = DropReason::TxNoPort;
            return self.detail("OFPPC_PORT_DOWN set, skipping output");
        }
        if config.no_forward {
            return self.detail("OFPPC_NO_FWD set, skipping output");
        }
        if !self.admits_copy(config) {
            return;
        }
        if config.is_protected && self.is_from_protected() {
            return self.warn("Flow is between protected ports, skipping output.");
        }
        match &config.attach {
            Attach::Datapath(number) => {
                let (number, tos) = (*number, self.mark_queue(config));
                self.commit();
                let popped = self.tunnel_to_pop(config);
                if popped.is_none() {
                    self.cut_copy();
                }
                self.emit(popped.unwrap_or(Action::Output(number)));
                self.unmark_queue(tos);
                self.outputs.add(number);
                self.mirror_sent(config);
            }
            Attach::Patch(_) => {
                if truncated {
                    self.error(|| "Cannot truncate output to patch port".to_owned());
                }
                match self.state.peer(config) {
                    Some((bridge, peer)) => {
                        self.count_crossing(config.number, bridge, peer.number);
                        self.cross(bridge, peer, last);
                    }
                    None => self.no_output = DropReason::TxNoPort,
                }
            }
            Attach::Tunnel(tunnel) => {
                let tos = self.mark_queue(config);
                let before = self.outputs;
                self.output_to_tunnel(config.number, tunnel, TunnelOutput { last, truncated });
                // What the outer packet's bridge does with it is no output of this one.
                self.outputs = before;
                self.outputs.add(tunnel.backend);
                self.unmark_queue(tos);
                self.mirror_sent(config);
            }
            Attach::Nothing => self.no_output = DropReason::NoLocalPort,
        }
    }

    /// Gives the packet the DSCP of its queue at a port, for this output only. Returns the type of service that it had,
    /// if that changed. Source: OVS ofproto/ofproto-dpif-xlate.c, `compose_output_action__`.
    fn mark_queue(&mut self, config: &PortConfig) -> Option<u64> {
        if config.queue_dscp.is_empty() {
            return None;
        }
        self.look_at(layout::SKB_PRIORITY, u64::MAX);
        let queue = self.number(layout::SKB_PRIORITY) as u32;
        let dscp = config.queue_dscp.get(&queue).filter(|_| self.is_ip())?;
        let tos = self.number(layout::NW_TOS);
        self.write_dscp(*dscp);
        Some(tos)
    }

    fn unmark_queue(&mut self, tos: Option<u64>) {
        tos.into_iter().for_each(|tos| self.flow.set_number(layout::NW_TOS, tos));
    }

    /// Whether the packet came in by a protected port.
    pub(super) fn is_from_protected(&mut self) -> bool {
        let in_port = self.in_port();
        self.depend_on(Dependency::Port(in_port));
        self.bridge.ports.get(&in_port).is_some_and(|port| port.is_protected)
    }

    /// Notes that packets leave by a patch port and enter another bridge by its peer.
    fn count_crossing(&mut self, by: OfPort, bridge: &Bridge, peer: OfPort) {
        let counts = |bridge: &Bridge, port| bridge.vport_counts.get(&port).cloned();
        self.xcache.extend(counts(self.bridge, by).map(XcEntry::VportTx));
        self.xcache.extend(counts(bridge, peer).map(XcEntry::VportRx));
    }

    /// Goes on in another bridge. Its changes of the packet do not affect this bridge.
    pub(super) fn cross(&mut self, bridge: &'a Bridge, peer: &PortConfig, last: bool) {
        // On the heap: bridges nest deeply.
        let (here, flow) = (self.bridge, Box::new(self.flow.clone()));
        let (was_mpls, conntracked) = (self.was_mpls, self.conntracked);
        let (stack, action_set) = (std::mem::take(&mut self.stack), std::mem::take(&mut self.action_set));
        let tunnel_mask = Tunnel::of(self.wc);
        let mirrors = self.mirrors;
        if bridge.id != here.id {
            self.mirrors = 0;
        }
        self.flow.set_number(layout::IN_PORT, peer.number.0.into());
        self.flow.set_number(layout::METADATA, 0);
        Tunnel::NONE.put(self.flow);
        Tunnel::NONE.put(self.wc);
        self.flow.lines[layout::REGS.line()] = Line::ZERO;
        self.flow.set_number(layout::ACTSET_OUTPUT, OfPort::UNSET.0.into());
        self.forget_connection();
        let name = bridge.name().to_owned();
        let section = self.open(TraceKind::Bridge, || format!("bridge(\"{name}\")"));
        self.bridge = bridge;
        if self.take_for_session(peer) {
            // The other bridge's rules do not see it.
        } else if peer.no_receive || peer.down {
            self.no_output = DropReason::PortNoReceive;
        } else {
            self.go_to_table(peer.number, 0, last, RunMode::Cloned);
            self.end_of_pipeline();
        }
        self.close(section);
        (self.bridge, *self.flow) = (here, *flow);
        (self.was_mpls, self.conntracked) = (was_mpls, conntracked);
        (self.stack, self.action_set) = (stack, action_set);
        tunnel_mask.put(self.wc);
        if bridge.id != here.id {
            self.mirrors = mirrors;
        }
        self.exit = false;
        self.forgive();
    }

    /// A failure of another bridge's pipeline does not end this one's, as in Open vSwitch. What it dropped has its name, and
    /// a shortage is not cached. Work that is used up is so for all bridges.
    fn forgive(&mut self) {
        let Some(failure) = self.failure.take_if(|failure| *failure != Failure::TooMuchWork) else { return };
        self.no_output = failure.drop_reason();
        self.cacheable &= !failure.is_passing();
    }

    /// Sends the packet in its current state to a controller, through the action's meter or the one for all messages to
    /// controllers. Source: OVS ofproto/ofproto-dpif-xlate.c, `xlate_controller_action`.
    pub(super) fn send_to_controller(&mut self, action: &ControllerAction) {
        self.commit();
        // A rule of priority 0 that matches everything is what OpenFlow 1.3 calls a table miss.
        let is_miss = self.rule.is_some_and(|rule| rule.priority == 0 && self.matches_all(rule));
        let reason = match action.reason {
            PacketInReason::Action if is_miss => PacketInReason::ExplicitMiss,
            reason => reason,
        };
        // As in Open vSwitch, options that no rule has asked for are told to controllers as the first packet has them.
        let mut frozen = self.state_to_freeze(self.table, FrozenActions::default(), Vec::new());
        frozen.userdata = action.userdata.clone();
        let Some(recirculation) = self.freeze(frozen) else { return };
        let message = self.message(action, reason, recirculation.id);
        action.meter_id.into_iter().chain([METER_CONTROLLER]).for_each(|id| self.depend_on(Dependency::Meter(id)));
        let meters = &self.bridge.meters;
        let own = action.meter_id.and_then(|id| meters.get(&id));
        match own.or_else(|| meters.get(&METER_CONTROLLER)) {
            // In a sample, so that the meter drops only this message.
            Some(meter) => {
                let actions = [Action::Meter(meter.datapath), message].into();
                self.emit(Action::Sample { probability: u32::MAX, actions });
            }
            None => self.emit(message),
        }
    }

    /// Sends a paused packet to a controller.
    pub(super) fn send_paused(&mut self, pause: &ControllerAction, recirc_id: u32) {
        let message = self.message(pause, pause.reason, recirc_id);
        self.emit(message);
    }

    fn message(&self, action: &ControllerAction, reason: PacketInReason, recirc_id: u32) -> Action {
        let ControllerAction { max_len, controller_id, pause: continuation, .. } = *action;
        Action::Controller {
            reason: reason as u8,
            controller_id,
            max_len,
            cookie: self.cookie,
            recirc_id,
            continuation,
        }
    }

    fn matches_all(&self, rule: &crate::rule::Rule) -> bool {
        let rules = self.bridge.tables[usize::from(rule.table)].rules.as_deref();
        let found = rules.zip(rule.id.get()).and_then(|(rules, id)| Some(rules.match_of(rules.rule(*id)?)));
        found.is_some_and(|matches| matches.is_catchall())
    }
}
