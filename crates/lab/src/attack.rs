//! Hostile traffic, and the rules that it is hostile to.

use anyhow::Result;
use sluice_traffic::{Choice, FRAME_SIZE_MIN, Profile, Range};
use sluice_trafficgen::{Lane, Plan};
use std::net::Ipv4Addr;

/// What an attacker sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Packets of new flows only, a megaflow each.
    NewFlows,
    /// Tuple space explosion of a three-field ACL: for every length of prefix of all three fields a packet that differs
    /// there from what is allowed. Source: Csikor et al., CoNEXT 2019.
    TupleSpace,
    /// Few flows and many in turn, to provoke the autopilot.
    Alternating,
    /// TCP SYNs, a new connection each, at a firewall that also tracks the victim's connections, in a zone of their
    /// own.
    SynFlood,
}

/// Ports, from 0: the victim's two, the attacker's two.
const VICTIM: [usize; 2] = [0, 1];
const ATTACKER: [usize; 2] = [2, 3];
const PORTS: usize = 4;

/// Flows of the victim.
const VICTIM_FLOWS: u32 = 1000;

/// New flows until the first comes again, in a minute at the least.
const NEW_FLOWS: u32 = 1 << 30;

/// What the ACL allows: a source, a source port, a destination port.
const SOURCE: u32 = 0x0a00_0001;
const SOURCE_PORT: u16 = 1000;
const DESTINATION_PORT: u16 = 80;

/// The zone of the connections that a SYN flood begins.
pub const FLOODED_ZONE: u16 = 2;
/// Bytes of a SYN with room for a stamp behind its headers.
const SYN_SIZE: usize = 80;
const SYN: u8 = 0x02;
const TCP: u8 = 6;

/// Packets of few flows, and then of many: at a million a second 65 ms each.
const STRETCH: usize = 1 << 16;
const FEW: usize = 8;

impl Attack {
    /// All of them.
    pub const ALL: [Attack; 4] = [Attack::NewFlows, Attack::TupleSpace, Attack::Alternating, Attack::SynFlood];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Attack::NewFlows => "new flows",
            Attack::TupleSpace => "tuple space explosion",
            Attack::Alternating => "alternating",
            Attack::SynFlood => "SYN flood",
        }
    }

    /// The rules of both, for port numbers from 1.
    pub fn rules(self) -> String {
        // What a rule reads is matched, so that each flow is a megaflow.
        let reads = "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_IP_DST[]->NXM_NX_REG1[],\
                     move:NXM_OF_UDP_SRC[]->NXM_NX_REG2[0..15],move:NXM_OF_UDP_DST[]->NXM_NX_REG3[0..15]";
        let attacked = match self {
            Attack::NewFlows | Attack::Alternating => format!("in_port=3,udp,actions={reads},output:4\n"),
            Attack::TupleSpace => format!(
                "priority=30,in_port=3,udp,tp_dst={DESTINATION_PORT},actions=output:4\n\
                 priority=20,in_port=3,udp,nw_src={},actions=output:4\n\
                 priority=10,in_port=3,udp,tp_src={SOURCE_PORT},actions=output:4\n",
                Ipv4Addr::from(SOURCE)
            ),
            // A client at the victim's first port is answered at its second.
            Attack::SynFlood => {
                return format!(
                    "table=0,in_port=1,ip,actions=ct(zone=1,table=1)\n\
                     table=0,in_port=2,ip,actions=ct(zone=1,table=1)\n\
                     table=0,in_port=3,ip,actions=ct(zone={FLOODED_ZONE},table=1)\n\
                     table=1,in_port=1,ct_state=+trk+new,ip,actions=ct(commit,zone=1),output:2\n\
                     table=1,in_port=1,ct_state=+trk+est,ip,actions=output:2\n\
                     table=1,in_port=2,ct_state=+trk+est,ip,actions=output:1\n\
                     table=1,in_port=3,ct_state=+trk+new,ip,actions=ct(commit,zone={FLOODED_ZONE}),output:4\n\
                     table=1,in_port=3,ct_state=+trk+est,ip,actions=output:4\n"
                );
            }
        };
        format!("in_port=1,ip,actions=output:2\n{attacked}")
    }

    /// The attacker's frames, in their order; `None` for such as never come again.
    pub fn frames(self) -> Result<Option<Vec<Vec<u8>>>> {
        let one = |src: u32, sport: u16, dport: u16| -> Result<Vec<u8>> {
            let ports = (Range::new(sport.into(), sport.into()), Range::new(dport.into(), dport.into()));
            let (Some(sport), Some(dport)) = ports else { anyhow::bail!("ports are ranges of one") };
            let profile = Profile { src: Range::new(src, src), sport, dport, ..Profile::default() };
            frame_of(&profile, 0)
        };
        match self {
            Attack::NewFlows | Attack::SynFlood => Ok(None),
            Attack::TupleSpace => {
                let places = (0..32).flat_map(|a| (0..16).flat_map(move |b| (0..16).map(move |c| (a, b, c))));
                // In random order, so that no packet is like the one before.
                let mut frames = places
                    .map(|(a, b, c)| one(SOURCE ^ 1 << a, SOURCE_PORT ^ 1 << b, DESTINATION_PORT ^ 1 << c))
                    .collect::<Result<Vec<_>>>()?;
                let mut random = sluice_traffic::SplitMix64::new(1);
                (1..frames.len()).rev().for_each(|i| frames.swap(i, (random.next_u64() % (i as u64 + 1)) as usize));
                Ok(Some(frames))
            }
            Attack::Alternating => {
                let profile = Profile { flows: Some(STRETCH as u32), ..Profile::default() };
                let flows = (0..STRETCH as u32).map(|flow| frame_of(&profile, flow)).collect::<Result<Vec<_>>>()?;
                Ok(Some(flows[..FEW].iter().cycle().take(STRETCH).chain(&flows).cloned().collect()))
            }
        }
    }

    /// How many of a plan's lanes are the victim's; they come first.
    pub fn victim_lanes(self) -> usize {
        // An established connection is one that was answered.
        if self == Attack::SynFlood { 2 } else { 1 }
    }

    /// Lanes of the victim, at `victim_pps` together, and of the attacker at `attacker_pps` if that is not 0.
    pub fn plan(self, victim_pps: f64, attacker_pps: f64) -> Result<Plan> {
        let profile = Profile { flows: Some(VICTIM_FLOWS), ..Profile::default() };
        let each_pps = victim_pps / self.victim_lanes() as f64;
        let mut lanes = vec![Lane::made("victim", VICTIM, each_pps, &profile)?];
        if self == Attack::SynFlood {
            lanes.push(Lane::made("victim, answers", [VICTIM[1], VICTIM[0]], each_pps, &answers())?);
        }
        if attacker_pps > 0.0 {
            lanes.push(match self.frames()? {
                Some(frames) => Lane::captured("attacker", ATTACKER, attacker_pps, frames),
                None => Lane::made("attacker", ATTACKER, attacker_pps, &self.endless())?,
            });
        }
        Ok(Plan { lanes, ports: PORTS })
    }

    /// Flows that never come again.
    fn endless(self) -> Profile {
        let flows = Profile { flows: Some(NEW_FLOWS), choice: Choice::Sequential, ..Profile::default() };
        match self {
            Attack::SynFlood => Profile { protocols: Some(vec![TCP]), tcp_flags: SYN, frame_size: SYN_SIZE, ..flows },
            _ => flows,
        }
    }
}

/// What the victim's flows are answered.
fn answers() -> Profile {
    // The other way round than a profile's defaults.
    let (first, client) = (u32::from(Ipv4Addr::new(10, 0, 0, 0)), u32::from(Ipv4Addr::new(1, 0, 0, 1)));
    let forth = Profile::default();
    Profile {
        src: Range::new(first, first + VICTIM_FLOWS - 1),
        dst: Range::new(client, client),
        sport: forth.dport,
        dport: forth.sport,
        ..forth
    }
}

/// The frame of a flow.
fn frame_of(profile: &Profile, flow: u32) -> Result<Vec<u8>> {
    let mut streams = profile.streams(1)?;
    let mut frame = vec![0; FRAME_SIZE_MIN];
    streams.iter_mut().for_each(|stream| stream.writer().write(flow, &mut frame));
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_explosion_differs_from_what_is_allowed_in_one_bit_of_each_field() {
        let frames = Attack::TupleSpace.frames().unwrap().unwrap();
        assert_eq!(frames.iter().collect::<HashSet<_>>().len(), 32 * 16 * 16);
        for frame in &frames {
            let source = u32::from_be_bytes(*frame[26..].first_chunk().unwrap());
            let ports = [34, 36].map(|at| u16::from_be_bytes(*frame[at..].first_chunk().unwrap()));
            assert_eq!((source ^ SOURCE).count_ones(), 1);
            assert_eq!((ports[0] ^ SOURCE_PORT).count_ones(), 1);
            assert_eq!((ports[1] ^ DESTINATION_PORT).count_ones(), 1);
        }
    }

    #[test]
    fn stretches_of_few_flows_and_of_many_take_turns() {
        let frames = Attack::Alternating.frames().unwrap().unwrap();
        let distinct = |frames: &[Vec<u8>]| frames.iter().collect::<HashSet<_>>().len();
        assert_eq!((distinct(&frames[..STRETCH]), distinct(&frames[STRETCH..])), (FEW, STRETCH));
    }
}
