//! The flows of a profile, numbered.

use crate::Range;
use crate::divider::Divider;

/// A flow: what tells its packets from others'.
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
    /// Which of the classes it is of (see [`FlowSpace`]).
    pub class: u32,
}

/// Flows by number, computed and not stored: a million cost no cache.
///
/// A number is read as digits: the class (protocol, or subtable with its source address) changes fastest, then the
/// destination address, the source address, the destination port and the source port.
#[derive(Clone, Debug)]
pub struct FlowSpace {
    flows: u32,
    /// Protocol and first source address of each class.
    classes: Vec<(u8, u32)>,
    by_class: Divider,
    by_dst: Divider,
    by_src: Divider,
    by_dport: Divider,
    first_dst: u32,
    first_dport: u16,
    first_sport: u16,
}

impl FlowSpace {
    /// `flows` flows; the ranges hold at least that many. The source addresses of `classes` are first ones: `sources`
    /// follow from each.
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
            by_class: Divider::new(classes.len() as u32),
            by_dst: Divider::new(dst.count()),
            by_src: Divider::new(sources),
            by_dport: Divider::new(dport.count()),
            first_dst: dst.first,
            first_dport: dport.first as u16,
            first_sport: sport.first as u16,
            classes,
        }
    }

    /// How many flows there are.
    pub fn len(&self) -> u32 {
        self.flows
    }

    /// Whether there are none; there is at least one.
    pub fn is_empty(&self) -> bool {
        self.flows == 0
    }

    /// The protocols of the classes.
    pub(crate) fn protocols(&self) -> impl Iterator<Item = u8> {
        self.classes.iter().map(|(protocol, _)| *protocol)
    }

    /// Flow number `index`, below `len`.
    #[inline]
    pub fn flow(&self, index: u32) -> Flow {
        let (rest, class) = self.by_class.divide(index);
        let (rest, dst) = self.by_dst.divide(rest);
        let (protocol, first_src) = self.classes[class as usize];
        let mut flow = Flow {
            src: first_src,
            dst: self.first_dst.wrapping_add(dst),
            sport: self.first_sport,
            dport: self.first_dport,
            protocol,
            class,
        };
        if rest != 0 {
            let (rest, src) = self.by_src.divide(rest);
            let (rest, dport) = self.by_dport.divide(rest);
            flow.src = flow.src.wrapping_add(src);
            flow.dport = flow.dport.wrapping_add(dport as u16);
            flow.sport = flow.sport.wrapping_add(rest as u16);
        }
        flow
    }
}
