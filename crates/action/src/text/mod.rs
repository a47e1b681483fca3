//! Megaflows and actions as `dpctl/dump-flows` and `ofproto/trace` print them.
//!
//! Source: the text of OVS 3.1 (lib/odp-util.c), where a key is a list of attributes, each left out where its mask has
//! no bit, unless everything was asked for. This datapath knows no packets but Ethernet frames, so the packet type is
//! a constant; queue priorities are not matched on.

mod actions;
mod actions_parse;
mod ct;
mod ct_parse;
mod datapath_parse;
mod fields;
mod geneve_parse;
mod key;
mod tunnel;

pub use actions::show_actions;
pub use actions_parse::parse_actions;
pub use datapath_parse::DatapathFlow;
pub use geneve_parse::parse_option_filter;
pub use key::{show_flow, show_packet_key, show_put_flow};

use crate::{FlowStats, PortNo};
use std::collections::HashMap;
use std::fmt;

/// Names of datapath ports.
#[derive(Clone, Debug, Default)]
pub struct DatapathPortNames {
    ports: HashMap<PortNo, String>,
}

impl DatapathPortNames {
    /// Names a port.
    pub fn insert(&mut self, port: PortNo, name: &str) {
        self.ports.insert(port, name.to_owned());
    }

    /// A port's name, or its number if it has none.
    pub fn display(&self, port: PortNo) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| match self.ports.get(&port) {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", port.0),
        })
    }
}

/// A megaflow's identity: `ufid:xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
pub fn show_ufid(ufid: u128) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let (a, b, c) = (ufid >> 96, ufid >> 80 & 0xffff, ufid >> 64 & 0xffff);
        write!(f, "ufid:{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", ufid >> 48 & 0xffff, ufid & 0xffff_ffff_ffff)
    })
}

/// What a megaflow carried, at the switch's time `now_ms`.
pub fn show_stats(stats: FlowStats, now_ms: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        write!(f, "packets:{}, bytes:{}, used:", stats.packets, stats.bytes)?;
        match stats.used_ms {
            Some(used_ms) => write!(f, "{:.3}s", now_ms.saturating_sub(used_ms) as f64 / 1000.0)?,
            None => f.write_str("never")?,
        }
        if stats.tcp_flags == 0 { Ok(()) } else { write!(f, ", flags:{}", show_tcp_flags(stats.tcp_flags)) }
    })
}

/// TCP flags as letters, in OVS's order.
fn show_tcp_flags(flags: u16) -> impl fmt::Display {
    const LETTERS: [(u16, &str); 12] = [
        (0x002, "S"),
        (0x001, "F"),
        (0x008, "P"),
        (0x004, "R"),
        (0x020, "U"),
        (0x010, "."),
        (0x040, "E"),
        (0x080, "C"),
        (0x100, "N"),
        (0x200, "[200]"),
        (0x400, "[400]"),
        (0x800, "[800]"),
    ];
    fmt::from_fn(move |f| {
        LETTERS.iter().filter(|(bit, _)| flags & bit != 0).try_for_each(|(_, letter)| f.write_str(letter))
    })
}

#[cfg(test)]
mod tests;
