//! `sluice replay`: captures through rules, without threads, privileges or a clock of its own.
//!
//! Packets come in the order of their time stamps over all captures; of equal ones the lower port comes first, then the
//! order of the file. The time stamps are the only clock: they age rules and megaflows. With batches of one packet, the
//! default, every packet sees all effects of the packets before it. The same captures give the same result on every
//! machine.

mod arguments;
mod capture;
mod port;
mod summary;

use arguments::ReplayPort;

pub use arguments::ReplayArgs;

use crate::text::megaflows::dpctl_line;
use anyhow::{Context, Result, ensure};
use capture::Record;
use port::Wire;
use sluice_action::{DatapathPortNames, PortNo};
use sluice_datapath::{Arm, Config, EmcInsert};
use sluice_flow::{OfPort, VlanLimit};
use sluice_port::Pools;
use sluice_vswitch::{Assembly, Bridge, Port};
use std::sync::Arc;
use summary::Summary;

/// The bridge that all ports are of.
const BRIDGE: &str = "br0";

/// Packet buffers: a batch, its copies, and what caches keep.
const BUFFERS: usize = 4096;

/// The seed of the hash and of every random choice.
const SEED: u64 = 0;

/// From one look at all megaflows to the next if no rule changes, milliseconds of the captures' clock. Source: OVS's
/// max-revalidator.
const REVALIDATE_EVERY_MS: u64 = 500;

/// A megaflow that is unused for this long is deleted, milliseconds of the captures' clock.
const MAX_IDLE_MS: u64 = sluice_ofproto::DEFAULT_MAX_IDLE_MS;

/// A capture and the port it is received on.
struct Input {
    port: ReplayPort,
    wire: Arc<Wire>,
    records: Vec<Record>,
}

/// The switch and its inputs.
struct Bench {
    assembly: Assembly,
    inputs: Vec<Input>,
    /// When the megaflows were last looked at, and what the tables were then.
    revalidated_ms: u64,
    revalidated_epoch: u64,
    /// What ofproto/trace said of each packet, if that is wanted.
    traces: Option<String>,
}

/// Replays captures and writes what came of them.
///
/// # Errors
/// If a file cannot be read or written, or is not what it should be.
pub fn replay(args: &ReplayArgs) -> Result<String> {
    let mut bench = Bench::set_up(args)?;
    let order = bench.order();
    let now_ms = bench.run(&order, args.batch)?;
    bench.assembly.ofproto().revalidate(&*bench.assembly.datapath().store(), now_ms, u64::MAX);

    std::fs::create_dir_all(&args.out_dir).with_context(|| format!("{}: cannot be made", args.out_dir.display()))?;
    for input in &bench.inputs {
        let path = args.out_dir.join(format!("{}.pcap", input.port.label));
        capture::write(&path, &input.wire.sent()).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    if let Some(path) = &args.megaflows {
        std::fs::write(path, bench.megaflows(now_ms))
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    if let (Some(path), Some(traces)) = (&args.traces, &bench.traces) {
        std::fs::write(path, traces).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    let summary = Summary::of(&bench, now_ms)?;
    Ok(if args.json { summary.json() } else { summary.text() })
}

/// What a port is called.
fn port_name(port: &ReplayPort) -> String {
    match &port.name {
        Some(name) => name.clone(),
        None if port.ofport == OfPort::LOCAL.0 => BRIDGE.to_owned(),
        None => format!("p{}", port.ofport),
    }
}

impl Bench {
    fn set_up(args: &ReplayArgs) -> Result<Bench> {
        let captures = args.captures()?;
        let longest = captures.iter().flat_map(|(_, records)| records).map(|r| r.bytes.len()).max().unwrap_or(0);
        let config = Config {
            cores: (0..args.pmds).collect(),
            batch: args.batch,
            settings: Arm { emc: (!args.no_emc).then_some(EmcInsert::OneIn(1)), ..Arm::BARE }.into(),
            vlan_limit: VlanLimit::from_setting(args.vlan_limit.into()),
            recirculations: args.recirculations,
            seed: Some(SEED),
            ..Config::default()
        };
        let mut assembly = Assembly::new(config, Pools::new(BUFFERS))?;
        // The first packet's time is when everything begins.
        let began_ms = captures.iter().flat_map(|(_, records)| records).map(Record::ms).min().unwrap_or(0);
        let bridge = Bridge::new(BRIDGE);
        assembly.create_bridge(&bridge, began_ms)?;
        if captures.iter().all(|(port, _)| port.ofport != OfPort::LOCAL.0) {
            assembly.add_bare_local_port(BRIDGE)?;
        }
        let pool = assembly.pool(longest.max(port::FRAME_SIZE_MIN))?;
        let mut inputs = Vec::new();
        for (port, records) in captures {
            let wire = Arc::new(Wire::new(port.ofport, args.queues));
            let desired = Port::new(&port_name(&port), "replay").numbered(port.ofport);
            let desired = Port { vlan: port.vlan.clone(), ..desired };
            assembly.attach_port(BRIDGE, &desired, Box::new(port::WirePort::new(&wire, pool.clone())))?;
            inputs.push(Input { port, wire, records });
        }
        assembly.load_sources(BRIDGE, &args.sources()?, began_ms)?;
        let revalidated_epoch = assembly.ofproto().epoch();
        let traces = args.traces.as_ref().map(|_| String::new());
        Ok(Bench { assembly, inputs, revalidated_ms: began_ms, revalidated_epoch, traces })
    }

    /// The order in which packets come, as pairs of input and packet.
    fn order(&self) -> Vec<(usize, usize)> {
        let all = self.inputs.iter().enumerate().flat_map(|(i, input)| (0..input.records.len()).map(move |r| (i, r)));
        let mut order: Vec<(usize, usize)> = all.collect();
        // Inputs are in order of their ports, and the sort is stable, so ties keep the order of the file.
        order.sort_by_key(|&(input, record)| {
            (self.inputs[input].records[record].time_ns, self.inputs[input].wire.ofport)
        });
        order
    }

    /// Takes every packet through the switch; returns the time of the last.
    fn run(&mut self, order: &[(usize, usize)], batch_max: usize) -> Result<u64> {
        let mut now_ms = self.revalidated_ms;
        let mut at = 0;
        while at < order.len() {
            let (input, first) = order[at];
            let time_ns = self.inputs[input].records[first].time_ns;
            // A batch comes from one port, and at one time: that of its first packet.
            let n = order[at..].iter().take(batch_max).take_while(|(i, _)| *i == input).count();
            // The switch's clock does not go back if that of a capture does.
            now_ms = now_ms.max(time_ns / 1_000_000);
            self.keep_house(now_ms);
            if self.traces.is_some() {
                order[at..at + n].iter().for_each(|&(input, record)| self.trace(input, record, now_ms));
                self.keep_house(now_ms);
            }
            for &(_, record) in &order[at..at + n] {
                self.inputs[input].wire.receive(self.inputs[input].records[record].clone());
            }
            self.inputs.iter().for_each(|input| input.wire.set_time(time_ns));
            self.assembly.datapath().run_once(now_ms);
            self.assembly.ofproto().tick(now_ms);
            ensure!(
                self.inputs[input].wire.is_empty(),
                "packets were left in the receive queue of port {}",
                self.inputs[input].wire.ofport
            );
            at += n;
        }
        self.keep_house(now_ms);
        Ok(now_ms)
    }

    /// Writes down the trace of a packet.
    fn trace(&mut self, input: usize, record: usize, now_ms: u64) {
        let (ofport, record) = (self.inputs[input].wire.ofport, &self.inputs[input].records[record]);
        let hex: String = record.bytes.iter().map(|b| format!("{b:02x}")).collect();
        let answer = self.assembly.ofproto().trace(&[BRIDGE, &format!("in_port={ofport}"), &hex], now_ms);
        let (time_us, text) = (record.time_ns / 1000, answer.unwrap_or_else(|error| error));
        if let Some(traces) = &mut self.traces {
            *traces += &format!("== port {ofport}, {time_us} us\n{}\n", text.trim_end());
        }
    }

    /// Ages connections and rules, and revalidates megaflows if rules have changed or it is time.
    fn keep_house(&mut self, now_ms: u64) {
        self.assembly.datapath().service(now_ms);
        // First: what megaflows have carried counts for the idle timeouts of rules.
        if now_ms >= self.revalidated_ms + REVALIDATE_EVERY_MS {
            self.revalidate(now_ms);
        }
        self.assembly.ofproto().tick(now_ms);
        if self.assembly.ofproto().epoch() != self.revalidated_epoch {
            self.revalidate(now_ms);
        }
    }

    fn revalidate(&mut self, now_ms: u64) {
        let epoch = self.assembly.ofproto().epoch();
        self.assembly.ofproto().revalidate(&*self.assembly.datapath().store(), now_ms, MAX_IDLE_MS);
        (self.revalidated_ms, self.revalidated_epoch) = (now_ms, epoch);
    }

    /// The megaflows as `dpctl/dump-flows -m` prints them.
    fn megaflows(&self, now_ms: u64) -> String {
        let mut names = DatapathPortNames::default();
        for input in &self.inputs {
            names.insert(PortNo(input.wire.ofport.into()), &port_name(&input.port));
        }
        let lines = self.assembly.datapath().flows();
        let lines = lines.iter().map(|flow| dpctl_line(flow, flow.flow.stats, true, &names, now_ms) + "\n");
        let text: String = lines.collect();
        if text.is_empty() { text } else { format!("flow-dump from the main thread:\n{text}") }
    }
}
