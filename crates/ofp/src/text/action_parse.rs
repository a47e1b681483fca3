//! Reading actions.

use super::action_check::{self, Placed};
use super::{action_args, ct_args, learn_args};
use crate::OfAction;
use crate::consistency::Within;
use sluice_flow::field::{FieldId, ones};
use sluice_flow::text::{Delimiter, Pair, Piece, SyntaxError, number, value};
use sluice_flow::{OfPort, PortNames, SubField};

/// Actions may stand within actions so deep, no deeper.
/// Source: the bound of Open vSwitch's parser is of the same order (100).
const MAX_DEPTH: usize = 64;

/// Reads lists of actions.
#[derive(Clone, Copy)]
pub(crate) struct ActionReader<'p> {
    pub ports: &'p PortNames,
    depth: usize,
}

impl<'p> ActionReader<'p> {
    pub fn new(ports: &'p PortNames) -> Self {
        ActionReader { ports, depth: 0 }
    }

    /// Reads a list of actions and checks that they may stand together.
    pub fn list(self, text: Piece<'_>, within: Within) -> Result<Vec<OfAction>, SyntaxError> {
        let placed = self.placed_list(text, within)?;
        Ok(placed.into_iter().map(|p| p.action).collect())
    }

    /// Reads a list of actions with their places.
    pub fn placed_list<'a>(self, text: Piece<'a>, within: Within) -> Result<Vec<Placed<'a>>, SyntaxError> {
        let mut placed = Vec::new();
        let mut drop = None;
        let mut rest = text;
        while let Some(pair) = rest.next_pair()? {
            if pair.key.text.eq_ignore_ascii_case("drop") && pair.delimiter == Delimiter::None {
                drop = Some(pair.key);
                continue;
            }
            self.one(&pair, &mut placed)?;
        }
        if let (Some(drop), false) = (drop, placed.is_empty()) {
            return Err(drop.conflict("drop beside other actions", "drop alone, or actions without it"));
        }
        action_check::order(&placed, within)?;
        Ok(placed)
    }

    /// Reads a list within an action.
    pub fn nested(self, text: Piece<'_>, within: Within) -> Result<Vec<OfAction>, SyntaxError> {
        if self.depth >= MAX_DEPTH {
            return Err(text.conflict(
                format!("actions nested {MAX_DEPTH} deep"),
                format!("less than {MAX_DEPTH} actions within one another"),
            ));
        }
        ActionReader { depth: self.depth + 1, ..self }.list(text, within)
    }

    /// Reads one action; a load of more than 64 bits becomes several.
    fn one<'a>(self, pair: &Pair<'a>, to: &mut Vec<Placed<'a>>) -> Result<(), SyntaxError> {
        let name = pair.key.text.to_ascii_lowercase();
        if name != "check_pkt_larger" {
            sluice_flow::text::expect_no_tail(pair)?;
        }
        if name == "load" {
            to.extend(load(pair.value)?.into_iter().map(|action| Placed { action, at: pair.key }));
            return Ok(());
        }
        let action = match self.output(&name, pair).transpose()? {
            Some(action) => Some(action),
            None => match header(&name, pair).transpose()? {
                Some(action) => Some(action),
                None => self.other(&name, pair).transpose()?,
            },
        };
        let action = match action {
            Some(action) => action,
            None => self.port(pair)?,
        };
        // On the wire, writing nothing to the action set is saying nothing.
        if action != OfAction::WriteActions(Vec::new()) {
            to.push(Placed { action, at: pair.key });
        }
        Ok(())
    }

    /// A port's number or name alone.
    fn port(self, pair: &Pair<'_>) -> Result<OfAction, SyntaxError> {
        match self.ports.parse(pair.key.text) {
            Some(port) if pair.delimiter == Delimiter::None => {
                Ok(OfAction::Output { port: outputs_to(pair.key, port)?, max_len: 0 })
            }
            _ => Err(pair.key.error("an action, or the number or name of a port")),
        }
    }

    fn output(self, name: &str, pair: &Pair<'_>) -> Option<Result<OfAction, SyntaxError>> {
        let value = pair.value;
        Some(match name {
            "output" => self.output_to(pair),
            "controller" => action_args::controller(value),
            "enqueue" => self.enqueue(value),
            "group" => number::u32(value).map(OfAction::Group),
            "bundle" => action_args::bundle(value, self.ports, false),
            "bundle_load" => action_args::bundle(value, self.ports, true),
            "resubmit" => action_args::resubmit(value, self.ports),
            "in_port" => Ok(OfAction::Output { port: OfPort::IN_PORT, max_len: 0 }),
            _ => return None,
        })
    }

    fn output_to(self, pair: &Pair<'_>) -> Result<OfAction, SyntaxError> {
        let value = pair.value;
        if value.text.contains("port") && value.text.contains("max_len") {
            return action_args::output_trunc(value, self.ports);
        }
        if let Some(port) = self.ports.parse(value.text) {
            let max_len = if port == OfPort::CONTROLLER { u16::MAX } else { 0 };
            return Ok(OfAction::Output { port: outputs_to(value, port)?, max_len });
        }
        match value::parse_subfield(value) {
            Ok(src) => Ok(OfAction::OutputReg { src, max_len: u16::MAX }),
            Err(_) => Err(value.error("a port number or name, or a field that holds a port number")),
        }
    }

    fn enqueue(self, value: Piece<'_>) -> Result<OfAction, SyntaxError> {
        let wrong = || value.error("PORT:QUEUE");
        // A port's name may have a q of its own.
        let end = value.text.rfind([':', ',']).or_else(|| value.text.rfind('q')).ok_or_else(wrong)?;
        let (port, queue) = value.split_at(end);
        let number = self.ports.parse_piece(port)?;
        if !number.is_ordinary() && number != OfPort::IN_PORT && number != OfPort::LOCAL {
            return Err(port.error("an ordinary port, IN_PORT or LOCAL"));
        }
        Ok(OfAction::Enqueue { port: number, queue: number::u32(queue.split_at(1).1)? })
    }

    fn other(self, name: &str, pair: &Pair<'_>) -> Option<Result<OfAction, SyntaxError>> {
        let value = pair.value;
        Some(match name {
            "set_field" => self.set_field(value),
            "move" => move_bits(value),
            "push" => value::parse_subfield(value).map(OfAction::StackPush),
            "pop" => writable(value).map(OfAction::StackPop),
            // Only options of a tunnel can be deleted, and there are no fields for those.
            "delete_field" => Err(value.error("a tunnel option (tun_metadata), of which this switch has none")),
            "encap" => action_args::encap(value),
            "decap" => action_args::decap(value),
            "learn" => learn_args::learn(value, self.ports),
            "conjunction" => action_args::conjunction(value),
            "multipath" => action_args::multipath(value),
            "note" => number::hex_bytes(value).map(note),
            "exit" => Ok(OfAction::Exit),
            "sample" => action_args::sample(value, self.ports),
            "clone" => self.nested(value, Within::Clone).map(OfAction::Clone),
            "ct" => ct_args::conntrack(value, self),
            "ct_clear" => Ok(OfAction::CtClear),
            "nat" => ct_args::nat(value).map(OfAction::Nat),
            "check_pkt_larger" => check_pkt_larger(pair),
            "meter" => number::u32(value).map(OfAction::Meter),
            "clear_actions" => Ok(OfAction::ClearActions),
            "write_actions" => self.nested(value, Within::WriteActions).map(OfAction::WriteActions),
            "write_metadata" => write_metadata(value),
            "goto_table" => table(value).map(OfAction::GotoTable),
            "apply_actions" => Err(pair.key.error("the actions themselves, since applying them is the default")),
            _ => return None,
        })
    }

    fn set_field(self, text: Piece<'_>) -> Result<OfAction, SyntaxError> {
        let (value, name) = arrow(text)?;
        let field = value::parse_field_name(name)?;
        if !field.writable {
            return Err(name.error("a field that can be written"));
        }
        let (number, mask) = value::parse(field, value, self.ports)?;
        if field.id == FieldId::DlVlan && number > 0xfff {
            return Err(value.error("a number of at most 12 bits"));
        }
        Ok(OfAction::SetField { field: field.id, value: number & mask, mask })
    }
}

/// Actions that change headers.
fn header(name: &str, pair: &Pair<'_>) -> Option<Result<OfAction, SyntaxError>> {
    let value = pair.value;
    let small = |bits| number::integer(value, bits);
    Some(match name {
        "mod_vlan_vid" | "set_vlan_vid" => {
            small(12).map(|vid| OfAction::SetVlanVid { vid: vid as u16, push_if_needed: name == "mod_vlan_vid" })
        }
        "mod_vlan_pcp" | "set_vlan_pcp" => {
            small(3).map(|pcp| OfAction::SetVlanPcp { pcp: pcp as u8, push_if_needed: name == "mod_vlan_pcp" })
        }
        "strip_vlan" => Ok(OfAction::StripVlan),
        "pop_vlan" => Ok(OfAction::PopVlan),
        "push_vlan" => ethertype(value, &[0x8100, 0x88a8]).map(|tpid| OfAction::PushVlan { tpid }),
        "mod_dl_src" => number::mac(value).map(OfAction::ModDlSrc),
        "mod_dl_dst" => number::mac(value).map(OfAction::ModDlDst),
        "mod_nw_src" => number::ipv4(value).map(OfAction::ModNwSrc),
        "mod_nw_dst" => number::ipv4(value).map(OfAction::ModNwDst),
        "mod_nw_tos" => small(8).and_then(|tos| match tos & 3 {
            0 => Ok(OfAction::ModNwTos(tos as u8)),
            _ => Err(value.error("a multiple of 4 of at most 252")),
        }),
        "mod_nw_ecn" => small(2).map(|ecn| OfAction::ModNwEcn(ecn as u8)),
        "mod_nw_ttl" | "set_nw_ttl" => number::u8(value).map(OfAction::ModNwTtl),
        "mod_tp_src" => number::u16(value).map(OfAction::ModTpSrc),
        "mod_tp_dst" => number::u16(value).map(OfAction::ModTpDst),
        "dec_ttl" => dec_ttl(value),
        "set_mpls_label" => small(20).map(|label| OfAction::SetMplsLabel(label as u32)),
        "set_mpls_tc" => small(3).map(|tc| OfAction::SetMplsTc(tc as u8)),
        "set_mpls_ttl" => number::u8(value).map(OfAction::SetMplsTtl),
        "dec_mpls_ttl" => Ok(OfAction::DecMplsTtl),
        "push_mpls" => ethertype(value, &[0x8847, 0x8848]).map(|ethertype| OfAction::PushMpls { ethertype }),
        "pop_mpls" => number::u16(value).map(|ethertype| OfAction::PopMpls { ethertype }),
        "dec_nsh_ttl" => Ok(OfAction::DecNshTtl),
        "set_tunnel" => number::u64(value).map(|id| OfAction::SetTunnel { id, wide: id > u64::from(u32::MAX) }),
        "set_tunnel64" => number::u64(value).map(|id| OfAction::SetTunnel { id, wide: true }),
        "set_queue" => number::u32(value).map(OfAction::SetQueue),
        "pop_queue" => Ok(OfAction::PopQueue),
        "fin_timeout" => action_args::fin_timeout(value),
        _ => return None,
    })
}

fn ethertype(text: Piece<'_>, allowed: &[u16]) -> Result<u16, SyntaxError> {
    let names = || allowed.iter().map(|t| format!("{t:#06x}")).collect::<Vec<_>>().join(" or ");
    match number::u16(text) {
        Ok(n) if allowed.contains(&n) => Ok(n),
        _ => Err(text.error(names())),
    }
}

fn dec_ttl(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let ids = text.words(&[',', ' ']);
    if ids.is_empty() {
        return Ok(OfAction::DecTtl { controllers: vec![0], listed: false });
    }
    let controllers = ids.into_iter().map(number::u16).collect::<Result<_, _>>()?;
    Ok(OfAction::DecTtl { controllers, listed: true })
}

/// Splits `VALUE->FIELD`.
pub(crate) fn arrow<'a>(text: Piece<'a>) -> Result<(Piece<'a>, Piece<'a>), SyntaxError> {
    text.split_once("->").ok_or_else(|| text.error("VALUE->FIELD"))
}

/// Reads bits that an action may change.
pub(crate) fn writable(text: Piece<'_>) -> Result<SubField, SyntaxError> {
    let sub = value::parse_subfield(text)?;
    if sub.field.field().writable { Ok(sub) } else { Err(text.error("a field that can be written")) }
}

fn load(text: Piece<'_>) -> Result<Vec<OfAction>, SyntaxError> {
    let (value, name) = arrow(text)?;
    let dst = writable(name)?;
    let value = number::integer(value, dst.n_bits)?;
    let pieces = (0..dst.n_bits).step_by(64).map(|start| {
        let part = SubField { start: dst.start + start, n_bits: (dst.n_bits - start).min(64), ..dst };
        OfAction::Load { dst: part, value: value >> start & ones(part.n_bits) }
    });
    Ok(pieces.collect())
}

pub(crate) fn move_bits(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let (src, dst) = arrow(text)?;
    let (from, to) = (value::parse_subfield(src)?, writable(dst)?);
    if from.n_bits != to.n_bits {
        return Err(dst.conflict(
            format!("{} bits to be moved to {}", from.n_bits, to.n_bits),
            "as many bits behind the -> as before it",
        ));
    }
    Ok(OfAction::Move { src: from, dst: to })
}

/// Notes are as long as they are on the wire: six bytes, or eight more each time.
fn note(mut bytes: Vec<u8>) -> OfAction {
    bytes.resize(bytes.len().saturating_sub(6).next_multiple_of(8) + 6, 0);
    OfAction::Note(bytes)
}

fn check_pkt_larger(pair: &Pair<'_>) -> Result<OfAction, SyntaxError> {
    // Open vSwitch also takes `check_pkt_larger:LEN->FIELD[BIT]`.
    let (len, dst) = match pair.delimiter {
        Delimiter::Parenthesis => {
            (pair.value, pair.tail.strip_prefix("->").ok_or_else(|| pair.tail.error("->FIELD[BIT]"))?)
        }
        _ => arrow(pair.value)?,
    };
    let pkt_len = number::u16(len)?;
    let bit = writable(dst)?;
    if bit.n_bits != 1 { Err(dst.error("a single bit")) } else { Ok(OfAction::CheckPktLarger { dst: bit, pkt_len }) }
}

fn write_metadata(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let (value, mask) = match text.split_once("/") {
        Some((value, mask)) => (value, number::u64(mask)?),
        None => (text, u64::MAX),
    };
    Ok(OfAction::WriteMetadata { metadata: number::u64(value)?, mask })
}

/// Reads the number of a table, 0 to 254.
pub(crate) fn table(text: Piece<'_>) -> Result<u8, SyntaxError> {
    match number::u8(text) {
        Ok(n) if n < 255 => Ok(n),
        _ => Err(text.error("a table number, 0 to 254")),
    }
}

/// Refuses ports that nothing can be sent to.
pub(crate) fn outputs_to(text: Piece<'_>, port: OfPort) -> Result<OfPort, SyntaxError> {
    if port.can_be_sent_to() {
        Ok(port)
    } else {
        Err(text.error("a port that can be sent to (below 0xff00, or IN_PORT, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL)"))
    }
}
