//! What an agent sends is what it was given, as a decoder of its own reads it, written from the specification.

use proptest::prelude::*;
use sluice_sflow::{
    Agent, AgentConfig, CounterRecord, FlowSample, HEADER_MAX, InterfaceCounters, Output, SampledTunnel, Source,
    probability,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Reads words, and fails the test where there are none.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        head
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    /// Format and body of a sample or record.
    fn framed(&mut self) -> (u32, Reader<'a>) {
        let (format, len) = (self.word(), self.word());
        assert_eq!(len % 4, 0);
        (format, Reader(self.bytes(len as usize)))
    }

    fn words(mut self) -> Vec<u32> {
        let mut words = Vec::new();
        while !self.0.is_empty() {
            words.push(self.word());
        }
        words
    }
}

/// A sample: its numbers before the records, and its records by format, in words.
#[derive(Debug)]
struct Decoded {
    format: u32,
    numbers: Vec<u32>,
    records: BTreeMap<u32, Vec<u32>>,
}

struct Datagram {
    address: Vec<u8>,
    sub_id: u32,
    sequence: u32,
    uptime_ms: u32,
    samples: Vec<Decoded>,
}

fn decode(bytes: &[u8]) -> Datagram {
    let mut reader = Reader(bytes);
    assert_eq!(reader.word(), 5, "version");
    let address = match reader.word() {
        1 => reader.bytes(4),
        2 => reader.bytes(16),
        other => panic!("address of type {other}"),
    };
    let (sub_id, sequence, uptime_ms, n) = (reader.word(), reader.word(), reader.word(), reader.word());
    let samples = (0..n).map(|_| decode_sample(&mut reader)).collect();
    assert!(reader.0.is_empty(), "bytes behind the last sample");
    Datagram { address: address.to_vec(), sub_id, sequence, uptime_ms, samples }
}

fn decode_sample(reader: &mut Reader<'_>) -> Decoded {
    let (format, mut body) = reader.framed();
    let n_numbers = if format == 1 { 7 } else { 2 };
    let numbers = (0..n_numbers).map(|_| body.word()).collect();
    let n = body.word();
    let records: BTreeMap<_, _> =
        (0..n).map(|_| body.framed()).map(|(format, record)| (format, record.words())).collect();
    assert_eq!(records.len(), n as usize, "a record twice");
    assert!(body.0.is_empty(), "bytes behind the last record");
    Decoded { format, numbers, records }
}

#[derive(Clone, Debug)]
struct Packet {
    input: u32,
    ports: (u32, u32),
    tcis: (u16, u16),
    header: Vec<u8>,
    more: u32,
    ingress: Option<SampledTunnel>,
    egress: Option<SampledTunnel>,
    labels: Vec<u32>,
}

impl Packet {
    fn sample(&self) -> FlowSample<'_> {
        FlowSample {
            input: self.input,
            output: Output::to(self.ports.0, self.ports.1),
            src_tci: self.tcis.0,
            dst_tci: self.tcis.1,
            header: &self.header,
            frame_len: self.header.len() as u32 + self.more,
            ingress: self.ingress,
            egress: self.egress,
            labels: &self.labels,
        }
    }

    /// The records, written down once more, plainly.
    fn records(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut raw = vec![1, self.header.len() as u32 + self.more + 4, 4, self.header.len() as u32];
        for chunk in self.header.chunks(4) {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            raw.push(u32::from_be_bytes(word));
        }
        let tags = [self.tcis.0, self.tcis.1].map(|tci| [u32::from(tci) % 4096, u32::from(tci) / 8192]).concat();
        let mut records = BTreeMap::from([(1, raw), (1001, tags)]);
        if let Some((last, others)) = self.labels.split_last() {
            let bottom = 1 << 8;
            let mut words = vec![1, 0, 0, self.labels.len() as u32];
            words.extend(others.iter().map(|label| label & !bottom));
            words.push(last | bottom);
            records.insert(1006, words);
        }
        for (tunnel, header, vni) in [(self.egress, 1023, 1029), (self.ingress, 1024, 1030)] {
            let Some(tunnel) = tunnel else { continue };
            let address = |address: Ipv4Addr| u32::from_be_bytes(address.octets());
            let (ports, tos) = ((tunnel.src_port.into(), tunnel.dst_port.into()), tunnel.tos.into());
            let words = [0, tunnel.protocol.into(), address(tunnel.src), address(tunnel.dst), ports.0, ports.1, 0, tos];
            records.insert(header, words.to_vec());
            if tunnel.vni != 0 {
                records.insert(vni, vec![tunnel.vni]);
            }
        }
        records
    }
}

fn tunnel() -> impl Strategy<Value = SampledTunnel> {
    let ports = (any::<u16>(), any::<u16>());
    (any::<u8>(), any::<u8>(), any::<u32>(), any::<u32>(), ports, prop_oneof![Just(0), any::<u32>()]).prop_map(
        |(protocol, tos, src, dst, (src_port, dst_port), vni)| {
            let (src, dst) = (Ipv4Addr::from_bits(src), Ipv4Addr::from_bits(dst));
            SampledTunnel { protocol, tos, src, dst, src_port, dst_port, vni }
        },
    )
}

fn packet() -> impl Strategy<Value = Packet> {
    let header_len = prop_oneof![0..70usize, Just(HEADER_MAX as usize)];
    let header = header_len.prop_flat_map(|len| prop::collection::vec(any::<u8>(), len));
    let tunnels = (prop::option::of(tunnel()), prop::option::of(tunnel()));
    let around = ((0..3u32, 0..3u32), any::<(u16, u16)>(), 0..9000u32, 0..4u32);
    (header, tunnels, around, prop::collection::vec(any::<u32>(), 0..4)).prop_map(
        |(header, (ingress, egress), (ports, tcis, more, input), labels)| Packet {
            input,
            ports,
            tcis,
            header,
            more,
            ingress,
            egress,
            labels,
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Packet(Box<Packet>),
    Drops(u32),
    Counters(u32, u64, String),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => packet().prop_map(|packet| Step::Packet(Box::new(packet))),
        1 => (0..5u32).prop_map(Step::Drops),
        2 => (1..4u32, any::<u64>(), "[a-z0-9-]{0,15}").prop_map(|(index, n, name)| Step::Counters(index, n, name)),
        1 => Just(Step::Tick),
    ]
}

/// What a datagram is to hold, in order: numbers and records.
type Expected = (u32, Vec<u32>, BTreeMap<u32, Vec<u32>>);

fn interface_words(index: u32, counters: &InterfaceCounters) -> Vec<u32> {
    let long = |n: u64| [(n >> 32) as u32, n as u32];
    let word = |n: Option<u64>| n.map_or(u32::MAX, |n| (n % (1 << 32)) as u32);
    let (speed, input, output) = (long(counters.speed_bps), long(counters.in_octets), long(counters.out_octets));
    let mut words = vec![index, 6, speed[0], speed[1], 1, 3, input[0], input[1], word(Some(counters.in_packets))];
    words.extend([counters.in_multicast, None, None, None, None].map(word));
    words.extend([output[0], output[1], word(Some(counters.out_packets))]);
    words.extend([None, None, counters.out_discards, None].map(word));
    words.push(0);
    words
}

proptest! {
    #[test]
    fn a_decoder_reads_what_was_sampled(
        steps in prop::collection::vec(step(), 1..40), is_ipv6: bool, sub_id in 0..3u32, sampling in 1..500u32,
    ) {
        let address: IpAddr = if is_ipv6 { "fe80::1".parse().unwrap() } else { "192.0.2.1".parse().unwrap() };
        let config = AgentConfig { address, sub_id, sampling, polling_s: 2 };
        let mut agent = Agent::new(config, 100);
        agent.set_sources((1..4).map(Source::Interface), || 0);
        let (mut expected, mut drops, mut flows, mut now) = (Vec::<Expected>::new(), 0, 0u32, 100);
        let mut counted = BTreeMap::<u32, u32>::new();
        for step in &steps {
            match step {
                Step::Packet(packet) => {
                    agent.sample(&packet.sample());
                    flows += 1;
                    let output = match packet.ports {
                        (0, _) => 0x4000_0100,
                        (1, ifindex) if ifindex != 0 => ifindex,
                        (n, _) => 0x8000_0000 + n,
                    };
                    let source = 0x0200_0000 + 1000 + sub_id;
                    let numbers = vec![flows, source, sampling, flows * sampling, drops, packet.input, output];
                    expected.push((1, numbers, packet.records()));
                }
                Step::Drops(n) => {
                    agent.count_drops(*n);
                    drops += n;
                }
                Step::Counters(index, n, name) => {
                    let counters = InterfaceCounters {
                        speed_bps: *n, direction: 1, is_admin_up: true, is_oper_up: true, in_octets: n / 3,
                        in_packets: *n, in_multicast: Some(n / 7), out_octets: n / 5, out_packets: n / 2,
                        out_discards: Some(5), ..InterfaceCounters::default()
                    };
                    let records = [CounterRecord::PortName(name.clone()), CounterRecord::Interface(*index, counters)];
                    agent.sample_counters(Source::Interface(*index), &records);
                    let mut name_words = vec![name.len() as u32];
                    for chunk in name.as_bytes().chunks(4) {
                        name_words.push(chunk.iter().enumerate().map(|(i, b)| u32::from(*b) << (24 - 8 * i)).sum());
                    }
                    let records = BTreeMap::from([(1005, name_words), (1, interface_words(*index, &counters))]);
                    let sequence = counted.entry(*index).or_default();
                    *sequence += 1;
                    expected.push((2, vec![*sequence, *index], records));
                }
                Step::Tick => {
                    now += 1;
                    agent.tick(now);
                }
            }
        }
        agent.flush();
        let datagrams = agent.take_datagrams();
        let mut expected = expected.into_iter();
        for (i, bytes) in datagrams.iter().enumerate() {
            prop_assert!(bytes.len() < 1400, "{} bytes", bytes.len());
            let datagram = decode(bytes);
            let octets = match address { IpAddr::V4(a) => a.octets().to_vec(), IpAddr::V6(a) => a.octets().to_vec() };
            prop_assert_eq!(datagram.address, octets);
            prop_assert_eq!((datagram.sub_id, datagram.sequence), (sub_id, i as u32 + 1));
            prop_assert!(u64::from(datagram.uptime_ms) <= (now - 100) * 1000);
            prop_assert!(!datagram.samples.is_empty());
            for sample in datagram.samples {
                let (format, numbers, records) = expected.next().unwrap();
                prop_assert_eq!((sample.format, sample.numbers, sample.records), (format, numbers, records));
            }
        }
        prop_assert_eq!(expected.count(), 0);
    }

    #[test]
    fn counters_come_once_an_interval(polling_s in 0..9u32, random: u32, ticks in 0..60u32) {
        let config = AgentConfig { address: [127, 0, 0, 1].into(), sub_id: 0, sampling: 1, polling_s };
        let mut agent = Agent::new(config, 0);
        agent.set_sources([Source::Interface(7), Source::Bridge(0)], || random);
        let due: Vec<u32> = (1..=ticks).filter(|now| !agent.tick(u64::from(*now)).is_empty()).collect();
        if polling_s == 0 {
            prop_assert!(due.is_empty());
        } else {
            let first = 1 + random % polling_s;
            let expected: Vec<u32> = (1..=ticks).filter(|t| *t >= first && (t - first) % polling_s == 0).collect();
            prop_assert_eq!(due, expected);
        }
    }
}

#[test]
fn probabilities_are_those_of_open_vswitch() {
    assert_eq!([0, 1, 2, 400, u32::MAX].map(probability), [u32::MAX, u32::MAX, 0x7fff_ffff, 10_737_418, 1]);
}
