//! The options of commands, read as OVS reads them.

use crate::config::Affinity;
use crate::program;
use crate::text::datapath::TYPES;
use sluice_flow::OfPort;
use sluice_ofproto::VlanMode;
use sluice_vswitch::Port;

/// Whether `name` names this switch's datapath: `netdev@ovs-netdev`, or the part behind the type. Bridges may name the
/// one datapath by other types.
pub fn names_datapath(name: &str) -> bool {
    let (kind, short) = name.split_once('@').map_or((None, name), |(kind, short)| (Some(kind), short));
    short.strip_prefix("ovs-").is_some_and(|own| TYPES.contains(&own) && kind.is_none_or(|kind| kind == own))
}

/// `[-pmd CORE] [DP]`, and what stands before it: the flags `pmd-perf-show` and `pmd-rxq-show` know.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PmdOptions {
    /// Only the PMD of that core.
    pub core: Option<u32>,
    /// `-secs N` of `pmd-rxq-show`.
    pub secs: Option<u64>,
    /// `-nh` of `pmd-perf-show`: no histograms.
    pub without_histograms: bool,
    /// `-it N` of `pmd-perf-show`: the last N iterations are shown.
    pub iterations: usize,
    /// `-ms N` of `pmd-perf-show`: the last N milliseconds are shown.
    pub milliseconds: usize,
    /// The datapath, if one is named.
    pub datapath: Option<String>,
}

impl PmdOptions {
    /// Reads them. As in OVS, a word that is no option names the datapath, and a wrong number is no filter.
    pub fn parse(args: &[&str]) -> Self {
        let mut options = PmdOptions::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let takes_value = matches!(*word, "-pmd" | "-secs" | "-it" | "-ms");
            let value = if takes_value { words.next() } else { None };
            match *word {
                "-pmd" => options.core = value.and_then(|v| v.parse().ok()),
                "-secs" => options.secs = value.and_then(|v| v.parse().ok()),
                "-nh" => options.without_histograms = true,
                "-it" => options.iterations = value.and_then(|v| v.parse().ok()).unwrap_or(0),
                "-ms" => options.milliseconds = value.and_then(|v| v.parse().ok()).unwrap_or(0),
                word if !word.starts_with('-') => options.datapath = Some(word.to_owned()),
                _ => {}
            }
        }
        options
    }
}

/// What `dpctl/dump-flows` and `dpif/dump-flows` were asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// `-m`: every field, and the flow's identifier.
    pub verbose: bool,
    /// Port names instead of numbers.
    pub names: bool,
    /// `filter=…`, in ovs-ofctl's syntax.
    pub filter: Option<String>,
    /// `type=…` allows these megaflows at all.
    pub of_our_type: bool,
    /// `pmd=N`: only what that PMD has seen; -1 is the main thread, which has no megaflows here.
    pub pmd: Option<i64>,
    /// What is left: a datapath or a bridge.
    pub rest: Vec<String>,
}

impl DumpOptions {
    /// Reads them.
    ///
    /// # Errors
    /// With OVS's text, if a type is unknown or a PMD is no number.
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = DumpOptions { of_our_type: true, ..DumpOptions::default() };
        let mut names = None;
        for arg in args {
            match *arg {
                "-m" | "--more" => options.verbose = true,
                "--names" => names = Some(true),
                "--no-names" => names = Some(false),
                _ => {
                    if let Some(filter) = arg.strip_prefix("filter=") {
                        options.filter = Some(filter.into());
                    } else if let Some(types) = arg.strip_prefix("type=") {
                        options.of_our_type = allows_our_type(types)?;
                    } else if let Some(pmd) = arg.strip_prefix("pmd=") {
                        let pmd = pmd.parse().map_err(|_| {
                            program::error(format_args!("pmd={pmd}; expected a core's number (Invalid argument)"))
                        })?;
                        options.pmd = Some(pmd);
                    } else {
                        options.rest.push((*arg).into());
                    }
                }
            }
        }
        options.names = names.unwrap_or(options.verbose);
        Ok(options)
    }
}

/// Megaflows here are "ovs" and "non-offloaded"; the other types exist and have none.
fn allows_our_type(types: &str) -> Result<bool, String> {
    let mut ours = false;
    for kind in types.split(',').filter(|t| !t.is_empty()) {
        match kind {
            "ovs" | "non-offloaded" | "all" => ours = true,
            "tc" | "dpdk" | "offloaded" | "partially-offloaded" => {}
            _ => return Err(program::error(format_args!("Failed to parse type ({kind}) (Invalid argument)"))),
        }
    }
    Ok(ours)
}

/// The port that `bridge/add-port BR NAME ofport=N type=… KEY=VALUE …` describes; what is no key of a port is an
/// option of its type.
///
/// # Errors
/// If a word is no KEY=VALUE, a number is none, or `ofport` or `type` is missing.
pub fn port(name: &str, words: &[&str]) -> Result<Port, String> {
    let mut port = Port::new(name, "");
    let (mut tag, mut trunks) = (None, Vec::new());
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            return Err(format!("\"{word}\": expected KEY=VALUE"));
        };
        match key {
            "ofport" => port.ofport_request = Some(ofport(number(key, value)?)?),
            "type" => port.kind = value.into(),
            "mtu" => port.mtu = Some(number(key, value)?),
            "n-rxq" => port.n_rxq = number(key, value)?,
            "pmd-rxq-affinity" => port.rxq_affinity = value.parse::<Affinity>()?.0,
            "tag" => tag = Some(number(key, value)?),
            "trunks" => {
                let vlans = value.trim_matches(['[', ']']).split(',').map(|vlan| number(key, vlan.trim()));
                trunks = vlans.collect::<Result<_, _>>()?;
            }
            _ => {
                let key = key.strip_prefix("options:").unwrap_or(key);
                port.options.insert(key.into(), value.into());
            }
        }
    }
    port.vlan = VlanMode::of(tag, &trunks);
    if port.ofport_request.is_none() {
        return Err(format!("port {name}: expected ofport=N, its OpenFlow number from 1 to 65279"));
    }
    if port.kind.is_empty() {
        return Err(format!("port {name}: expected type=TYPE"));
    }
    Ok(port)
}

fn ofport(number: u32) -> Result<OfPort, String> {
    Port::ofport(number).map_err(|invalid| invalid.within("port").to_string())
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value}: expected a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pmd_options_may_come_in_any_order() {
        let usual = PmdOptions::default;
        let parsed = PmdOptions::parse(&["-nh", "-pmd", "3", "-ms", "9"]);
        assert_eq!(parsed, PmdOptions { core: Some(3), without_histograms: true, milliseconds: 9, ..usual() });
        let parsed = PmdOptions::parse(&["-it", "5", "-secs", "7", "netdev@ovs-netdev"]);
        let datapath = Some("netdev@ovs-netdev".to_owned());
        assert_eq!(parsed, PmdOptions { secs: Some(7), iterations: 5, datapath, ..usual() });
        assert_eq!(PmdOptions::parse(&["-pmd", "x"]), PmdOptions::default());
        assert_eq!(PmdOptions::parse(&["-pmd"]), PmdOptions::default());
    }

    #[test]
    fn dump_options_are_ovs() {
        let parse = |args: &[&str]| DumpOptions::parse(args);
        let all = parse(&["-m", "dp", "filter=in_port=1", "type=tc", "pmd=-1"]).unwrap();
        assert!(all.verbose && all.names && !all.of_our_type);
        assert_eq!((all.filter.as_deref(), all.pmd, all.rest), (Some("in_port=1"), Some(-1), vec!["dp".to_string()]));
        assert!(!parse(&["-m", "--no-names"]).unwrap().names);
        assert!(parse(&["--names", "type=tc,ovs"]).unwrap().of_our_type);
        assert_eq!(parse(&["type=bogus"]), Err("sluice: Failed to parse type (bogus) (Invalid argument)".into()));
        assert!(parse(&["pmd=x"]).is_err());
    }

    #[test]
    fn a_port_is_read_from_words() {
        let read = port("p1", &["ofport=3", "type=tap", "mtu=9000", "trunks=10,20", "device=tap7"]).unwrap();
        let trunks = VlanMode::Trunk(Some([10, 20].into()));
        assert_eq!((read.ofport_request, read.kind.as_str(), read.mtu), (Some(OfPort(3)), "tap", Some(9000)));
        assert_eq!((read.vlan, read.options["device"].as_str()), (trunks, "tap7"));
        assert_eq!(port("p1", &["ofport"]).unwrap_err(), "\"ofport\": expected KEY=VALUE");
        assert_eq!(port("p1", &["ofport=x"]).unwrap_err(), "ofport=x: expected a number");
        assert_eq!(
            port("p1", &["type=null"]).unwrap_err(),
            "port p1: expected ofport=N, its OpenFlow number from 1 to 65279"
        );
        assert_eq!(port("p1", &["ofport=1"]).unwrap_err(), "port p1: expected type=TYPE");
    }

    #[test]
    fn the_datapath_has_a_name_for_each_type() {
        assert!(names_datapath("netdev@ovs-netdev") && names_datapath("ovs-netdev"));
        assert!(names_datapath("dummy@ovs-dummy") && !names_datapath("dummy@ovs-netdev"));
        assert!(!names_datapath("netdev@br0") && !names_datapath("ovs-vhost"));
    }
}
