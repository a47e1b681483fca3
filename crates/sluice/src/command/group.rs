//! Commands about groups, named and written like those of `ovs-ofctl`.

use super::Reply;
use super::bridge::{check_bridge, text};
use crate::process::Process;
use crate::text::groups;
use sluice_ofp::{GroupCommand, GroupMod};
use sluice_ofproto::GroupEntry;
use sluice_unixctl::Pieces;
use sluice_vswitch::Switch;
use std::sync::Arc;

/// Groups of which the text is made at a time.
const GROUPS_AT_ONCE: usize = 32;

fn change(switch: &Switch, bridge: &str, command: GroupCommand, group: &str) -> Reply {
    check_bridge(switch, bridge)?;
    let group_mod = GroupMod::parse(group, command, &switch.port_names(bridge)).map_err(text)?;
    switch.ofproto().group_mod(bridge, &group_mod, switch.now_ms()).map_err(text)?;
    switch.request_revalidation();
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

pub fn dump(process: &Arc<Process>, args: &[&str]) -> Result<Pieces, String> {
    check_bridge(process.switch(), args[0])?;
    let names = process.switch().port_names(args[0]);
    pieces(process, args[0], move |group| groups::line(group, &names))
}

pub fn dump_stats(process: &Arc<Process>, args: &[&str]) -> Result<Pieces, String> {
    let switch = process.switch();
    check_bridge(switch, args[0])?;
    // With what the megaflows have carried until now.
    switch.revalidate();
    let now_ms = switch.now_ms();
    pieces(process, args[0], move |group| groups::stats_line(group, now_ms))
}

/// The groups of a bridge, some at a time. Groups that go meanwhile are left out.
fn pieces(
    process: &Arc<Process>,
    bridge: &str,
    show: impl Fn(&GroupEntry) -> String + 'static,
) -> Result<Pieces, String> {
    let ofproto = process.switch().ofproto().clone();
    let (ids, users) = (ofproto.group_ids(bridge).map_err(text)?, ofproto.group_users(bridge).map_err(text)?);
    let (bridge, mut at) = (bridge.to_owned(), 0);
    Ok(Box::new(std::iter::from_fn(move || {
        let some = ids.get(at..ids.len().min(at + GROUPS_AT_ONCE)).filter(|some| !some.is_empty())?;
        at += some.len();
        let entries = ofproto.group_entries(&bridge, some, &users).unwrap_or_default();
        Some(entries.iter().map(&show).collect())
    })))
}
