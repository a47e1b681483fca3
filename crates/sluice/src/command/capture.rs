//! `sluice/capture`: packets of a port, or those that are dropped, as pcapng behind the reply.
//!
//! The thread of the client's connection takes what PMDs have captured and writes it. A client that does not read holds
//! that thread only: PMDs find their queues full, count overruns, and go on.

use super::packet_filter::FilterText;
use crate::process::Process;
use sluice_action::{DatapathPortNames, PortNo, show_actions, show_flow};
use sluice_datapath::{Capture, CapturePoint, CaptureRequest, CaptureTarget, CaptureVerdict, CapturedPacket};
use sluice_flow::geneve::OptionMap;
use sluice_flow::layout::IN_PORT;
use sluice_flow::{OfPort, PacketFilter, PortNames};
use sluice_ofproto::{matched_rules, packet_of};
use sluice_port::pcap::next_generation::{
    Direction, PacketRecord, write_interface, write_packet, write_section, write_statistics,
};
use sluice_unixctl::Streamed;
use sluice_vswitch::{PortStatus, Switch};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The longest packet that is captured whole unless told otherwise. Source: libpcap, MAXIMUM_SNAPLEN.
const SNAPLEN: usize = 262_144;

/// From one look at the queues to the next. A PMD that forwards a million packets a second fills its queue in four
/// milliseconds, an ordinary network's port never.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How long one attempt to write to a client may wait.
const WRITE_WITHIN: Duration = Duration::from_millis(200);

/// From one look whether the port is still there to the next, during which the names of ports are kept, too.
const NAMES_FOR: Duration = Duration::from_secs(1);

/// Rules of a packet that its comment names.
const RULES_MAX: usize = 16;

/// The word that stands for dropped packets in the place of a port.
const DROPS: &str = "DROPS";

/// What the command is asked for.
struct Arguments {
    /// `None`: drops.
    port: Option<String>,
    filter: Option<String>,
    snaplen: usize,
    count: u64,
    time: Duration,
}

impl Arguments {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let (mut snaplen, mut count, mut time) = (SNAPLEN, u64::MAX, Duration::MAX);
        let mut words = Vec::new();
        for arg in args {
            match arg.strip_prefix("--").and_then(|option| option.split_once('=')) {
                Some(("snaplen", value)) => snaplen = parse_number("--snaplen", value, 1..=SNAPLEN as u64)? as usize,
                Some(("count", value)) => count = parse_number("--count", value, 1..=u64::MAX)?,
                Some(("seconds", value)) => {
                    time = Duration::from_secs(parse_number("--seconds", value, 1..=u64::from(u32::MAX))?);
                }
                _ if arg.starts_with('-') => {
                    return Err(format!("{arg}: unknown option; expected --snaplen=N, --count=N or --seconds=N"));
                }
                _ => words.push((*arg).to_owned()),
            }
        }
        let mut words = words.into_iter();
        let port = words.next().ok_or("expected a port, or DROPS")?;
        let (port, filter) = ((port != DROPS).then_some(port), words.next());
        match words.next() {
            Some(more) => {
                Err(format!("{more}: one word too many; a filter has commas and no spaces, such as udp,tp_dst=53"))
            }
            None => Ok(Arguments { port, filter, snaplen, count, time }),
        }
    }
}

fn parse_number(option: &str, value: &str, limits: RangeInclusive<u64>) -> Result<u64, String> {
    let number = value.parse().ok().filter(|number| limits.contains(number));
    number.ok_or_else(|| format!("{option}={value}: expected {} to {}", limits.start(), limits.end()))
}

/// Begins a capture; what is returned writes it.
///
/// # Errors
/// If the arguments are wrong, or there are too many captures.
pub fn capture(process: &Arc<Process>, args: &[&str]) -> Result<Streamed, String> {
    let arguments = Arguments::parse(args)?;
    let switch = process.switch();
    let (target, filter) = match &arguments.port {
        None => {
            let (ports, options) = (all_ports(switch), OptionMap::default());
            (CaptureTarget::Drops, parse_filter(arguments.filter.as_deref(), &ports, &options)?)
        }
        Some(name) => {
            let (number, bridge, ports) = find_port(switch, name)?;
            let options = switch.ofproto().tunnel_options(&bridge);
            (CaptureTarget::Port(number), parse_filter(arguments.filter.as_deref(), &ports, &options)?)
        }
    };
    let request = CaptureRequest { target, filter, snaplen: arguments.snaplen };
    let capture = switch.datapath().start_capture(request).map_err(|error| error.to_string())?;
    let what = arguments.port.as_deref().unwrap_or(DROPS).to_owned();
    tracing::info!("{what}: a capture begins");
    let running = Running { switch: Arc::clone(switch), capture, what };
    Ok(Box::new(move |stream| running.write(stream, &arguments)))
}

/// The ports that a filter may name, by their numbers in the filter's text: name and datapath port.
type FilterPorts = BTreeMap<u16, (String, PortNo)>;

/// All ports, by their datapath numbers: OpenFlow numbers are those of one bridge.
fn all_ports(switch: &Switch) -> FilterPorts {
    let ports = switch.port_status().into_values().flatten();
    ports.filter_map(|port| Some((u16::try_from(port.number?.0).ok()?, (port.name, port.number?)))).collect()
}

/// A port's number in the datapath, its bridge, and the ports of that by OpenFlow number.
fn find_port(switch: &Switch, name: &str) -> Result<(PortNo, String, FilterPorts), String> {
    let bridges = switch.port_status();
    let of_bridge = bridges.into_iter().find(|(_, ports)| ports.iter().any(|port| port.name == name));
    let (bridge, ports) = of_bridge.ok_or_else(|| format!("{name}: no such port; dpif/show lists them"))?;
    let port: &PortStatus = ports.iter().find(|port| port.name == name).expect("invariant: it was found");
    if let Some(peer) = &port.peer {
        return Err(format!(
            "{name}: patch ports have no packets of their own; capture a port behind it, or behind {peer}"
        ));
    }
    if let Some(error) = &port.error {
        return Err(format!("{name}: the port is not open: {error}"));
    }
    let number = port.number.ok_or_else(|| format!("{name}: the port has no device, and so no packets"))?;
    let numbered = ports.iter().filter_map(|port| Some((port.ofport.0, (port.name.clone(), port.number?))));
    let numbered = numbered.collect();
    Ok((number, bridge, numbered))
}

/// A filter of packets of a bridge that maps options so, with datapath ports where its text has those of OpenFlow.
fn parse_filter(text: Option<&str>, ports: &FilterPorts, options: &OptionMap) -> Result<Option<PacketFilter>, String> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let mut names = PortNames::NONE;
    ports.iter().for_each(|(number, (name, _))| names.insert(name, OfPort(*number)));
    let wrong = |error: String| format!("filter {text}: {error}");
    let mut read = FilterText::parse(text, &names).map_err(wrong)?;
    let filter = &mut read.matches;
    if filter.mask.number(IN_PORT) != 0 {
        let number = filter.key.number(IN_PORT);
        let port = u16::try_from(number).ok().and_then(|number| ports.get(&number));
        let (_, datapath) = port.ok_or_else(|| format!("filter {text}: there is no port {number}"))?;
        filter.mask.set_number(IN_PORT, u64::from(u32::MAX));
        filter.key.set_number(IN_PORT, datapath.0.into());
    }
    read.within(options).map(Some).map_err(wrong)
}

/// A capture under way.
struct Running {
    switch: Arc<Switch>,
    capture: Capture,
    what: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.switch.datapath().stop_capture(&self.capture);
        tracing::info!(
            "{}: the capture has ended; {} packets were not captured, for lack of room",
            self.what,
            self.capture.overruns()
        );
    }
}

impl Running {
    /// Writes packets until the client has gone, or has as many as it wanted.
    fn write(&self, stream: &UnixStream, arguments: &Arguments) {
        let written = self.try_write(stream, arguments);
        if let Err(error) = written {
            tracing::debug!("{}: the capture's client has gone: {error}", self.what);
        }
    }

    fn try_write(&self, stream: &UnixStream, arguments: &Arguments) -> io::Result<()> {
        stream.set_write_timeout(Some(WRITE_WITHIN))?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        let began = Instant::now();
        let mut text = Text::new(&self.switch, arguments.snaplen);
        let mut left = arguments.count;
        loop {
            let is_last = began.elapsed() >= arguments.time;
            let mut packets = self.capture.take();
            packets.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= packets.len() as u64;
            text.refresh(&self.switch);
            packets.iter().for_each(|packet| text.packet(packet));
            if is_last || left == 0 {
                text.end(self.capture.overruns());
                return text.send(stream, began, Duration::MAX);
            }
            text.send(stream, began, arguments.time)?;
            if !packets.is_empty() {
                continue;
            }
            // The client says nothing more: waiting for that is waiting for its end.
            match ({ stream }).read(&mut [0; 16]) {
                Ok(0) => return Ok(()),
                Err(e) if e.kind() != io::ErrorKind::WouldBlock && e.kind() != io::ErrorKind::Interrupted => {
                    return Err(e);
                }
                _ => {}
            }
        }
    }
}

/// The file as it is written.
struct Text {
    out: Vec<u8>,
    snaplen: u32,
    /// By port.
    interfaces: BTreeMap<Option<PortNo>, u32>,
    names: DatapathPortNames,
    named: Instant,
}

impl Text {
    fn new(switch: &Switch, snaplen: usize) -> Self {
        let mut out = Vec::new();
        write_section(&mut out, concat!("sluice ", env!("CARGO_PKG_VERSION")));
        let (names, interfaces) = (switch.datapath_names(), BTreeMap::new());
        Text { out, snaplen: snaplen as u32, interfaces, names, named: Instant::now() }
    }

    fn refresh(&mut self, switch: &Switch) {
        if self.named.elapsed() >= NAMES_FOR {
            (self.names, self.named) = (switch.datapath_names(), Instant::now());
        }
    }

    fn packet(&mut self, packet: &CapturedPacket) {
        let name = packet.port.map_or("switch".into(), |port| self.names.display(port).to_string());
        let next = self.interfaces.len() as u32;
        let interface = *self.interfaces.entry(packet.port).or_insert_with(|| {
            write_interface(&mut self.out, &name, self.snaplen);
            next
        });
        let direction = match packet.point {
            CapturePoint::Received => Direction::Inbound,
            CapturePoint::Sent => Direction::Outbound,
            CapturePoint::Dropped => Direction::Unknown,
        };
        let comment = comment(packet, &name, &self.names);
        let record = PacketRecord {
            interface,
            time_ns: packet.time_ns,
            bytes: &packet.bytes,
            original_len: packet.len as u32,
            direction,
            comment: &comment,
        };
        write_packet(&mut self.out, &record);
    }

    /// Says how many packets were not captured.
    fn end(&mut self, overruns: u64) {
        if self.interfaces.is_empty() {
            write_interface(&mut self.out, "none", self.snaplen);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        write_statistics(&mut self.out, 0, now, overruns);
    }

    /// Hands on what there is. A client that stalls is waited for, but not beyond the capture's time.
    fn send(&mut self, mut stream: &UnixStream, began: Instant, time: Duration) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.out.len() {
            match stream.write(&self.out[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && began.elapsed() < time => {}
                Err(e) => return Err(e),
            }
        }
        self.out.clear();
        Ok(())
    }
}

/// What is said of a packet: port, direction, verdict, the rules and the megaflow that it met.
fn comment(packet: &CapturedPacket, name: &str, names: &DatapathPortNames) -> String {
    let direction = match packet.point {
        CapturePoint::Received => "rx",
        CapturePoint::Sent => "tx",
        CapturePoint::Dropped => "drop",
    };
    let mut out = format!("port={name} direction={direction}");
    if let (CapturePoint::Sent, Some(in_port)) = (packet.point, packet.in_port) {
        let _ = write!(out, " in_port={}", names.display(in_port));
    }
    let actions = packet.flow.as_ref().map(|flow| show_actions(&flow.actions, names));
    match (packet.verdict, actions) {
        (CaptureVerdict::Dropped(reason), _) => {
            let _ = write!(out, " verdict=dropped reason={}", reason.name());
        }
        (CaptureVerdict::Sent, _) => out.push_str(" verdict=sent"),
        (CaptureVerdict::Actions, Some(actions)) => _ = write!(out, " verdict=actions:{actions}"),
        (CaptureVerdict::Actions, None) => out.push_str(" verdict=unknown"),
    }
    let Some(flow) = &packet.flow else { return out };
    for rule in matched_rules(&flow.xcache).iter().take(RULES_MAX) {
        let _ = write!(out, " rule=cookie={:#x},table={},priority={}", rule.cookie, rule.table, rule.priority);
    }
    if let Some(matched) = &flow.matched {
        let key = packet_of(&flow.xcache).unwrap_or_else(|| matched.key());
        let _ = write!(out, " megaflow={}", show_flow(&key, &matched.mask().whole, false, names));
    }
    let _ = write!(out, " pmd={}", packet.pmd);
    out
}
