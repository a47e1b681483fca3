//! Commands of `dpctl` that make and delete datapaths, and their ports. Texts and errors: OVS 3.1 lib/dpctl.c.

use super::Reply;
use super::dpctl::{Names, resolve};
use super::options::names_datapath;
use crate::program;
use sluice_action::PortNo;
use sluice_port::PORT_TYPES;
use sluice_vswitch::{DatapathRef, DpifError, Port, Switch};
use std::collections::BTreeMap;

/// `dpctl/add-dp DP [NETDEV...]`.
pub fn add_dp(switch: &Switch, args: &[&str]) -> Reply {
    let failed = |why: &dyn std::fmt::Display| program::error(format_args!("add_dp ({why})"));
    if names_datapath(args[0]) {
        return Err(failed(&DpifError::Exists));
    }
    let local = match args[0].split_once('@') {
        Some(("dummy", _)) => "dummy-internal",
        Some(("netdev", _)) => "tap",
        // The kernel's datapath is not used here.
        _ => return Err(failed(&"Address family not supported by protocol")),
    };
    switch.add_datapath(args[0], local).map_err(|error| failed(&error))?;
    if args.len() > 1 { add_if(switch, args) } else { Ok(String::new()) }
}

/// `dpctl/del-dp DP`.
pub fn del_dp(switch: &Switch, args: &[&str]) -> Reply {
    match open(switch, args[0])? {
        DatapathRef::Own => Err(program::error(format_args!("del_dp ({})", DpifError::Busy))),
        DatapathRef::Made(_) => {
            switch.del_datapath(args[0]).map_err(|error| program::error(format_args!("del_dp ({error})")))?;
            Ok(String::new())
        }
    }
}

/// `dpctl/add-if DP NETDEV...`.
pub fn add_if(switch: &Switch, args: &[&str]) -> Reply {
    each(switch, args, |at, text| {
        let spec = Spec::parse(text)?;
        let name = spec.name;
        let kind = spec.kind.unwrap_or("system");
        if !PORT_TYPES.iter().any(|known| known.name == kind) {
            let why = "Address family not supported by protocol";
            return Err(vec![format!("{name}: failed to open network device ({why})")]);
        }
        let number = spec.number.map(PortNo);
        let mut port = Port { mtu: None, options: spec.options, ..Port::new(name, kind) };
        if let Some(n_rxq) = port.options.remove("n_rxq") {
            port.n_rxq = n_rxq.parse().map_err(|_| vec![format!("{name}: n_rxq={n_rxq}: expected a number")])?;
        }
        switch.add_loose_port(at, &port, number).map_err(|error| {
            vec![match error {
                DpifError::Device(error) => format!("{name}: failed to open network device ({error})"),
                error => format!("adding {name} to {} failed ({error})", args[0]),
            }]
        })?;
        Ok(())
    })
}

/// `dpctl/set-if DP PORT...`.
pub fn set_if(switch: &Switch, args: &[&str]) -> Reply {
    each(switch, args, |at, text| {
        let spec = Spec::parse(text)?;
        let name = spec.name;
        let of_port = Names::of(switch, at).port(name).map(|(number, kind)| (number, kind.to_owned()));
        let (number, kind) =
            of_port.ok_or_else(|| vec![format!("{name}: failed to query port in {} (No such device)", args[0])])?;
        if let Some(wanted) = spec.kind.filter(|wanted| *wanted != kind) {
            return Err(vec![format!("{name}: can't change type from {kind} to {wanted}")]);
        }
        if let Some(wanted) = spec.number.filter(|wanted| *wanted != number) {
            return Err(vec![format!("{name}: can't change port number from {number} to {wanted}")]);
        }
        let set = switch.set_datapath_port(at, PortNo(number), &spec.options);
        set.map_err(|error| vec![format!("{name}: Error updating configuration ({error})")])
    })
}

/// `dpctl/del-if DP PORT...`, by name or number.
pub fn del_if(switch: &Switch, args: &[&str]) -> Reply {
    each(switch, args, |at, name| {
        let number = match name.parse() {
            Ok(number) => number,
            Err(_) => Names::of(switch, at).number(name).ok_or_else(|| vec![format!("no port named {name}")])?,
        };
        let deleted = switch.del_datapath_port(at, PortNo(number));
        deleted.map_err(|error| vec![format!("deleting port {name} from {} failed ({error})", args[0])])
    })
}

/// Does something with each port that is named behind the datapath; what fails is told, and the others go on.
fn each(switch: &Switch, args: &[&str], mut run: impl FnMut(&DatapathRef, &str) -> Result<(), Vec<String>>) -> Reply {
    let at = open(switch, args[0])?;
    let failed: Vec<String> = args[1..].iter().filter_map(|text| run(&at, text).err()).flatten().collect();
    if failed.is_empty() {
        return Ok(String::new());
    }
    Err(failed.into_iter().map(program::error).collect::<Vec<_>>().join("\n"))
}

fn open(switch: &Switch, name: &str) -> Result<DatapathRef, String> {
    resolve(switch, name).ok_or_else(|| program::error(format_args!("opening datapath ({})", DpifError::NoDatapath)))
}

/// `NAME[,type=TYPE][,port_no=N][,KEY=VALUE]…`.
#[derive(Debug, PartialEq, Eq)]
struct Spec<'a> {
    name: &'a str,
    kind: Option<&'a str>,
    number: Option<u32>,
    options: BTreeMap<String, String>,
}

impl<'a> Spec<'a> {
    fn parse(text: &'a str) -> Result<Self, Vec<String>> {
        let mut parts = text.split(',').filter(|part| !part.is_empty());
        let name = parts.next().ok_or_else(|| vec![format!("{text} is not a valid network device name")])?;
        let mut spec = Spec { name, kind: None, number: None, options: BTreeMap::new() };
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "type" => spec.kind = Some(value),
                "port_no" => {
                    let number = value.parse().map_err(|_| vec![format!("{name}: port_no={value}: expected a number")]);
                    spec.number = Some(number?);
                }
                _ if spec.options.insert(key.to_owned(), value.to_owned()).is_some() => {
                    return Err(vec![format!("duplicate \"{key}\" option")]);
                }
                _ => {}
            }
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_from_one_word() {
        let options = [("n_rxq".to_owned(), "2".to_owned())].into();
        let expected = Spec { name: "p1", kind: Some("dummy"), number: Some(5), options };
        assert_eq!(Spec::parse("p1,type=dummy,port_no=5,n_rxq=2"), Ok(expected));
        assert_eq!(Spec::parse("p1,a=1,a=2"), Err(vec!["duplicate \"a\" option".to_owned()]));
        assert_eq!(Spec::parse(","), Err(vec![", is not a valid network device name".to_owned()]));
        assert!(Spec::parse("p1,port_no=x").is_err());
    }
}
