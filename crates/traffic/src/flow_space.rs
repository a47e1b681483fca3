//! The numbered flows of a profile.

use crate::Range;
use crate::divider::Divider;
use crate::frame_template::FlowDelta;

/// A flow: the fields that distinguish its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// IPv4 source.
    pub src: u32,
    /// IPv4 destination.
    pub dst: u32,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// IP protocol.
    pub protocol: u8,
}

/// Flows by number. They are computed instead of stored, so a million flows need no cache.
///
/// A number is read as digits: the class (protocol, or subtable with its source address) changes fastest, then the
/// destination address, the source address, the destination port and the source port.
#[derive(Clone, Debug)]
pub struct FlowSpace {
    flows: u32,
    /// Protocol and first source address of each class.
    classes: Vec<(u8, u32)>,
    numbering: Numbering,
    first_dport: u16,
    first_sport: u16,
}

/// How a flow's number is split into digits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    by_class: Divider,
    by_dst: Divider,
    by_src: Divider,
    by_dport: Divider,
    first_dst: u32,
    /// Whether flows differ in class and destination only.
    is_dst_all: bool,
}

impl FlowSpace {
    /// `flows` flows; the ranges hold at least that many. `classes` have first source addresses; each is followed by
    /// `sources` addresses.
    pub(crate) fn new(
        flows: u32,
        classes: Vec<(u8, u32)>,
        sources: u32,
        dst: Range,
        dport: Range,
        sport: Range,
    ) -> Self {
        FlowSpace {
            flows,
            numbering: Numbering {
                by_class: Divider::new(classes.len() as u32),
                by_dst: Divider::new(dst.count()),
                by_src: Divider::new(sources),
                by_dport: Divider::new(dport.count()),
                first_dst: dst.first,
                is_dst_all: u64::from(flows) <= classes.len() as u64 * u64::from(dst.count()),
            },
            first_dport: dport.first as u16,
            first_sport: sport.first as u16,
            classes,
        }
    }

    /// The number of flows.
    pub fn len(&self) -> u32 {
        self.flows
    }

    /// Whether there are none, which never happens.
    pub fn is_empty(&self) -> bool {
        self.flows == 0
    }

    /// How many classes: protocols, or subtables.
    pub(crate) fn classes(&self) -> u32 {
        self.classes.len() as u32
    }

    /// The first flow of each class.
    pub(crate) fn first_flows(&self) -> impl Iterator<Item = Flow> {
        (0..self.classes.len() as u32).map(|class| self.flow(class))
    }

    /// How numbers are read.
    #[inline]
    pub(crate) fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Flow number `index`, below `len`.
    pub fn flow(&self, index: u32) -> Flow {
        let (class, dst, rest) = self.numbering.split(index);
        let (protocol, first_src) = self.classes[class as usize];
        let step = self.numbering.step(rest);
        Flow {
            src: first_src.wrapping_add(step.src),
            dst,
            sport: self.first_sport.wrapping_add(step.sport),
            dport: self.first_dport.wrapping_add(step.dport),
            protocol,
        }
    }
}

impl Numbering {
    /// Class and destination of flow number `index`, and the remaining number, from which `step` computes the rest.
    #[inline]
    pub(crate) fn split(&self, index: u32) -> (u32, u32, u32) {
        let (rest, class) = self.by_class.divide(index);
        let (rest, dst) = if self.is_dst_all { (0, rest) } else { self.by_dst.divide(rest) };
        (class, self.first_dst.wrapping_add(dst), rest)
    }

    /// A flow's distance from the first flow of its class.
    #[inline]
    pub(crate) fn step(&self, rest: u32) -> FlowDelta {
        let (rest, src) = self.by_src.divide(rest);
        let (sport, dport) = self.by_dport.divide(rest);
        FlowDelta { src, sport: sport as u16, dport: dport as u16 }
    }
}
