//! Commands about meters, named and written like those of `ovs-ofctl`.

use super::Reply;
use super::bridge::{check_bridge, text};
use crate::text::meters;
use sluice_ofp::{MeterCommand, MeterMod};
use sluice_vswitch::Switch;

fn change(switch: &Switch, bridge: &str, command: MeterCommand, meter: &str) -> Reply {
    check_bridge(switch, bridge)?;
    let meter_mod = MeterMod::parse(meter, command).map_err(text)?;
    switch.ofproto().meter_mod(bridge, &meter_mod, switch.now_ms()).map_err(text)?;
    switch.request_revalidation();
    Ok(String::new())
}

pub fn add(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], MeterCommand::Add, args[1])
}

pub fn modify(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], MeterCommand::Modify, args[1])
}

pub fn delete(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], MeterCommand::Delete, args.get(1).unwrap_or(&""))
}

pub fn dump(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    Ok(switch.ofproto().meters(args[0]).map_err(text)?.iter().map(meters::line).collect())
}

pub fn stats(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    let now_ms = switch.now_ms();
    let meters = switch.ofproto().meters(args[0]).map_err(text)?;
    Ok(meters.iter().map(|meter| meters::stats_text(meter, now_ms)).collect())
}
