//! Commands of `dpctl` about one megaflow, caches and offloads. Texts and errors: OVS 3.1 lib/dpctl.c.

use super::Reply;
use super::options::names_datapath;
use crate::program;
use crate::text::datapath::datapath_name;
use crate::text::megaflows::dpctl_line;
use sluice_vswitch::Switch;
use std::collections::BTreeSet;

/// `dpctl/get-flow [DP] UFID`: a megaflow by its identifier.
pub fn get_flow(switch: &Switch, args: &[&str]) -> Reply {
    let words: Vec<&str> = args.iter().copied().filter(|arg| !arg.starts_with('-')).collect();
    let has_option = |name: &str| args.contains(&name);
    let [datapath @ .., text] = &words[..] else { return Err(program::error("parsing flow ufid")) };
    check_datapath(datapath)?;
    let ufid = parse_ufid(text).ok_or_else(|| program::error("parsing flow ufid"))?;
    let flows = switch.datapath().flows();
    let flow = flows.iter().find(|flow| flow.ufid == ufid);
    let flow = flow.ok_or_else(|| program::error("getting flow (No such file or directory)"))?;
    let verbose = has_option("-m") || has_option("--more");
    let has_names = (verbose || has_option("--names")) && !has_option("--no-names");
    let names = if has_names { switch.datapath_names() } else { switch.option_names() };
    Ok(dpctl_line(flow, flow.flow.stats, verbose, &names, switch.now_ms()) + "\n")
}

/// `ufid:` and 32 hexadecimal digits in groups.
fn parse_ufid(text: &str) -> Option<u128> {
    let digits = text.strip_prefix("ufid:")?.replace('-', "");
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten()
}

/// `dpctl/cache-get-size [DP]`: OVS shows the caches of the kernel, which its userspace datapath has not, nor has this
/// one.
pub fn cache_get_size(switch: &Switch, args: &[&str]) -> Reply {
    check_datapath(args).map_err(|_| unopened(args[0]))?;
    let types: BTreeSet<_> = switch.ofproto().bridges().into_iter().map(|bridge| bridge.datapath_type).collect();
    Ok(types.into_iter().map(|datapath_type| datapath_name(&datapath_type) + ":\n").collect())
}

pub fn cache_set_size(_: &Switch, args: &[&str]) -> Reply {
    check_datapath(&args[..1]).map_err(|_| unopened(args[0]))?;
    Err(program::error("Setting caches not supported (Operation not supported)"))
}

/// `dpctl/offload-stats-show [DP]`: nothing is offloaded, which OVS answers so.
pub fn offload_stats_show(_: &Switch, args: &[&str]) -> Reply {
    check_datapath(args)?;
    Err(program::error("retrieving offload statistics (Invalid argument)"))
}

fn unopened(datapath: &str) -> String {
    program::error(format_args!("Opening datapath {datapath} failed (No such device)"))
}

fn check_datapath(args: &[&str]) -> Result<(), String> {
    let known = args.iter().all(|name| names_datapath(name));
    known.then_some(()).ok_or_else(|| program::error("datapath not found (Invalid argument)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_read_as_it_is_printed() {
        let ufid = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        assert_eq!(parse_ufid(&sluice_action::show_ufid(ufid).to_string()), Some(ufid));
        assert_eq!([parse_ufid("ufid:1"), parse_ufid("xx")], [None, None]);
    }
}
