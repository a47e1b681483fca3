//! Commands about fragments. Arguments, answers and errors are those of `ovs-appctl dpctl/ipf-…` (OVS lib/dpctl.c).

use super::Reply;
use super::conntrack::{Words, invalid};
use sluice_conntrack::fragments::text;
use sluice_vswitch::Switch;

/// `v4` or `v6`, as OVS reads it: by its first two letters.
fn family(word: Option<&str>) -> Result<bool, String> {
    match word {
        Some(word) if word.starts_with("v4") => Ok(false),
        Some(word) if word.starts_with("v6") => Ok(true),
        _ => invalid("parameter missing: 'v4' for IPv4 or 'v6' for IPv6"),
    }
}

fn set_enabled(switch: &Switch, args: &[&str], enabled: bool) -> Reply {
    let words = Words::parse(args)?;
    let v6 = family(words.rest.last().copied())?;
    switch.datapath().fragments().set_enabled(v6, enabled);
    let what = if enabled { "enabling" } else { "disabling" };
    Ok(format!("{what} fragmentation reassembly successful"))
}

pub fn enable(switch: &Switch, args: &[&str]) -> Reply {
    set_enabled(switch, args, true)
}

pub fn disable(switch: &Switch, args: &[&str]) -> Reply {
    set_enabled(switch, args, false)
}

pub fn set_min_frag(switch: &Switch, args: &[&str]) -> Reply {
    let words = Words::parse(args)?;
    let [.., which, size] = words.rest[..] else { return invalid("parameter missing: v4 for IPv4 or v6 for IPv6") };
    let v6 = family(Some(which)).or_else(|_| invalid("parameter missing: v4 for IPv4 or v6 for IPv6"))?;
    let Ok(size) = size.parse() else { return invalid("parameter missing for minimum fragment size") };
    match switch.datapath().fragments().set_size_min(v6, size) {
        Ok(()) => Ok("setting minimum fragment size successful".to_owned()),
        Err(_) => refused("requested minimum fragment size too small; see documentation"),
    }
}

pub fn set_max_nfrags(switch: &Switch, args: &[&str]) -> Reply {
    let words = Words::parse(args)?;
    let Some(Ok(max)) = words.rest.last().map(|max| max.parse()) else {
        return invalid("parameter missing for maximum fragments");
    };
    match switch.datapath().fragments().set_held_max(max) {
        Ok(()) => Ok("setting maximum fragments successful".to_owned()),
        Err(_) => refused("setting maximum fragments failed"),
    }
}

/// As OVS words it when the tracker returns 1.
fn refused(what: &str) -> Reply {
    Err(crate::program::error(format_args!("{what} (Operation not permitted)")))
}

pub fn get_status(switch: &Switch, args: &[&str]) -> Reply {
    let words = Words::parse(args)?;
    words.end()?;
    let fragments = switch.datapath().fragments();
    let lists = if words.more { text::lists(&fragments.lists()) } else { String::new() };
    Ok(text::status(&fragments.status()) + &lists)
}
