//! The command line of `sluice replay`.

use super::capture::{self, Record};
use crate::config::read_source;
use anyhow::{Result, bail};
use clap::builder::TypedValueParser;
use sluice_flow::{OfPort, PortNames};
use sluice_ofproto::VlanMode;
use sluice_vswitch::Sources;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Send captures through rules and write what comes out, without threads or privileges, the same every time
#[derive(clap::Args, Debug)]
pub struct ReplayArgs {
    /// The rules, in the syntax of ovs-ofctl
    #[arg(long, value_name = "FILE")]
    pub flows: PathBuf,
    /// Groups that the rules send to, in the syntax of ovs-ofctl add-groups
    #[arg(long, value_name = "FILE")]
    pub groups: Option<PathBuf>,
    /// Meters that the rules use, one a line, in the syntax of ovs-ofctl add-meter
    #[arg(long, value_name = "FILE")]
    pub meters: Option<PathBuf>,
    /// A port and the capture that it receives, which may be empty; give one for every port. The port is a number, LOCAL,
    /// or a name, by which rules may call it; ports with names get the numbers from 1 on that are left, in their order
    #[arg(long = "in", value_name = "PORT=FILE.pcap", required = true)]
    inputs: Vec<PortCapture>,
    /// Directory in which PORT.pcap is written for every port
    #[arg(long, value_name = "DIR")]
    pub out_dir: PathBuf,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the megaflows to this file, as dpctl/dump-flows -m prints them
    #[arg(long, value_name = "FILE")]
    pub megaflows: Option<PathBuf>,
    /// Write what ofproto/trace says of each packet before the packet comes; like ofproto/trace it learns addresses
    #[arg(long, value_name = "FILE")]
    pub traces: Option<PathBuf>,
    /// An access port and its VLAN; other ports are trunks of all VLANs
    #[arg(long = "access", value_name = "PORT=VLAN")]
    access: Vec<PortVlans>,
    /// A trunk port and the VLANs it carries
    #[arg(long = "trunks", value_name = "PORT=VLAN,...")]
    trunks: Vec<PortVlans>,
    /// Packets of a port that go through the switch together, 1 to 32
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1..=32))]
    pub batch: usize,
    /// PMDs that share the receive queues
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1..=64))]
    pub pmds: usize,
    /// Receive queues of each port; flows are spread over them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1..=64))]
    pub queues: usize,
    /// How often a packet may be recirculated: Open vSwitch 3.1 allows 6, later ones 8
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(0..=64))]
    pub recirculations: u8,
    /// How many VLAN tags of a packet are read, 1 or 2; 0: as many as can be
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub vlan_limit: u32,
    /// Turn the exact match cache off
    #[arg(long)]
    pub no_emc: bool,
}

/// Reads a number within limits.
fn number(limits: std::ops::RangeInclusive<i64>) -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u8).range(limits).map(usize::from)
}

/// `PORT=FILE`.
#[derive(Clone, Debug)]
struct PortCapture {
    port: GivenPort,
    path: PathBuf,
}

/// A port as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GivenPort {
    Number(u16),
    Name(String),
}

impl GivenPort {
    fn parse(text: &str) -> Option<Self> {
        let number = if text == "LOCAL" { Some(OfPort::LOCAL.0) } else { text.parse().ok() };
        match number {
            Some(number) => (number != 0 && is_a_port(OfPort(number))).then_some(GivenPort::Number(number)),
            // The name is that of a file, too, and what begins with a digit is meant as a number.
            None => {
                let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
                is_name.then(|| GivenPort::Name(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for GivenPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GivenPort::Number(number) => write!(f, "{}", PortNames::NONE.display(OfPort(*number))),
            GivenPort::Name(name) => f.write_str(name),
        }
    }
}

/// A port of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayPort {
    /// Its OpenFlow number.
    pub ofport: u16,
    /// What it is called in files and in the summary: its name if it was given one, else its number.
    pub label: String,
    /// Its name, if it was given one.
    pub name: Option<String>,
    /// Its VLANs.
    pub vlan: VlanMode,
}

fn is_a_port(port: OfPort) -> bool {
    port.is_ordinary() || port == OfPort::LOCAL
}

impl FromStr for PortCapture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected PORT=FILE.pcap with an OpenFlow port number from 1 to 65279, LOCAL, or a name";
        let (port, path) = text.split_once('=').ok_or(expected)?;
        let port = GivenPort::parse(port).filter(|_| !path.is_empty()).ok_or(expected)?;
        Ok(PortCapture { port, path: path.into() })
    }
}

/// `PORT=VLAN,…`.
#[derive(Clone, Debug)]
struct PortVlans {
    port: GivenPort,
    vlans: Vec<u16>,
}

impl FromStr for PortVlans {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected PORT=VLAN with VLANs from 0 to 4095";
        let (port, vlans) = text.split_once('=').ok_or(expected)?;
        let port = GivenPort::parse(port).ok_or(expected)?;
        let vlan = |v: &str| v.parse().ok().filter(|v| *v < 4096).ok_or(expected);
        let vlans: Vec<u16> = vlans.split(',').map(vlan).collect::<Result<_, _>>()?;
        Ok(PortVlans { port, vlans })
    }
}

impl ReplayArgs {
    /// The VLANs of a port.
    ///
    /// # Errors
    /// If an access port is given several.
    fn vlan_mode(&self, port: &GivenPort) -> Result<VlanMode> {
        let of = |list: &[PortVlans]| list.iter().find(|vlans| vlans.port == *port).map(|vlans| vlans.vlans.clone());
        let tag = match of(&self.access).as_deref() {
            Some([vlan]) => Some(*vlan),
            Some(_) => bail!("--access {port}: an access port has one VLAN"),
            None => None,
        };
        Ok(VlanMode::of(tag, &of(&self.trunks).unwrap_or_default()))
    }

    /// What the tables are to hold.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn sources(&self) -> Result<Sources> {
        let maybe = |path: &Option<PathBuf>| path.as_deref().map(read_source).transpose();
        Ok(Sources {
            meters: maybe(&self.meters)?,
            groups: maybe(&self.groups)?,
            rules: Some(read_source(&self.flows)?),
            keeps_rules: false,
        })
    }

    /// The packets that each port receives, by port number. A capture that breaks off is read as far as it goes, with a
    /// warning.
    ///
    /// # Errors
    /// If a port is declared twice, or a capture cannot be read.
    pub(super) fn captures(&self) -> Result<Vec<(ReplayPort, Vec<Record>)>> {
        let mut captures: Vec<(ReplayPort, Vec<Record>)> = Vec::new();
        let numbers = self.inputs.iter().map(|input| match input.port {
            GivenPort::Number(number) => Some(number),
            GivenPort::Name(_) => None,
        });
        let given: BTreeSet<u16> = numbers.flatten().collect();
        let mut free = (1..).filter(|number| !given.contains(number));
        for PortCapture { port, path } in &self.inputs {
            let label = port.to_string();
            if captures.iter().any(|(other, _)| other.label == label) {
                bail!("--in {label}={}: port {label} has a capture already", path.display());
            }
            let (ofport, name) = match port {
                GivenPort::Number(number) => (*number, None),
                GivenPort::Name(name) => {
                    (free.next().expect("invariant: fewer ports than numbers"), Some(name.clone()))
                }
            };
            let (records, note) = capture::read(path)?;
            if let Some(note) = note {
                eprintln!("sluice: warning: {}: {note}", path.display());
            }
            captures.push((ReplayPort { ofport, label, name, vlan: self.vlan_mode(port)? }, records));
        }
        captures.sort_by_key(|(port, _)| port.ofport);
        Ok(captures)
    }
}
