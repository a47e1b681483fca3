//! The agent of a bridge: what it sends, to whom in turn, and when counters are due.

use crate::datagram::{FlowSampleHead, Xdr, counter_sample, flow_sample};
use crate::sample::{CounterRecord, FlowSample, Source};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Bytes of a datagram at most: what fits a frame with headers of tunnels. Source: Open vSwitch lib/sflow.h,
/// `SFL_DEFAULT_DATAGRAM_SIZE`.
const DATAGRAM_MAX: usize = 1400;

/// What an agent is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// The address by which collectors know the switch.
    pub address: IpAddr,
    /// What tells it from the switch's other agents.
    pub sub_id: u32,
    /// One packet in this many is sampled.
    pub sampling: u32,
    /// Seconds between samples of an interface's counters; 0: none.
    pub polling_s: u32,
}

/// When a source's counters are due, and how many samples there have been.
#[derive(Clone, Copy, Debug)]
struct Poller {
    /// Ticks until the next one.
    countdown: u32,
    sequence: u32,
}

/// The agent of a bridge.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    /// When it began, whole seconds.
    began_s: u64,
    now_s: u64,
    /// Flow samples so far, and the packets that they stand for.
    flow_sequence: u32,
    pool: u32,
    drops: u32,
    pollers: BTreeMap<Source, Poller>,
    /// The samples of the datagram that is being filled, and their number.
    samples: Xdr,
    n_samples: u32,
    /// Datagrams so far.
    sequence: u32,
    complete: Vec<Vec<u8>>,
}

impl Agent {
    /// An agent that begins now.
    pub fn new(config: AgentConfig, now_s: u64) -> Self {
        Agent {
            config,
            began_s: now_s,
            now_s,
            flow_sequence: 0,
            pool: 0,
            drops: 0,
            pollers: BTreeMap::new(),
            samples: Xdr::default(),
            n_samples: 0,
            sequence: 0,
            complete: Vec::new(),
        }
    }

    /// What it is to do.
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// The counters of these sources are sampled from now on, and no others'. `random` spreads the first samples, so that
    /// not all come at once.
    pub fn set_sources(&mut self, sources: impl IntoIterator<Item = Source>, mut random: impl FnMut() -> u32) {
        let mut before = std::mem::take(&mut self.pollers);
        let interval = self.config.polling_s;
        let mut first = || if interval == 0 { 0 } else { 1 + random() % interval };
        for source in sources {
            let poller = before.remove(&source).unwrap_or_else(|| Poller { countdown: first(), sequence: 0 });
            self.pollers.insert(source, poller);
        }
    }

    /// Samples a packet. Each stands for as many as are not sampled between two. Source: Open vSwitch
    /// ofproto/ofproto-dpif-sflow.c, `dpif_sflow_received`.
    pub fn sample(&mut self, sample: &FlowSample<'_>) {
        self.flow_sequence = self.flow_sequence.wrapping_add(1);
        self.pool = self.pool.wrapping_add(self.config.sampling);
        let head = FlowSampleHead {
            sequence: self.flow_sequence,
            source_id: Source::Bridge(self.config.sub_id).id(),
            sampling: self.config.sampling,
            pool: self.pool,
            drops: self.drops,
        };
        let mut one = Xdr::default();
        flow_sample(&mut one, &head, sample);
        self.append(&one);
    }

    /// Notes samples that were lost between the packet path and the agent.
    pub fn count_drops(&mut self, drops: u32) {
        self.drops = self.drops.wrapping_add(drops);
    }

    /// A second has passed: the sources whose counters are due now. Once they are given, [`Agent::flush`].
    pub fn tick(&mut self, now_s: u64) -> Vec<Source> {
        self.now_s = now_s;
        let interval = self.config.polling_s;
        let mut due = Vec::new();
        for (source, poller) in self.pollers.iter_mut().filter(|(_, poller)| poller.countdown != 0) {
            poller.countdown -= 1;
            if poller.countdown == 0 {
                poller.countdown = interval;
                due.push(*source);
            }
        }
        due
    }

    /// Samples counters of a source.
    pub fn sample_counters(&mut self, source: Source, records: &[CounterRecord]) {
        let Some(poller) = self.pollers.get_mut(&source) else { return };
        poller.sequence = poller.sequence.wrapping_add(1);
        let mut one = Xdr::default();
        counter_sample(&mut one, poller.sequence, source.id(), records);
        self.append(&one);
    }

    /// Completes the datagram that is being filled, if there is anything in it.
    pub fn flush(&mut self) {
        if self.n_samples == 0 {
            return;
        }
        let mut datagram = self.head();
        datagram.0.append(&mut self.samples.0);
        self.n_samples = 0;
        self.complete.push(datagram.0);
    }

    /// The datagrams that are complete, in order.
    pub fn take_datagrams(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.complete)
    }

    fn append(&mut self, sample: &Xdr) {
        let head_size = if self.config.address.is_ipv4() { 28 } else { 40 };
        if head_size + self.samples.0.len() + sample.0.len() >= DATAGRAM_MAX {
            self.flush();
        }
        self.samples.0.extend(&sample.0);
        self.n_samples += 1;
    }

    fn head(&mut self) -> Xdr {
        const VERSION: u32 = 5;
        self.sequence = self.sequence.wrapping_add(1);
        let mut head = Xdr::default();
        head.word(VERSION);
        head.address(self.config.address);
        let uptime_ms = self.now_s.saturating_sub(self.began_s).wrapping_mul(1000) as u32;
        [self.config.sub_id, self.sequence, uptime_ms, self.n_samples].into_iter().for_each(|word| head.word(word));
        head
    }
}
