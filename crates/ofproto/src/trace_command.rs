//! `ofproto/trace` and `ofproto/trace-packet-out`: what would happen to a packet, and why.
//!
//! The lines are those of OVS, and the last ones are where its tests look for them. Before `Final flow:` there is a
//! section of our own: for each bit of the megaflow, what looked at it. A packet in hex, or a generated one, has
//! effects as if it had come: MAC entries and rules are learned. Nothing is sent and nothing is credited.

use crate::bridge::{Bridge, SwitchState};
use crate::bridge_config::BridgeId;
use crate::ofproto::Ofproto;
use crate::port::Attach;
use crate::trace::Tracer;
use crate::trace_passes::{Forked, NextStates, parse_state};
use crate::xlate::tags;
use crate::xlate::{Translator, XlateIn, XlateOut, XlateStart};
use crate::xlate_cache::{Push, recirc_ids};
use sluice_action::DatapathFlow;
use sluice_action::{DatapathPortNames, show_actions};
use sluice_fate::{DropReason, Limit};
use sluice_flow::{FlowKey, Match, Metadata, OfPort, PacketKey, PortNames, VlanLimit, extract, layout};
use sluice_ofp::OfAction;
use sluice_packet::headers::ethertype;
use std::collections::VecDeque;

/// Passes traced, at most. Rules may recirculate a packet for ever; OVS's trace does not end then.
const PASSES_MAX: usize = 64;

/// A request for a trace.
struct TraceRequest {
    bridge: BridgeId,
    flow: FlowKey,
    /// Whether there is a packet, which has effects.
    packet: bool,
    packet_len: Option<usize>,
    names: bool,
    actions: Option<Vec<OfAction>>,
    next_states: NextStates,
    /// Without what looked at which bits, as OVS.
    plain: bool,
}

/// The arguments of the command.
struct TraceArguments<'a> {
    texts: Vec<&'a str>,
    generate: bool,
    names: bool,
    next_states: NextStates,
    plain: bool,
}

impl Ofproto {
    /// `ofproto/trace {BRIDGE FLOW | [DATAPATH] DATAPATH-FLOW} [OPTIONS] [-generate | PACKET]`.
    pub fn trace(&self, args: &[&str], now_ms: u64) -> Result<String, String> {
        let arguments = arguments(args)?;
        let request = self.request(&arguments, None, now_ms)?;
        self.run_trace(&request, now_ms)
    }

    /// `ofproto/trace-packet-out BRIDGE FLOW [OPTIONS] [-generate | PACKET] ACTIONS`.
    pub fn trace_packet_out(&self, args: &[&str], now_ms: u64) -> Result<String, String> {
        let (actions, args) = args.split_last().ok_or("Syntax error")?;
        let arguments = arguments(args)?;
        let request = self.request(&arguments, Some(actions), now_ms)?;
        self.run_trace(&request, now_ms)
    }

    /// Logs the trace of a packet whose rules recurse without end, as OVS does: seldom, because it is long.
    #[cold]
    pub(crate) fn log_recursion(&self, key: &PacketKey, now_ms: u64) {
        if !self.0.recursion_traces.admits(now_ms) {
            return;
        }
        let Some((bridge, port)) = self.state().port_of(key) else { return };
        let mut flow = FlowKey::of_packet(key);
        flow.set_number(layout::IN_PORT, port.0.into());
        let (packet, names) = (false, false);
        let next_states = NextStates::new();
        let request =
            TraceRequest { bridge, flow, packet, packet_len: None, names, actions: None, next_states, plain: true };
        if let Ok(text) = self.run_trace(&request, now_ms) {
            tracing::warn!(target: "ofproto_dpif_upcall", "{text}");
        }
    }

    fn request(
        &self,
        arguments: &TraceArguments<'_>,
        actions: Option<&str>,
        now_ms: u64,
    ) -> Result<TraceRequest, String> {
        let (texts, packet) = match &arguments.texts[..] {
            // The last of two or three arguments is a packet if it is hexadecimal.
            [texts @ .., last] if !texts.is_empty() && !arguments.generate => match from_hex(last) {
                Ok(packet) => (texts, Some(packet)),
                Err(error) if texts.len() == 2 => return Err(error),
                Err(_) => (&arguments.texts[..], None),
            },
            texts => (texts, None),
        };
        let state = self.state();
        let (bridge, mut key) = match texts {
            [name, flow] if DatapathFlow::looks_like(flow) && !state.has_datapath(name) => {
                return Err("Cannot find the datapath".to_owned());
            }
            [flow] | [_, flow] if DatapathFlow::looks_like(flow) => self.datapath_flow(&state, flow, now_ms)?,
            [text] => return Err(format!("syntax error at {text} (or the bridge name was omitted)")),
            [bridge, flow] => {
                let bridge = state.bridge_named(bridge).ok_or_else(|| format!("{bridge}: unknown bridge"))?;
                (bridge, exact_flow(flow, &port_names(bridge))?)
            }
            _ => return Err("Syntax error".to_owned()),
        };
        let ports = port_names(bridge);
        if let Some(bytes) = &packet {
            key = packet_flow(&key, bytes, state.vlan_limit)?;
        }
        let actions = actions.map(|text| OfAction::parse_list(text, &ports).map_err(|e| e.to_string())).transpose()?;
        if let Some(actions) = &actions {
            crate::check::check_actions(0, actions).map_err(|e| format!("Bad actions: {e}"))?;
        }
        let has_packet = packet.is_some() || arguments.generate;
        let next_states = arguments.next_states.clone();
        Ok(TraceRequest {
            bridge: bridge.id,
            flow: key,
            packet: has_packet,
            packet_len: packet.map(|bytes| bytes.len()),
            names: arguments.names,
            actions,
            next_states,
            plain: arguments.plain,
        })
    }

    /// Traces the packet, then its recirculated copies in order.
    fn run_trace(&self, request: &TraceRequest, now_ms: u64) -> Result<String, String> {
        let (mut text, forked) = self.trace_pass(request, &request.flow, request.actions.as_deref(), now_ms)?;
        let mut waiting = VecDeque::from(forked);
        let mut next_states = request.next_states.clone();
        for _ in 0..PASSES_MAX {
            let Some(mut pass) = waiting.pop_front() else { break };
            text += &pass.resume(&mut next_states);
            let (more, forked) = self.trace_pass(request, &pass.flow, None, now_ms)?;
            text += &more;
            waiting.extend(forked);
        }
        if !waiting.is_empty() {
            Limit::TraceText.hit();
            text += &format!("\nthe trace is cut here, after {PASSES_MAX} passes\n");
        }
        self.0.recirculations.unshare();
        Ok(text)
    }

    /// Traces one pass; returns the text and the copies that recirculate.
    fn trace_pass(
        &self,
        request: &TraceRequest,
        flow: &FlowKey,
        actions: Option<&[OfAction]>,
        now_ms: u64,
    ) -> Result<(String, Vec<Forked>), String> {
        let mut tracer = Tracer::new(request.names);
        let &TraceRequest { packet: side_effects, packet_len, .. } = request;
        let start = XlateStart::Bridge(request.bridge, flow);
        let xin = XlateIn { start, now_ms, side_effects, packet_len, actions, in_packet_out: false, may_wait: true };
        let state = self.state();
        let xout = Translator::run(&state, &self.0, &xin, &mut PacketKey::default(), Some(&mut tracer))
            .ok_or("the bridge has gone")?;
        let bridge = state.bridge(request.bridge).ok_or("the bridge has gone")?;
        let of_names = if request.names { port_names(bridge) } else { PortNames::NONE };
        let mut names = DatapathPortNames::default();
        if request.names {
            let ports = state.bridges.iter().flat_map(|b| b.ports.values());
            ports.for_each(|port| match &port.attach {
                Attach::Datapath(number) => names.insert(*number, &port.name),
                Attach::Tunnel(tunnel) => names.insert(tunnel.backend, &tunnel.config.backend_name()),
                Attach::Patch(_) | Attach::Nothing => {}
            });
        }
        drop(state);
        if request.packet {
            let tcp_flags = flow.number(layout::TCP_FLAGS) as u16;
            let seen = Push { packets: 1, bytes: 0, tcp_flags, used_ms: now_ms };
            let effects: Vec<_> = xout.xcache.iter().filter_map(|event| event.effect(seen)).collect();
            self.apply(&mut self.writer(), effects);
        }
        let text = report(&tracer, &xout, &of_names, &names, request.plain);
        self.0.recirculations.note_dropped(recirc_ids(&xout.xcache));
        // Without a packet nothing is sent to a controller, and the trace says so.
        let text = if request.packet { text } else { text.replace("dont_send=0", "dont_send=1") };
        Ok((text, tracer.forked))
    }
}

fn report(tracer: &Tracer, xout: &XlateOut, ports: &PortNames, names: &DatapathPortNames, plain: bool) -> String {
    let keys = xout.trace.as_deref().expect("invariant: a translation that is traced tells its keys");
    let show = |matches: Match| matches.display(ports, sluice_flow::DEFAULT_PRIORITY).to_string();
    let mut out = format!("Flow: {}\n{}", show(Match::of_packet(&keys.original)), tracer.text());
    let reasons = tracer.reasons(&keys.wc, &keys.original, ports);
    if !reasons.is_empty() && !plain {
        out += &format!("\nThe megaflow matches, because these looked at it:\n{reasons}");
    }
    let last = if keys.flow == keys.original { "unchanged".to_owned() } else { show(Match::of_packet(&keys.flow)) };
    out += &format!("\nFinal flow: {last}\n");
    // OVS prints the flow here without the output of the action set.
    let mut came = keys.original.clone();
    came.set_number(layout::ACTSET_OUTPUT, 0);
    out += &format!("Megaflow: {}\n", show(Match::of_megaflow(&keys.wc, &came)));
    out += &format!("Datapath actions: {}", show_actions(&xout.actions, names));
    if let Some(failure) = xout.failure {
        out += &format!("\nTranslation failed ({}), packet is dropped.\n", failure.text());
    } else if xout.is_slow || xout.is_bfd || xout.is_lacp {
        out += "\nThis flow is handled by the userspace slow path because it:\n";
        if xout.is_bfd {
            out += "  - Consists of BFD packets.\n";
        }
        if xout.is_lacp {
            out += "  - Consists of LACP packets.\n";
        }
        if xout.is_slow {
            out += "  - Uses action(s) not supported by datapath.\n";
        }
    }
    out
}

fn arguments<'a>(args: &[&'a str]) -> Result<TraceArguments<'a>, String> {
    let mut out = TraceArguments {
        texts: Vec::new(),
        generate: false,
        names: false,
        next_states: NextStates::new(),
        plain: false,
    };
    let mut rest = args.iter();
    while let Some(&arg) = rest.next() {
        match arg {
            "-generate" | "--generate" => out.generate = true,
            "-names" | "--names" => out.names = true,
            "--plain" => out.plain = true,
            "-consistent" | "--consistent" => {}
            // The payload of a generated packet does not matter: no field reads it.
            "--l7" | "--l7-len" => _ = rest.next().ok_or_else(|| format!("Missing argument for option {arg}"))?,
            "--ct-next" => {
                let state = rest.next().ok_or_else(|| format!("Missing argument for option {arg}"))?;
                out.next_states.push_back(parse_state(state)?);
            }
            _ if arg.starts_with('-') => return Err(format!("{arg}: unknown option")),
            _ if out.texts.len() == 3 => return Err("too many arguments".to_owned()),
            _ => out.texts.push(arg),
        }
    }
    Ok(out)
}

/// The names of a bridge's ports.
pub(crate) fn port_names(bridge: &Bridge) -> PortNames {
    bridge.ports.values().map(|p| (p.name.as_str(), p.number)).collect()
}

impl Ofproto {
    /// The bridge and the key of datapath flow text.
    fn datapath_flow<'s>(
        &self,
        state: &'s SwitchState,
        text: &str,
        now_ms: u64,
    ) -> Result<(&'s Bridge, FlowKey), String> {
        let port = |name: &str| {
            let mut ports = state.bridges.iter().flat_map(|b| b.ports.values());
            ports.find(|p| p.name == name).and_then(|p| Some(p.datapath()?.0))
        };
        let flow = DatapathFlow::parse(text, &port).map_err(|e| e.to_string())?;
        let (in_port, recirc_id) = (flow.key.in_port(), flow.key.recirc_id());
        if recirc_id != 0 && self.0.recirculations.thaw(recirc_id, now_ms).is_none() {
            return Err(format!("no recirculation data for recirc_id {recirc_id:#x}"));
        }
        let (id, port) = state.port_of(&flow.key).ok_or_else(|| match state.why_no_port(&flow.key) {
            DropReason::NoTunnelPort => "no OpenFlow tunnel port for this packet".to_owned(),
            _ => format!("no OpenFlow port for datapath port {in_port}"),
        })?;
        let bridge = state.bridge(id).ok_or("the bridge has gone")?;
        let mut key = FlowKey::of_packet(&flow.key);
        tags::limit(&mut key, state.vlan_limit);
        let options = bridge.tunnel_options.read(&flow.key.options());
        key.tun_metadata = options.map_err(|_| "Failed to parse Geneve options")?;
        key.set_number(layout::IN_PORT, port.0.into());
        key.set_number(layout::SKB_PRIORITY, flow.skb_priority.into());
        Ok((bridge, key))
    }
}

/// The key of flow text; fields that it does not mention are zero, but for the input port, which is none.
fn exact_flow(text: &str, ports: &PortNames) -> Result<FlowKey, String> {
    let matches = Match::parse(text, ports).map_err(|e| format!("Bad openflow flow syntax: {e}"))?;
    let mut key = matches.key;
    if matches.mask.number(layout::IN_PORT) == 0 {
        key.set_number(layout::IN_PORT, OfPort::NONE.0.into());
    }
    for (tpid, tci) in [(layout::VLAN0_TPID, layout::VLAN0_TCI), (layout::VLAN1_TPID, layout::VLAN1_TCI)] {
        if key.number(tci) != 0 && key.number(tpid) == 0 {
            key.set_number(tpid, ethertype::VLAN.into());
        }
    }
    Ok(key)
}

/// The key of a packet, with the metadata of the flow text.
fn packet_flow(flow: &FlowKey, bytes: &[u8], vlan_limit: VlanLimit) -> Result<FlowKey, String> {
    let mut key = PacketKey::ZERO;
    extract(bytes, &Metadata::of_port(0).with_vlan_limit(vlan_limit), &mut key).map_err(|e| e.to_string())?;
    let mut out = FlowKey::of_packet(&key);
    use layout::{DP_HASH, IN_PORT, PKT_MARK, RECIRC_ID, SKB_PRIORITY, TUN_ID};
    for span in [IN_PORT, RECIRC_ID, DP_HASH, SKB_PRIORITY, PKT_MARK, TUN_ID] {
        out.set(span, flow.get(span));
    }
    Ok(out)
}

/// A packet from hex digits, spaces ignored.
fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).ok_or_else(|| "Trailing garbage in packet data".to_owned()))
        .collect::<Result<_, _>>()?;
    if !digits.len().is_multiple_of(2) || digits.len() < 28 {
        return Err("Packet data too short for Ethernet".to_owned());
    }
    Ok(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// A port's number as OVS prints it.
pub(crate) fn port_text(port: OfPort) -> String {
    PortNames::NONE.display(port).to_string()
}
