//! Commands about bonds. Texts and errors are OVS's. Source: OVS ofproto/bond.c, lib/dpif-netdev.c.

use super::Reply;
use sluice_bond::{Bond, bucket_of_source};
use sluice_flow::Mac;
use sluice_vswitch::Switch;

/// `bond/list`.
pub fn list(switch: &Switch, _: &[&str]) -> Reply {
    Ok(switch.list_bonds())
}

/// `bond/show [PORT]`.
pub fn show(switch: &Switch, args: &[&str]) -> Reply {
    switch.show_bonds(args.first().copied()).ok_or_else(|| "no such bond".to_owned())
}

/// `bond/migrate PORT HASH MEMBER`.
pub fn migrate(switch: &Switch, args: &[&str]) -> Reply {
    command(switch, args[0], |bond| bond.migrate(args[1], args[2]))
}

/// `bond/set-active-member PORT MEMBER`.
pub fn set_active_member(switch: &Switch, args: &[&str]) -> Reply {
    command(switch, args[0], |bond| bond.make_active(args[1]))
}

/// `bond/enable-member PORT MEMBER`.
pub fn enable_member(switch: &Switch, args: &[&str]) -> Reply {
    command(switch, args[0], |bond| bond.force_enabled(args[1], true))
}

/// `bond/disable-member PORT MEMBER`.
pub fn disable_member(switch: &Switch, args: &[&str]) -> Reply {
    command(switch, args[0], |bond| bond.force_enabled(args[1], false))
}

fn command(switch: &Switch, name: &str, change: impl FnOnce(&mut Bond) -> Result<&'static str, &'static str>) -> Reply {
    switch.command_bond(name, change).map(str::to_owned).map_err(str::to_owned)
}

/// `dpif-netdev/bond-show [DP]`.
pub fn show_tables(switch: &Switch, _: &[&str]) -> Reply {
    Ok(switch.show_bond_tables())
}

/// `bond/hash MAC [VLAN] [BASIS]`: the bucket of a station's packets.
pub fn hash(_: &Switch, args: &[&str]) -> Reply {
    let vlan: u32 = args.get(1).map_or(Some(0), |vlan| vlan.parse().ok()).ok_or("invalid vlan")?;
    let basis: u32 = args.get(2).map_or(Some(0), |basis| basis.parse().ok()).ok_or("invalid basis")?;
    let mac: Mac = args[0].parse().map_err(|_| "invalid mac")?;
    Ok(bucket_of_source(mac.0, vlan as u16, basis).to_string())
}

/// `lacp/show [PORT]`.
pub fn lacp_show(switch: &Switch, args: &[&str]) -> Reply {
    switch.show_lacp(args.first().copied()).ok_or_else(|| "no such lacp object".to_owned())
}

/// `lacp/show-stats [PORT]`.
pub fn lacp_show_stats(switch: &Switch, args: &[&str]) -> Reply {
    switch.show_lacp_stats(args.first().copied()).ok_or_else(|| "no such lacp object".to_owned())
}
