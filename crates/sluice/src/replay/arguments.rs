//! The command line of `sluice replay`.

use super::capture::{self, Record};
use crate::config::read_source;
use anyhow::{Result, bail};
use clap::builder::TypedValueParser;
use sluice_flow::OfPort;
use sluice_ofproto::VlanMode;
use sluice_vswitch::Sources;
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
    /// A port, by number or LOCAL, and the capture that it receives, which may be empty; give one for every port
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
    ofport: u16,
    path: PathBuf,
}

fn is_a_port(port: OfPort) -> bool {
    port.is_ordinary() || port == OfPort::LOCAL
}

impl FromStr for PortCapture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected PORT=FILE.pcap with an OpenFlow port number from 1 to 65279, or LOCAL";
        let (port, path) = text.split_once('=').ok_or(expected)?;
        let ofport = if port == "LOCAL" { OfPort::LOCAL.0 } else { port.parse().map_err(|_| expected)? };
        if ofport == 0 || !is_a_port(OfPort(ofport)) || path.is_empty() {
            return Err(expected.into());
        }
        Ok(PortCapture { ofport, path: path.into() })
    }
}

/// `PORT=VLAN,…`.
#[derive(Clone, Debug)]
struct PortVlans {
    ofport: u16,
    vlans: Vec<u16>,
}

impl FromStr for PortVlans {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected PORT=VLAN with VLANs from 0 to 4095";
        let (port, vlans) = text.split_once('=').ok_or(expected)?;
        let ofport: u16 = port.parse().map_err(|_| expected)?;
        let vlan = |v: &str| v.parse().ok().filter(|v| *v < 4096).ok_or(expected);
        let vlans: Vec<u16> = vlans.split(',').map(vlan).collect::<Result<_, _>>()?;
        Ok(PortVlans { ofport, vlans })
    }
}

impl ReplayArgs {
    /// The VLANs of a port.
    ///
    /// # Errors
    /// If an access port is given several.
    pub(super) fn vlan_mode(&self, ofport: u16) -> Result<VlanMode> {
        let of = |list: &[PortVlans]| list.iter().find(|p| p.ofport == ofport).map(|p| p.vlans.clone());
        let tag = match of(&self.access).as_deref() {
            Some([vlan]) => Some(*vlan),
            Some(_) => bail!("--access {ofport}: an access port has one VLAN"),
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
        })
    }

    /// The packets that each port receives, by port number.
    ///
    /// # Errors
    /// If a port is declared twice, or a capture cannot be read whole.
    pub(super) fn captures(&self) -> Result<Vec<(u16, Vec<Record>)>> {
        let mut captures = Vec::new();
        for input in &self.inputs {
            if captures.iter().any(|(ofport, _)| *ofport == input.ofport) {
                bail!("--in {}={}: port {} has a capture already", input.ofport, input.path.display(), input.ofport);
            }
            captures.push((input.ofport, capture::read(&input.path)?));
        }
        captures.sort_by_key(|(ofport, _)| *ofport);
        Ok(captures)
    }
}
