//! Commands about meters, named and written like those of `ovs-ofctl`.

use super::Reply;
use super::bridge::{check_bridge, text};
use crate::switch::Switch;
use sluice_ofp::MeterCommand;

fn change(switch: &Switch, bridge: &str, command: MeterCommand, meter: &str) -> Reply {
    check_bridge(switch, bridge)?;
    switch.change_meter(bridge, command, meter).map_err(text)?;
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
    switch.dump_meters(args[0]).map_err(text)
}

pub fn stats(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    switch.meter_stats(args[0]).map_err(text)
}
