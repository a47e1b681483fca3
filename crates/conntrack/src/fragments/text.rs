//! The text of `dpctl/ipf-get-status`, word for word as Open vSwitch 3.1 prints it (lib/dpctl.c, lib/ipf.c).

use super::{FragmentFamily, FragmentList, FragmentStatus};
use sluice_packet::headers::ethertype;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Settings and counters.
pub fn status(status: &FragmentStatus) -> String {
    let [v4, v6] = &status.families;
    let mut out = String::new();
    let mut line = |name: &str, value: u64| {
        let _ = writeln!(out, "        {name}: {value}");
    };
    line("v4 enabled", v4.enabled.into());
    line("v6 enabled", v6.enabled.into());
    line("max num frags (v4/v6)", status.held_max as u64);
    line("num frag", status.held as u64);
    for (name, FragmentFamily { size_min, counts, .. }) in [("v4", v4), ("v6", v6)] {
        line(&format!("min {name} frag size"), *size_min as u64);
        line(&format!("{name} frags accepted"), counts.accepted);
        line(&format!("{name} frags completed"), counts.completed);
        line(&format!("{name} frags expired"), counts.expired);
        line(&format!("{name} frags too small"), counts.too_small);
        line(&format!("{name} frags overlapped"), counts.overlapping);
        line(&format!("{name} frags purged"), counts.purged);
    }
    format!("        Fragmentation Module Status\n        ---------------------------\n{out}")
}

/// The packets of which fragments are held (`-m`).
pub fn lists(lists: &[FragmentList]) -> String {
    let mut out = String::from("\n        Fragment Lists:\n\n");
    for FragmentList { key, fragments, progress } in lists {
        let addr = |addr: [u8; 16]| match key.v6 {
            true => Ipv6Addr::from(addr).to_string(),
            false => Ipv4Addr::new(addr[0], addr[1], addr[2], addr[3]).to_string(),
        };
        let dl_type = if key.v6 { ethertype::IPV6 } else { ethertype::IPV4 };
        let (src, dst) = (addr(key.src), addr(key.dst));
        let _ = writeln!(
            out,
            "(src={src},dst={dst},recirc_id={},ip_id={},dl_type={dl_type:#x},zone={},nw_proto={},num_fragments={fragments},state={})",
            key.recirc_id,
            key.id,
            key.zone,
            key.proto,
            progress.name()
        );
    }
    out
}
