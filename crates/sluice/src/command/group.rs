//! Commands about groups, named and written like those of `ovs-ofctl`.

use super::Reply;
use super::bridge::{check_bridge, text};
use crate::switch::Switch;
use sluice_ofp::GroupCommand;

fn change(switch: &Switch, bridge: &str, command: GroupCommand, group: &str) -> Reply {
    check_bridge(switch, bridge)?;
    switch.change_group(bridge, command, group).map_err(text)?;
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
    switch.dump_groups(args[0]).map_err(text)
}

pub fn dump_stats(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    switch.dump_group_stats(args[0]).map_err(text)
}
