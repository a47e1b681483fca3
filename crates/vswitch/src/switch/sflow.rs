//! The thread of the sFlow agents: it takes samples of packets, asks for counters that are due, and sends datagrams.

use super::{Lookups, Switch};
use crate::desired::SFlow;
use crate::sflow::BridgeAgent;
use sluice_action::PortNo;
use sluice_clock::Timer;
use sluice_clock::heartbeat::Heartbeat;
use sluice_datapath::{PacketSample, PacketSamples, PortReport};
use sluice_flow::OfPort;
use sluice_ofproto::{Attach, SFlowSettings};
use sluice_port::DeviceStatus;
use sluice_sflow::{
    CounterRecord, DatapathCounters, FlowSample, InterfaceCounters, ResourceCounters, Source, probability,
};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a command waits for the thread.
const DONE_WITHIN: Duration = Duration::from_secs(1);

/// The speed of a device that does not tell it, bits a second. Source: Open vSwitch ofproto/ofproto-dpif-sflow.c.
const UNKNOWN_SPEED_BPS: u64 = 100_000_000;

/// The agents, by the numbers of their bridges.
pub(super) type Agents = BTreeMap<u32, BridgeAgent>;

/// A port of a bridge with an index.
struct SampledPort {
    name: String,
    ofport: OfPort,
    number: PortNo,
    device: DeviceStatus,
}

impl Switch {
    /// Makes the agents what the bridges ask for. To be called when bridges or ports have come, changed or gone.
    pub(super) fn sync_sflow(&self) {
        let wanted = self.wanted_sflow();
        let mut agents = self.sflow.lock();
        if wanted.is_empty() && agents.is_empty() {
            return;
        }
        let now_s = self.now_ms() / 1000;
        let numbers = self.ofproto.bridge_numbers();
        let mut before = std::mem::take(&mut *agents);
        for (bridge, (sub_id, sflow)) in &wanted {
            let Some(number) = numbers.get(bridge) else { continue };
            let is_same = |agent: &BridgeAgent| agent.sflow == *sflow && agent.sub_id == *sub_id;
            let same = before.remove(number).filter(is_same);
            if let Some(agent) = same.or_else(|| BridgeAgent::open(sflow, *sub_id, now_s)) {
                agents.insert(*number, agent);
            }
        }
        drop(before);
        for (bridge, number) in &numbers {
            let settings = agents.get_mut(number).map(|agent| self.settings(bridge, agent));
            // A bridge that has gone meanwhile needs no settings.
            let _ = self.ofproto.set_sflow(bridge, settings);
        }
        drop(agents);
        self.datapath.wake_sflow();
        self.request_revalidation();
    }

    /// What bridges ask for, with the numbers of their agents.
    fn wanted_sflow(&self) -> BTreeMap<String, (u32, SFlow)> {
        let setup = self.setup();
        let asking = setup.state.bridges.iter().filter_map(|bridge| Some((bridge.name.clone(), bridge.sflow.clone()?)));
        let numbered = asking.zip(0..).filter(|((_, sflow), _)| sflow.is_wanted());
        numbered.map(|((bridge, sflow), sub_id)| (bridge, (sub_id, sflow))).collect()
    }

    /// How the tables are to sample, and which counters the agent is to ask for.
    fn settings(&self, bridge: &str, agent: &mut BridgeAgent) -> SFlowSettings {
        let ports = self.sampled_ports(bridge);
        let interfaces = ports.iter().map(|port| Source::Interface(port.device.ifindex));
        let random = RandomState::new();
        let mut n = 0u32;
        agent.agent.set_sources(interfaces.chain([Source::Bridge(agent.sub_id)]), || {
            n += 1;
            let mut hasher = random.build_hasher();
            hasher.write_u32(n);
            hasher.finish() as u32
        });
        SFlowSettings {
            probability: probability(agent.sflow.sampling),
            header_len: agent.sflow.header_len,
            ifindexes: ports.iter().map(|port| (port.number, port.device.ifindex)).collect(),
        }
    }

    /// The ports of a bridge whose devices have an index.
    fn sampled_ports(&self, bridge: &str) -> Vec<SampledPort> {
        let ports = self.ofproto.ports(bridge).unwrap_or_default();
        let of_datapath = |attach: &Attach| match attach {
            Attach::Datapath(number) => Some(*number),
            _ => None,
        };
        let numbers: Vec<PortNo> = ports.iter().filter_map(|port| of_datapath(&port.attach)).collect();
        let mut devices: BTreeMap<PortNo, DeviceStatus> = numbers
            .iter()
            .zip(self.datapath.device_status(&numbers))
            .filter_map(|(number, device)| Some((*number, device.filter(|device| device.ifindex != 0)?)))
            .collect();
        let sampled = ports.into_iter().filter_map(|port| {
            let number = of_datapath(&port.attach)?;
            Some(SampledPort { name: port.name, ofport: port.number, number, device: devices.remove(&number)? })
        });
        sampled.collect()
    }

    /// Waits until the agents have taken all samples that there are.
    pub(super) fn wait_for_sflow(&self) {
        if !self.sflow.lock().is_empty() {
            self.datapath.wait_for_sflow(DONE_WITHIN);
        }
    }

    fn take_samples(&self, queue: &PacketSamples, samples: &[PacketSample]) {
        let mut agents = self.sflow.lock();
        for (number, agent) in agents.iter_mut() {
            agent.agent.count_drops(queue.take_dropped(*number));
        }
        for sample in samples {
            let Some(agent) = agents.get_mut(&sample.action.bridge) else { continue };
            agent.agent.sample(&FlowSample {
                input: sample.action.input,
                output: sample.action.output,
                src_tci: sample.src_tci,
                dst_tci: sample.action.dst_tci,
                header: &sample.header,
                frame_len: sample.frame_len,
                ingress: sample.ingress,
                egress: sample.action.egress,
                labels: &sample.labels,
            });
        }
        agents.values_mut().for_each(BridgeAgent::send);
    }

    /// What is to be done once a second. When, in the switch's time; `None`: there is no agent.
    fn tick_sflow(&self) -> Option<u64> {
        let now_s = self.now_ms() / 1000;
        if self.sflow.lock().is_empty() {
            return None;
        }
        // Devices may have come and got an index.
        self.refresh_sflow_ports();
        let names: BTreeMap<u32, String> =
            self.ofproto.bridge_numbers().into_iter().map(|(name, number)| (number, name)).collect();
        let mut agents = self.sflow.lock();
        let first = agents.values().map(|agent| agent.sub_id).min();
        for (number, agent) in agents.iter_mut() {
            let due = agent.agent.tick(now_s);
            if let Some(bridge) = names.get(number).filter(|_| !due.is_empty()) {
                self.sample_counters(bridge, agent, &due, first == Some(agent.sub_id));
            }
            agent.agent.flush();
            agent.send();
            agent.retry(now_s);
        }
        Some((now_s + 1) * 1000)
    }

    fn refresh_sflow_ports(&self) {
        let names = self.ofproto.bridge_numbers();
        let mut agents = self.sflow.lock();
        for (name, number) in &names {
            if let Some(agent) = agents.get_mut(number) {
                let settings = self.settings(name, agent);
                let _ = self.ofproto.set_sflow(name, Some(settings));
            }
        }
    }

    /// Samples the counters that are due. One agent alone tells those of the whole process.
    fn sample_counters(&self, bridge: &str, agent: &mut BridgeAgent, due: &[Source], is_first: bool) {
        let bridges = self.ofproto.bridges();
        let datapath_id = bridges.iter().find(|other| other.name == bridge).map_or(0, |bridge| bridge.datapath_id);
        let ports = self.sampled_ports(bridge);
        let reports = self.datapath.ports();
        for source in due {
            let records = match source {
                Source::Bridge(_) if is_first => {
                    vec![CounterRecord::Resources(resources()), CounterRecord::Datapath(self.datapath_counters())]
                }
                Source::Bridge(_) => continue,
                Source::Interface(index) => {
                    let Some(port) = ports.iter().find(|port| port.device.ifindex == *index) else { continue };
                    let report = reports.iter().find(|report| report.number == port.number);
                    let Some(report) = report else { continue };
                    let counters = counters(port, report);
                    vec![
                        CounterRecord::Ethernet(counters),
                        CounterRecord::OpenFlowPort { datapath_id, number: port.ofport.0.into() },
                        CounterRecord::PortName(port.name.clone()),
                        CounterRecord::Interface(*index, counters),
                    ]
                }
            };
            agent.agent.sample_counters(*source, &records);
        }
    }

    fn datapath_counters(&self) -> DatapathCounters {
        let Lookups { hit, missed, lost, flows } = self.lookups();
        DatapathCounters { hit, missed, lost, flows: flows as u64 }
    }
}

/// What a port has counted. What the switch does not count itself, the kernel knows of its devices.
fn counters(port: &SampledPort, report: &PortReport) -> InterfaceCounters {
    const FULL_DUPLEX: u32 = 1;
    const HALF_DUPLEX: u32 = 2;
    let (device, stats) = (&port.device, &report.stats);
    let of_kernel = |counter: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/statistics/{counter}", port.name)).ok()?;
        text.trim().parse().ok()
    };
    // Open vSwitch's dummies count no losses.
    let losses = |count: u64| (!report.info.kind.starts_with("dummy")).then_some(count);
    InterfaceCounters {
        speed_bps: device.speed_bps.unwrap_or(UNKNOWN_SPEED_BPS),
        direction: match device.speed_bps {
            None => 0,
            Some(_) if device.is_full_duplex => FULL_DUPLEX,
            Some(_) => HALF_DUPLEX,
        },
        is_admin_up: device.is_admin_up,
        is_oper_up: device.has_carrier,
        in_octets: stats.rx_bytes,
        in_packets: stats.rx_packets,
        in_multicast: of_kernel("multicast"),
        in_broadcast: None,
        in_discards: losses(stats.rx_dropped),
        in_errors: losses(stats.rx_errors),
        out_octets: stats.tx_bytes,
        out_packets: stats.tx_packets,
        out_multicast: None,
        out_broadcast: None,
        out_discards: losses(stats.tx_dropped),
        out_errors: losses(stats.tx_errors),
        alignment_errors: of_kernel("rx_frame_errors"),
        fcs_errors: of_kernel("rx_crc_errors"),
        frames_too_long: None,
    }
}

/// What the process has used, as the kernel says.
fn resources() -> ResourceCounters {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in front may have spaces in it. Behind it: the state, then eleven numbers, then times.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0);
    let ms = |ticks: u64| ticks * 1000 / rustix::param::clock_ticks_per_second().max(1);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    ResourceCounters { user_ms: ms(ticks(11)), system_ms: ms(ticks(12)), memory_bytes: peak.unwrap_or(0u64) * 1024 }
}

/// Starts the thread, once.
pub(super) fn start(switch: &Arc<Switch>) -> std::io::Result<()> {
    let Some(samples) = switch.datapath.take_packet_samples() else { return Ok(()) };
    let (datapath, switch) = (Arc::clone(&switch.datapath), Arc::downgrade(switch));
    let timer = Timer::new(move || datapath.wake_sflow());
    std::thread::Builder::new().name("sflow".into()).spawn(move || run(&samples, &switch, &timer))?;
    Ok(())
}

/// How often the thread looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn run(samples: &PacketSamples, switch: &Weak<Switch>, timer: &Timer) {
    let heartbeat = Heartbeat::of("sflow");
    let mut next_ms = None;
    loop {
        let Some(arrivals) = samples.receive(timer.set(next_ms).min(LOOK_EVERY)) else { return };
        let Some(switch) = switch.upgrade() else { return };
        let _busy = heartbeat.begin("sFlow agents");
        if !arrivals.samples.is_empty() {
            switch.take_samples(samples, &arrivals.samples);
        }
        if next_ms.is_none_or(|next| switch.now_ms() >= next) {
            next_ms = switch.tick_sflow();
        }
        arrivals.done();
    }
}
