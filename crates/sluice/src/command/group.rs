//! Commands about groups, named and written like those of `ovs-ofctl`.

use super::Reply;
use super::bridge::{check_bridge, text};
use crate::text::groups;
use sluice_ofp::{GroupCommand, GroupMod};
use sluice_vswitch::Switch;

fn change(switch: &Switch, bridge: &str, command: GroupCommand, group: &str) -> Reply {
    check_bridge(switch, bridge)?;
    let group_mod = GroupMod::parse(group, command, &switch.port_names(bridge)).map_err(text)?;
    switch.ofproto().group_mod(bridge, &group_mod, switch.now_ms()).map_err(text)?;
    switch.hurry();
    Ok(String::new())
}

pub fn add(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], GroupCommand::Add, args[1])
}

pub fn modify(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], GroupCommand::Modify, args[1])
}

pub fn delete(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], GroupCommand::Delete, args.get(1).unwrap_or(&""))
}

pub fn insert_buckets(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], GroupCommand::InsertBucket, args[1])
}

pub fn remove_buckets(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], GroupCommand::RemoveBucket, args[1])
}

pub fn dump(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    let names = switch.port_names(args[0]);
    Ok(switch.ofproto().groups(args[0]).map_err(text)?.iter().map(|group| groups::line(group, &names)).collect())
}

pub fn dump_stats(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    // With what the megaflows have carried until now.
    switch.revalidate();
    let now_ms = switch.now_ms();
    let groups = switch.ofproto().groups(args[0]).map_err(text)?;
    Ok(groups.iter().map(|group| groups::stats_line(group, now_ms)).collect())
}
