//! Commands of `dpctl` about one megaflow, caches and offloads, and what its commands have in common: options, and how they
//! name a datapath and its ports. Texts and errors: OVS 3.1 lib/dpctl.c.

use super::Reply;
use super::options::names_datapath;
use crate::program;
use crate::text::datapath::datapath_name;
use crate::text::megaflows::dpctl_line;
use sluice_vswitch::{DatapathRef, Switch};
use std::collections::{BTreeMap, BTreeSet};

/// The options of `dpctl`'s commands, and the words between them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options<'a> {
    /// Every field of a megaflow, and its identifier.
    pub verbose: bool,
    /// Port names instead of numbers.
    pub names: bool,
    /// What a megaflow had carried.
    pub statistics: bool,
    /// A megaflow that is to be modified and is not there is made.
    pub may_create: bool,
    /// A megaflow that is modified counts from zero.
    pub zero_statistics: bool,
    /// What is no option.
    pub words: Vec<&'a str>,
}

impl<'a> Options<'a> {
    /// Reads them.
    pub fn parse(args: &[&'a str]) -> Self {
        let (mut options, mut names) = (Options::default(), None);
        for arg in args {
            match *arg {
                "-m" | "--more" => options.verbose = true,
                "-s" | "--statistics" => options.statistics = true,
                "--names" => names = Some(true),
                "--no-names" => names = Some(false),
                "--may-create" => options.may_create = true,
                "--clear" => options.zero_statistics = true,
                word => options.words.push(word),
            }
        }
        options.names = names.unwrap_or(options.verbose);
        options
    }
}

/// The datapath of that name: the switch's own by any of its types, or one that a user has made.
pub fn resolve(switch: &Switch, name: &str) -> Option<DatapathRef> {
    if names_datapath(name) {
        return Some(DatapathRef::Own);
    }
    switch.made_datapath(name).map(DatapathRef::Made)
}

/// The datapath that a command names, or the switch's own if it names none.
pub fn open(switch: &Switch, names: &[&str]) -> Result<DatapathRef, String> {
    match names {
        [] => Ok(DatapathRef::Own),
        [name] => resolve(switch, name).ok_or_else(|| program::error("datapath not found (Invalid argument)")),
        _ => Err(program::error("datapath not found (Invalid argument)")),
    }
}

/// The ports of a datapath by name, each with its number and type.
pub struct Names(BTreeMap<String, (u32, String)>);

impl Names {
    /// Those of this datapath.
    pub fn of(switch: &Switch, at: &DatapathRef) -> Self {
        let loose = switch.loose_ports(at).into_iter().map(|port| (port.name, (port.number.0, port.kind)));
        let mut names: BTreeMap<_, _> = loose.collect();
        if let DatapathRef::Own = at {
            for port in switch.port_status().into_values().flatten().filter(|port| port.tunnel.is_none()) {
                names.extend(port.number.map(|number| (port.name, (number.0, port.kind.unwrap_or_default()))));
            }
            let backends = switch.backends();
            names.extend(backends.iter().map(|(name, backend)| (name.to_owned(), (backend.number.0, String::new()))));
        }
        Names(names)
    }

    /// The number and the type of a port.
    pub fn port(&self, name: &str) -> Option<(u32, &str)> {
        self.0.get(name).map(|(number, kind)| (*number, kind.as_str()))
    }

    /// The number of a port.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.port(name).map(|(number, _)| number)
    }
}

/// `dpctl/get-flow [DP] UFID`: a megaflow by its identifier.
pub fn get_flow(switch: &Switch, args: &[&str]) -> Reply {
    let options = Options::parse(args);
    let [datapath @ .., text] = &options.words[..] else { return Err(program::error("parsing flow ufid")) };
    let at = open(switch, datapath)?;
    let ufid = parse_ufid(text).ok_or_else(|| program::error("parsing flow ufid"))?;
    let flows = switch.datapath_of(&at).flows();
    let flow = flows.iter().find(|flow| flow.ufid == ufid);
    let flow = flow.ok_or_else(|| program::error("getting flow (No such file or directory)"))?;
    let names = if options.names { switch.names_of(&at) } else { switch.option_names() };
    Ok(dpctl_line(flow, flow.flow.stats, options.verbose, &names, switch.now_ms()) + "\n")
}

/// `ufid:` and 32 hexadecimal digits in groups.
pub fn parse_ufid(text: &str) -> Option<u128> {
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
