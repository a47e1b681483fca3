//! Commands about BFD sessions. Texts and errors are OVS's. Source: OVS lib/bfd.c.

use super::Reply;
use sluice_vswitch::Switch;

/// `bfd/show`.
pub fn show(switch: &Switch, args: &[&str]) -> Reply {
    switch.show_bfd(args.first().copied()).ok_or_else(|| "no such bfd object".to_owned())
}

/// `bfd/set-forwarding [INTERFACE] normal|false|true`.
pub fn set_forwarding(switch: &Switch, args: &[&str]) -> Reply {
    let (name, wanted) = match args {
        [name, wanted] => (Some(*name), *wanted),
        _ => (None, args[0]),
    };
    let forced = match wanted.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        "normal" => None,
        _ => return Err("unknown fault string".to_owned()),
    };
    switch.force_bfd(name, forced).then(|| "OK".to_owned()).ok_or_else(|| "no such BFD object".to_owned())
}
