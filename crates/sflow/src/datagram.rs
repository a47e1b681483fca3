//! The encoding (XDR: big-endian words; opaque bytes are padded to whole words).

use crate::sample::{CounterRecord, FlowSample, InterfaceCounters, SampledTunnel};
use std::net::IpAddr;

/// A counter that is unknown.
const UNKNOWN: u32 = u32::MAX;

/// The formats of samples and records, enterprise 0.
mod format {
    pub const FLOW_SAMPLE: u32 = 1;
    pub const COUNTER_SAMPLE: u32 = 2;
    pub const RAW_HEADER: u32 = 1;
    pub const EXTENDED_SWITCH: u32 = 1001;
    pub const EXTENDED_MPLS: u32 = 1006;
    pub const TUNNEL_EGRESS: u32 = 1023;
    pub const TUNNEL_INGRESS: u32 = 1024;
    pub const VNI_EGRESS: u32 = 1029;
    pub const VNI_INGRESS: u32 = 1030;
    pub const INTERFACE: u32 = 1;
    pub const ETHERNET: u32 = 2;
    pub const OPENFLOW_PORT: u32 = 1004;
    pub const PORT_NAME: u32 = 1005;
    pub const RESOURCES: u32 = 2203;
    pub const DATAPATH: u32 = 2207;
}

/// Bytes under construction.
#[derive(Clone, Debug, Default)]
pub struct Xdr(pub Vec<u8>);

impl Xdr {
    pub fn word(&mut self, word: u32) {
        self.0.extend(word.to_be_bytes());
    }

    pub fn long(&mut self, long: u64) {
        self.0.extend(long.to_be_bytes());
    }

    /// A count that does not fit a word wraps, as counters of SNMP do.
    fn counter(&mut self, counter: Option<u64>) {
        self.word(counter.map_or(UNKNOWN, |counter| counter as u32));
    }

    fn opaque(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => {
                self.word(1);
                self.0.extend(address.octets());
            }
            IpAddr::V6(address) => {
                self.word(2);
                self.0.extend(address.octets());
            }
        }
    }

    /// Something of that format, with its length before it.
    fn framed(&mut self, format: u32, body: impl FnOnce(&mut Self)) {
        self.word(format);
        let at = self.0.len();
        self.word(0);
        body(self);
        let len = (self.0.len() - at - 4) as u32;
        self.0[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

/// Numbers that every flow sample of an agent has.
#[derive(Clone, Copy, Debug)]
pub struct FlowSampleHead {
    pub sequence: u32,
    pub source_id: u32,
    pub sampling: u32,
    pub pool: u32,
    pub drops: u32,
}

/// Bytes that a sampled Ethernet frame had and that are not sampled: its checksum.
const FCS_SIZE: u32 = 4;
const ETHERNET: u32 = 1;

/// A flow sample. The order of records is Open vSwitch's.
pub fn flow_sample(out: &mut Xdr, head: &FlowSampleHead, sample: &FlowSample<'_>) {
    let tunnels = [
        (sample.egress, format::VNI_EGRESS, format::TUNNEL_EGRESS),
        (sample.ingress, format::VNI_INGRESS, format::TUNNEL_INGRESS),
    ];
    let of_tunnel = |tunnel: &Option<SampledTunnel>| tunnel.map_or(0, |tunnel| 1 + u32::from(tunnel.vni != 0));
    let n_records =
        2 + u32::from(!sample.labels.is_empty()) + tunnels.iter().map(|(tunnel, ..)| of_tunnel(tunnel)).sum::<u32>();
    out.framed(format::FLOW_SAMPLE, |out| {
        let FlowSampleHead { sequence, source_id, sampling, pool, drops } = *head;
        let words = [sequence, source_id, sampling, pool, drops, sample.input, sample.output.0, n_records];
        words.into_iter().for_each(|word| out.word(word));
        out.framed(format::EXTENDED_SWITCH, |out| {
            for tci in [sample.src_tci, sample.dst_tci] {
                out.word((tci & 0xfff).into());
                out.word((tci >> 13).into());
            }
        });
        out.framed(format::RAW_HEADER, |out| {
            [ETHERNET, sample.frame_len.saturating_add(FCS_SIZE), FCS_SIZE].into_iter().for_each(|word| out.word(word));
            out.opaque(sample.header);
        });
        if !sample.labels.is_empty() {
            out.framed(format::EXTENDED_MPLS, |out| labels(out, sample.labels));
        }
        for (tunnel, vni, header) in tunnels {
            let Some(tunnel) = tunnel else { continue };
            if tunnel.vni != 0 {
                out.framed(vni, |out| out.word(tunnel.vni));
            }
            out.framed(header, |out| outer_header(out, &tunnel));
        }
    });
}

/// The next hop, which is unknown, no labels as the packet came, and those with which it was sent.
fn labels(out: &mut Xdr, labels: &[u32]) {
    const BOTTOM: u32 = 0x100;
    [1, 0, 0, labels.len() as u32].into_iter().for_each(|word| out.word(word));
    for (i, label) in labels.iter().enumerate() {
        let bottom = if i + 1 == labels.len() { BOTTOM } else { 0 };
        out.word(label & !BOTTOM | bottom);
    }
}

/// A tunnel's outer header as sampled IPv4; its length and TCP flags are unknown.
fn outer_header(out: &mut Xdr, tunnel: &SampledTunnel) {
    let SampledTunnel { protocol, tos, src, dst, src_port, dst_port, .. } = *tunnel;
    let (src, dst) = (src.to_bits(), dst.to_bits());
    let words = [0, protocol.into(), src, dst, src_port.into(), dst_port.into(), 0, tos.into()];
    words.into_iter().for_each(|word| out.word(word));
}

/// A sample of counters.
pub fn counter_sample(out: &mut Xdr, sequence: u32, source_id: u32, records: &[CounterRecord]) {
    out.framed(format::COUNTER_SAMPLE, |out| {
        [sequence, source_id, records.len() as u32].into_iter().for_each(|word| out.word(word));
        records.iter().for_each(|record| counter_record(out, record));
    });
}

fn counter_record(out: &mut Xdr, record: &CounterRecord) {
    match record {
        CounterRecord::Interface(index, counters) => {
            out.framed(format::INTERFACE, |out| interface(out, *index, counters));
        }
        CounterRecord::Ethernet(counters) => out.framed(format::ETHERNET, |out| {
            [counters.alignment_errors, counters.fcs_errors].into_iter().for_each(|counter| out.counter(counter));
            // Collisions, deferred transmissions, errors of the device itself.
            (0..8).for_each(|_| out.word(UNKNOWN));
            out.counter(counters.frames_too_long);
            (0..2).for_each(|_| out.word(UNKNOWN));
        }),
        CounterRecord::OpenFlowPort { datapath_id, number } => out.framed(format::OPENFLOW_PORT, |out| {
            out.long(*datapath_id);
            out.word(*number);
        }),
        CounterRecord::PortName(name) => out.framed(format::PORT_NAME, |out| out.opaque(name.as_bytes())),
        CounterRecord::Resources(used) => out.framed(format::RESOURCES, |out| {
            [used.user_ms, used.system_ms].into_iter().for_each(|ms| out.word(ms as u32));
            out.long(used.memory_bytes);
            // The most memory there may be, files and connections: gauges that are unknown are 0.
            out.long(0);
            (0..4).for_each(|_| out.word(0));
        }),
        CounterRecord::Datapath(counters) => out.framed(format::DATAPATH, |out| {
            let &crate::DatapathCounters { hit, missed, lost, flows } = counters;
            // Userspace datapaths count no hits of masks, and no masks.
            let counters = [Some(hit), Some(missed), Some(lost), None, Some(flows), None];
            counters.into_iter().for_each(|counter| out.counter(counter));
        }),
    }
}

fn interface(out: &mut Xdr, index: u32, counters: &InterfaceCounters) {
    const ETHERNET_CSMACD: u32 = 6;
    let status = if counters.is_admin_up { 1 | u32::from(counters.is_oper_up) << 1 } else { 0 };
    out.word(index);
    out.word(ETHERNET_CSMACD);
    out.long(counters.speed_bps);
    out.word(counters.direction);
    out.word(status);
    out.long(counters.in_octets);
    let received = [counters.in_multicast, counters.in_broadcast, counters.in_discards, counters.in_errors];
    [Some(counters.in_packets)].into_iter().chain(received).for_each(|counter| out.counter(counter));
    // Packets of unknown protocols.
    out.word(UNKNOWN);
    out.long(counters.out_octets);
    let sent = [counters.out_multicast, counters.out_broadcast, counters.out_discards, counters.out_errors];
    [Some(counters.out_packets)].into_iter().chain(sent).for_each(|counter| out.counter(counter));
    // Not promiscuous.
    out.word(0);
}
