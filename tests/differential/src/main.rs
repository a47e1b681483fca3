//! Random tables and packets through Open vSwitch's userspace datapath and through `sluice replay`: the same packets
//! out of every port in the same order, the same megaflows, the same rule counters.
#![forbid(unsafe_code)]

mod actions;
mod canonical;
mod capture;
mod compare;
mod ct;
mod flows;
mod known;
mod matches;
mod ovs;
mod packets;
mod rng;
mod sluice;
mod table;
mod trace;
mod unixctl;
mod values;

use anyhow::{Context, Result};
use clap::Parser;
use compare::{Difference, differences};
use known::Known;
use rng::Rng;
use sluice::Replay;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use table::Tables;
use values::Values;

/// Compares Sluice with Open vSwitch over random tables and packets.
#[derive(Parser)]
struct Options {
    /// How many tables.
    #[arg(long, default_value_t = 200)]
    tables: u64,
    /// How many packets go through each.
    #[arg(long, default_value_t = 100)]
    packets: usize,
    /// Seed of the first table; each following one has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tables that track connections, and packets that talk to each other.
    #[arg(long)]
    ct: bool,
    /// How many VLAN tags both read, 1 or 2.
    #[arg(long, default_value_t = 1)]
    vlan_limit: u32,
    /// Compare these rules instead of random ones, with the captures of --in.
    #[arg(long, value_name = "FILE", requires = "input")]
    flows: Option<PathBuf>,
    /// A capture for --flows.
    #[arg(long = "in", id = "input", value_name = "PORT=FILE")]
    inputs: Vec<String>,
    /// The binary to test; by default the one beside this program.
    #[arg(long)]
    sluice: Option<PathBuf>,
    /// Where tables that differ are kept with their captures.
    #[arg(long, default_value = "target/differential")]
    keep: PathBuf,
    /// Differences that are meant.
    #[arg(long, default_value = "tests/known-differences.toml")]
    known: PathBuf,
    /// Differences to print of each table.
    #[arg(long, default_value_t = 4)]
    show: usize,
}

/// A packet and when it comes in where.
#[derive(Clone, Debug)]
pub struct Input {
    port: u16,
    time_us: u64,
    bytes: Vec<u8>,
}

/// A packet that was sent, and when the packet that caused it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    port: u16,
    time_us: u64,
    bytes: Vec<u8>,
}

/// All there is to compare of one table's run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    sent: Vec<Sent>,
    /// What `ofproto/trace` said of each packet before it came.
    traces: Vec<String>,
    megaflows: flows::Megaflows,
    counters: flows::Counters,
    /// Packets and bytes that Open vSwitch carried and does not count; see [`flows::uncounted`].
    uncounted: Vec<(u64, u64)>,
}

/// One comparison: rules and packets.
struct Case {
    name: String,
    tables: Tables,
    inputs: Vec<Input>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let beside = std::env::current_exe()?.with_file_name("sluice");
    let replay = Replay { binary: options.sluice.clone().unwrap_or(beside), vlan_limit: options.vlan_limit };
    let known = Known::load(&options.known)?;
    let mut ovs = ovs::Ovs::start(options.vlan_limit)?;
    let mut report = Report::default();
    for case in cases(&options)? {
        let case = case?;
        let folder = options.keep.join(&case.name);
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let mut compared = compare(&mut ovs, &replay, &folder, &case, &known, &mut report);
        if compared.as_ref().is_err_and(is_stuck) {
            // An abort (`ovs-ends`) may get stuck halfway, once in thousands of tables.
            println!("{}: OVS gave no answer; asked another", case.name);
            ovs = ovs::Ovs::start(options.vlan_limit)?;
            compared = compare(&mut ovs, &replay, &folder, &case, &known, &mut report);
        }
        let (peer, found) = match compared {
            Ok(compared) => compared,
            Err(e) => {
                // A daemon that ends closes its sockets a moment before it is gone.
                std::thread::sleep(std::time::Duration::from_millis(300));
                let kind = if ovs.is_alive() { "run" } else { "ended" };
                if kind == "ended" {
                    ovs = ovs::Ovs::start(options.vlan_limit)?;
                }
                (Outcome::default(), vec![Difference::new(kind, &format!("{e:#}"), "", "")])
            }
        };
        report.add(&case.name, &peer, found, &known, options.show);
        if !report.last_differs {
            std::fs::remove_dir_all(&folder)?;
        } else {
            keep_peer(&folder, &peer)?;
        }
    }
    report.print(&options, &known);
    // The exit below drops nothing, and the daemons must end.
    drop(ovs);
    std::process::exit(i32::from(report.failed > 0))
}

/// Whether a switch gave no answer in time.
fn is_stuck(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|e| matches!(e.kind(), TimedOut | WouldBlock))
}

/// Runs a case through both; what OVS made of it, and what differs.
fn compare(
    ovs: &mut ovs::Ovs,
    replay: &Replay,
    folder: &Path,
    case: &Case,
    known: &[Known],
    report: &mut Report,
) -> Result<(Outcome, Vec<Difference>)> {
    let ours = replay.run(folder, &case.tables, &case.inputs)?;
    let caches = !case.tables.theme.learns();
    let mut peer = run_peer(ovs, case, caches).context("OVS")?;
    let mut found = differences(&peer, &ours);
    let is_explained = |found: &[Difference]| found.iter().all(|d| known.iter().any(|k| k.covers(d)));
    if !is_explained(&found) {
        // Rules of the table before may still have been there in OVS; it must differ twice.
        peer = run_peer(ovs, case, caches)?;
        report.asked_twice += 1;
        found = differences(&peer, &ours);
    }
    if caches && !is_explained(&found) && found.iter().any(|d| d.kind == "mask") {
        let again = compare_again(ovs, case, &ours)?;
        if is_explained(&again) {
            found = again;
        }
    }
    Ok((peer, found))
}

/// Compares without Open vSwitch's megaflows: where one matches less than decides, the next packet gets what another
/// deserved. The traces must tell of such a megaflow.
fn compare_again(ovs: &mut ovs::Ovs, case: &Case, ours: &Outcome) -> Result<Vec<Difference>> {
    let peer = run_peer(ovs, case, false)?;
    let mut found = differences(&peer, ours);
    found.push(Difference::new("wider", "the table", "", ""));
    Ok(found)
}

/// The rules and captures that were given, or a random case a seed.
fn cases(options: &Options) -> Result<Box<dyn Iterator<Item = Result<Case>> + '_>> {
    let Some(flows) = &options.flows else {
        let seeds = options.seed..options.seed + options.tables;
        return Ok(Box::new(seeds.map(|seed| Ok(generate(seed, options)))));
    };
    let text = std::fs::read_to_string(flows).with_context(|| format!("reading {}", flows.display()))?;
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned).collect();
    let mut inputs = Vec::new();
    for input in &options.inputs {
        let (port, path) = input.split_once('=').with_context(|| format!("--in {input}: expected PORT=FILE"))?;
        let port = port.parse().with_context(|| format!("--in {input}: expected a port number"))?;
        let bytes = std::fs::read(path).with_context(|| format!("reading {path}"))?;
        let packets = capture::read(&bytes).with_context(|| format!("reading {path}"))?;
        inputs.extend(packets.into_iter().map(|p| Input { port, time_us: p.time_us, bytes: p.bytes }));
    }
    inputs.sort_by_key(|input| (input.time_us, input.port));
    // Close together, so that no megaflow idles away on one side.
    inputs.iter_mut().enumerate().for_each(|(i, input)| input.time_us = time_us(i));
    let name = flows.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let vlans = vec![table::PortVlans::All; values::PORTS.into()];
    let tables = Tables { version: actions::Version::Of10, lines, theme: table::Theme::Stateless, vlans };
    Ok(Box::new(std::iter::once(Ok(Case { name, tables, inputs }))))
}

/// When packet `i` comes in: a millisecond after the one before it.
fn time_us(i: usize) -> u64 {
    1_000_000 + 1000 * i as u64
}

/// Which packet comes in then.
fn input_at(time_us: u64) -> usize {
    (time_us.saturating_sub(1_000_000) / 1000) as usize
}

/// The tables and packets that a seed stands for.
fn generate(seed: u64, options: &Options) -> Case {
    let mut rng = Rng::new(seed);
    if options.ct {
        let tables = ct::tables(&mut rng);
        let packets = ct::packets(&mut rng, options.packets).into_iter().enumerate();
        let port = |rng: &mut Rng| 1 + rng.below(values::PORTS.into()) as u16;
        let inputs = packets.map(|(i, bytes)| Input { bytes, port: port(&mut rng), time_us: time_us(i) }).collect();
        return Case { name: format!("ct-seed-{seed}"), tables, inputs };
    }
    let values = Values::new(&mut rng);
    let tables = table::random(&mut rng, &values);
    let inputs = (0..options.packets).map(|i| Input {
        bytes: packets::random(&mut rng, &values, tables.theme),
        port: *rng.pick(&values::ALL_PORTS),
        time_us: time_us(i),
    });
    let inputs = inputs.collect();
    Case { name: format!("seed-{seed}"), tables, inputs }
}

/// Open vSwitch's side. Without caches, each packet is translated by the rules as they are then.
fn run_peer(ovs: &mut ovs::Ovs, case: &Case, caches: bool) -> Result<Outcome> {
    ovs.load(&case.tables)?;
    let (mut sent, mut traces) = (Vec::new(), Vec::new());
    let theme = case.tables.theme;
    for input in &case.inputs {
        if theme.learns() {
            traces.push(ovs.trace(input.port, &input.bytes)?);
        }
        if !caches {
            // What a packet taught takes effect on megaflows a moment later; here it must be before the next packet.
            ovs.forget_megaflows()?;
        }
        let out = ovs.receive(input.port, &input.bytes).with_context(|| format!("packet at {} us", input.time_us))?;
        sent.extend(out.into_iter().map(|(port, bytes)| Sent { port, time_us: input.time_us, bytes }));
    }
    let dump = if caches { ovs.megaflows()? } else { String::new() };
    let (megaflows, uncounted) = (flows::megaflows(&dump), flows::uncounted(&dump));
    let counters = ovs.counters(case.tables.version)?;
    if theme == table::Theme::Stateless {
        // Not before: a trace does what the actions say, and if they recirculate within others, the pass that follows
        // makes megaflows and counts.
        traces = case.inputs.iter().map(|input| ovs.trace(input.port, &input.bytes)).collect::<Result<_>>()?;
    }
    Ok(Outcome { sent, traces, megaflows, counters, uncounted })
}

fn keep_peer(folder: &Path, peer: &Outcome) -> Result<()> {
    let text: String = peer.megaflows.iter().map(|(k, a)| format!("{k}, actions:{a}\n")).collect();
    std::fs::write(folder.join("ovs-megaflows.txt"), text)?;
    std::fs::write(folder.join("ovs-traces.txt"), peer.traces.join("\n\n"))?;
    for port in values::ALL_PORTS {
        let sent = peer.sent.iter().filter(|s| s.port == port);
        let packets: Vec<_> = sent.map(|s| capture::Captured { time_us: s.time_us, bytes: s.bytes.clone() }).collect();
        std::fs::write(folder.join(format!("ovs-out{}.pcap", values::port_text(port))), capture::write(&packets))?;
    }
    Ok(())
}

#[derive(Default)]
struct Report {
    passed: u64,
    failed: u64,
    last_differs: bool,
    packets_out: usize,
    megaflows: usize,
    rules: usize,
    rules_hit: usize,
    of_kind: BTreeMap<&'static str, usize>,
    known_seen: BTreeMap<String, usize>,
    /// Tables that OVS was asked about again.
    asked_twice: usize,
}

impl Report {
    fn add(&mut self, name: &str, peer: &Outcome, found: Vec<Difference>, known: &[Known], show: usize) {
        self.packets_out += peer.sent.len();
        self.megaflows += peer.megaflows.len();
        self.rules += peer.counters.len();
        self.rules_hit += peer.counters.values().filter(|(packets, _)| *packets > 0).count();
        let (mut new, mut shown) = (0, 0);
        for difference in &found {
            if let Some(it) = known.iter().find(|k| k.covers(difference)) {
                *self.known_seen.entry(it.name.clone()).or_default() += 1;
                continue;
            }
            new += 1;
            *self.of_kind.entry(difference.kind).or_default() += 1;
            if shown < show {
                shown += 1;
                println!("{name}: {difference}");
            }
        }
        if new > shown {
            println!("{name}: … and {} more", new - shown);
        }
        self.last_differs = new > 0;
        if new > 0 { self.failed += 1 } else { self.passed += 1 }
    }

    fn print(&self, options: &Options, known: &[Known]) {
        let what = match &options.flows {
            Some(flows) => flows.display().to_string(),
            None => {
                let Options { tables, seed, packets, vlan_limit, .. } = options;
                format!("{tables} tables from seed {seed}, {packets} packets each, VLAN limit {vlan_limit}")
            }
        };
        println!(
            "{what}: {} rules of which {} were hit, {} packets out, {} megaflows",
            self.rules, self.rules_hit, self.packets_out, self.megaflows
        );
        for (kind, n) in &self.of_kind {
            println!("differences of kind {kind}: {n}");
        }
        for it in known {
            let n = self.known_seen.get(&it.name).copied().unwrap_or(0);
            println!("known difference {}: seen {n} times. {}", it.name, it.reason);
        }
        if self.failed > 0 {
            println!(
                "the tables that differ are under {}; run one again with --tables 1 --seed N",
                options.keep.display()
            );
        }
        println!("lane differential: {} passed, {} failed, 0 skipped", self.passed, self.failed);
    }
}
