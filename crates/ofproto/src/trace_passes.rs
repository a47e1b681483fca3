//! The passes after `ct(table=…)` in a trace. A traced packet has no connection, so its state is given with
//! `--ct-next`, or is that of a new connection.

use sluice_flow::{FieldId, FlowKey};
use sluice_flow::{ct_state, layout};
use sluice_ofp::ofpact::{Nat, NatAddresses, NatKind};
use std::collections::VecDeque;

/// Width of the lines above and below a pass's title.
const LINE: usize = 79;

/// A copy of the packet that recirculates.
#[derive(Clone, Debug)]
pub(crate) struct Forked {
    pub recirc_id: u32,
    /// The key at the `ct`, with its zone.
    pub flow: FlowKey,
    pub nat: Option<Nat>,
}

/// The states of the passes to come, in order.
pub(crate) type NextStates = VecDeque<u8>;

/// Parses the argument of `--ct-next`, such as `trk,est`. The error texts are OVS's.
pub(crate) fn parse_state(text: &str) -> Result<u8, String> {
    let mut state = 0;
    for name in text.split([',', ' ']).filter(|name| !name.is_empty()) {
        let bit = ct_state::NAMES.iter().position(|known| *known == name);
        state |= 1u8 << bit.ok_or_else(|| format!("{name}: unknown connection tracking state flag"))?;
    }
    let has = |bits: u8| state & bits != 0;
    let checks = [
        (state != 0 && !has(ct_state::TRACKED), "If \"trk\" is unset, no other flags are set"),
        (
            has(ct_state::INVALID) && has(!(ct_state::TRACKED | ct_state::INVALID)),
            "when \"inv\" is set, only \"trk\" may also be set",
        ),
        (has(ct_state::NEW) && has(ct_state::ESTABLISHED), "\"new\" and \"est\" are mutually exclusive"),
        (has(ct_state::NEW) && has(ct_state::REPLY), "\"new\" and \"rpy\" are mutually exclusive"),
    ];
    let wrong = checks.iter().filter(|(is_wrong, _)| *is_wrong);
    let text: String =
        wrong.map(|(_, why)| format!("{}: invalid connection state: {why}\n", show_state(state))).collect();
    if text.is_empty() { Ok(state) } else { Err(text) }
}

fn show_state(state: u8) -> String {
    let names = ct_state::NAMES.iter().enumerate().filter(|(i, _)| state >> i & 1 != 0);
    names.map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

impl Forked {
    /// Sets the key's connection state and, for NAT, its addresses to the first of the range. Returns the pass's title.
    pub fn resume(&mut self, next: &mut NextStates) -> String {
        let line = "=".repeat(LINE);
        let mut out = format!("\n\n{line}\nrecirc({:#x})", self.recirc_id);
        let state = match next.pop_front() {
            Some(state) => {
                out += &format!(" - resume conntrack with ct_state={}", show_state(state));
                state
            }
            None => {
                out += " - resume conntrack with default ct_state=trk|new (use --ct-next to customize)";
                ct_state::TRACKED | ct_state::NEW
            }
        };
        out.push('\n');
        self.flow.set_number(layout::CT_STATE, state.into());
        self.flow.set_number(layout::RECIRC_ID, self.recirc_id.into());
        if let Some(nat) = self.nat {
            let before = ends(&self.flow, &nat);
            self.translate(&nat);
            out += "Replacing src/dst IP/ports to simulate NAT:\n";
            out += &format!(" Initial flow: {before}\n Modified flow: {}\n", ends(&self.flow, &nat));
        }
        out + &line + "\n\n"
    }

    fn translate(&mut self, nat: &Nat) {
        let Some(kind) = nat.kind else { return };
        let (v4, v6, port) = match kind {
            NatKind::Src => (layout::NW_SRC, layout::IPV6_SRC, layout::TP_SRC),
            NatKind::Dst => (layout::NW_DST, layout::IPV6_DST, layout::TP_DST),
        };
        match nat.addresses {
            Some(NatAddresses::V4(first, _)) => self.flow.set(v4, &first.octets()),
            Some(NatAddresses::V6(first, _)) => self.flow.set(v6, &first.octets()),
            None => return,
        }
        if nat.ports.0 != 0 {
            self.flow.set_number(port, nat.ports.0.into());
        }
    }
}

/// Addresses and ports of the address family of the NAT; nothing if it has no addresses.
fn ends(flow: &FlowKey, nat: &Nat) -> String {
    let show = |field: FieldId| field.field().display(field.field().get(flow)).to_string();
    let ports = (flow.number(layout::TP_SRC), flow.number(layout::TP_DST));
    match nat.addresses {
        Some(NatAddresses::V4(..)) => {
            let (src, dst) = (show(FieldId::Ipv4Src), show(FieldId::Ipv4Dst));
            format!("nw_src={src},tp_src={},nw_dst={dst},tp_dst={}", ports.0, ports.1)
        }
        Some(NatAddresses::V6(..)) => {
            let (src, dst) = (show(FieldId::Ipv6Src), show(FieldId::Ipv6Dst));
            format!("ipv6_src=[{src}],tp_src={},ipv6_dst=[{dst}],tp_dst={}", ports.0, ports.1)
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_and_checked_in_open_vswitchs_words() {
        assert_eq!(parse_state("trk,est"), Ok(ct_state::TRACKED | ct_state::ESTABLISHED));
        assert_eq!(parse_state("est rpl,trk").map(show_state), Ok("est|rpl|trk".to_owned()));
        assert_eq!(parse_state("odd"), Err("odd: unknown connection tracking state flag".to_owned()));
        let untracked = "new: invalid connection state: If \"trk\" is unset, no other flags are set\n";
        assert_eq!(parse_state("new"), Err(untracked.to_owned()));
        assert!(parse_state("trk,inv,new").is_err() && parse_state("trk,new,est").is_err());
        assert!(parse_state("trk,new,rpl").is_err());
    }
}
