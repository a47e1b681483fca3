//! What the datapath can do, and what translation may use of it: `dpif/show-dp-features`, `dpif/set-dp-features`.

use super::Reply;
use sluice_vswitch::Switch;

/// `dpif/show-dp-features BRIDGE`.
pub fn show(switch: &Switch, args: &[&str]) -> Reply {
    let bridge = args.last().copied().unwrap_or_default();
    check_bridge(switch, bridge)?;
    Ok(switch.ofproto().features().show())
}

/// `dpif/set-dp-features BRIDGE [FEATURE [VALUE]]`. As in OVS, a feature or value that is not there is no error.
pub fn set(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    let ofproto = switch.ofproto();
    let answer = match args {
        [_, name, value, ..] => ofproto.set_feature(name, value).map(|()| {
            ofproto.purge(&*switch.datapath().store());
            String::new()
        }),
        _ => ofproto.features().show_both(args.get(1).copied()),
    };
    Ok(answer.unwrap_or_else(str::to_owned))
}

fn check_bridge(switch: &Switch, name: &str) -> Result<(), String> {
    match switch.ofproto().has_bridge(name) {
        true => Ok(()),
        false => Err("no such bridge".to_owned()),
    }
}
