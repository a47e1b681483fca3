//! The commands on MAC entries, `fdb/*`, and `ofproto/list`, with the output of OVS 3.1.

use crate::bridge::{Bridge, SwitchState};
use crate::depends::Changes;
use crate::mac::MacTable;
use crate::ofproto::Ofproto;
use crate::trace_command::port_text;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use sluice_flow::Mac;

const NO_BRIDGE: &str = "no such bridge";

impl Ofproto {
    /// `ofproto/list`: the bridges' names, one per line.
    pub fn list(&self) -> String {
        self.state().bridges.iter().map(|b| format!("{}\n", b.name())).collect()
    }

    /// `fdb/show BRIDGE`.
    pub fn fdb_show(&self, bridge: &str, now_ms: u64) -> Result<String, String> {
        let state = self.state();
        let macs = table(find(&state, bridge)?);
        let mut out = " port  VLAN  MAC                Age\n".to_owned();
        for row in macs.rows(now_ms / 1000) {
            let mac = row.mac;
            out += &format!("{:>5}  {:4}  {mac}  ", port_text(row.port), row.vlan);
            out += &row.age_s.map_or("static\n".to_owned(), |age| format!("{age:3}\n"));
        }
        Ok(out)
    }

    /// `fdb/add BRIDGE PORT VLAN MAC`: adds a static entry.
    pub fn fdb_add(&self, bridge: &str, port: &str, vlan: &str, mac: &str) -> Result<String, String> {
        let (vlan, mac) = (parse_vlan(vlan), parse_mac(mac)?);
        let state = self.state();
        let bridge = find(&state, bridge)?;
        let port = bridge.port_named(port).ok_or("software error, odp port is present but no ofp port")?.number;
        let mut macs = table_mut(bridge);
        let known = macs.lookup(vlan, mac).zip(macs.is_static(vlan, mac));
        let note = known.filter(|known| *known != (port, true)).map(|(old, is_static)| {
            let kind = if is_static { "static" } else { "dynamic" };
            format!("Overriding already existing {kind} entry on {}\n", port_text(old))
        });
        macs.add_static(vlan, mac, port);
        let mut changes = Changes::default();
        changes.add_mac_entries(bridge.id, macs.take_changed());
        drop(macs);
        drop(state);
        self.announce(&changes);
        Ok(note.unwrap_or_default())
    }

    /// `fdb/del BRIDGE VLAN MAC`: removes a static entry.
    pub fn fdb_del(&self, bridge: &str, vlan: &str, mac: &str) -> Result<String, String> {
        let (vlan, mac) = (parse_vlan(vlan), parse_mac(mac)?);
        let state = self.state();
        let bridge = find(&state, bridge)?;
        let mut macs = table_mut(bridge);
        if !macs.remove_static(vlan, mac) {
            return Err("could not find static mac entry\n".to_owned());
        }
        let mut changes = Changes::default();
        changes.add_mac_entries(bridge.id, macs.take_changed());
        drop(macs);
        drop(state);
        self.announce(&changes);
        Ok(String::new())
    }

    /// `fdb/flush [BRIDGE]`: static entries stay.
    pub fn fdb_flush(&self, bridge: Option<&str>) -> Result<String, String> {
        self.each(bridge, MacTable::flush)?;
        self.announce(&Changes::everything());
        Ok("table successfully flushed".to_owned())
    }

    /// `fdb/stats-clear [BRIDGE]`.
    pub fn fdb_stats_clear(&self, bridge: Option<&str>) -> Result<String, String> {
        self.each(bridge, MacTable::clear_counts)?;
        Ok("statistics successfully cleared".to_owned())
    }

    /// `fdb/stats-show BRIDGE`.
    pub fn fdb_stats_show(&self, bridge: &str) -> Result<String, String> {
        let state = self.state();
        let macs = table(find(&state, bridge)?);
        let (now, max, statics) = macs.sizes();
        let counts = macs.counts();
        Ok(format!(
            "Statistics for bridge \"{bridge}\":\n  Current/maximum MAC entries in the table: {now}/{max}\n  \
             Current static MAC entries in the table : {statics}\n  \
             Total number of learned MAC entries     : {}\n  Total number of expired MAC entries     : {}\n  \
             Total number of evicted MAC entries     : {}\n  Total number of port moved MAC entries  : {}\n",
            counts.learned, counts.expired, counts.evicted, counts.moved
        ))
    }

    fn each(&self, bridge: Option<&str>, f: impl Fn(&mut MacTable)) -> Result<(), String> {
        let state = self.state();
        match bridge {
            Some(name) => f(&mut table_mut(find(&state, name)?)),
            None => state.bridges.iter().for_each(|b| f(&mut table_mut(b))),
        }
        Ok(())
    }
}

fn find<'s>(state: &'s SwitchState, name: &str) -> Result<&'s Bridge, String> {
    state.bridge_named(name).ok_or_else(|| NO_BRIDGE.to_owned())
}

fn table(bridge: &Bridge) -> RwLockReadGuard<'_, MacTable> {
    bridge.macs.read()
}

fn table_mut(bridge: &Bridge) -> RwLockWriteGuard<'_, MacTable> {
    bridge.macs.write()
}

/// As C's `atoi`: text that is not a number is 0.
fn parse_vlan(text: &str) -> u16 {
    text.trim().parse().unwrap_or(0)
}

fn parse_mac(text: &str) -> Result<Mac, String> {
    text.parse().map_err(|_| "bad MAC address".to_owned())
}
