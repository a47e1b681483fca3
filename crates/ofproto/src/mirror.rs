//! Mirrors: copies of what ports of a bridge receive and send, for another port or another VLAN; `ofproto-dpif-mirror` in
//! Open vSwitch.
//!
//! A mirror names ports. What the names stand for is looked up again whenever a mirror or a port comes or goes, so a
//! mirror whose output port is missing rests until the port comes.

use crate::port::PortConfig;
use sluice_fate::Limit;
use sluice_flow::OfPort;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Mirrors of a bridge, at most. Source: OVS ofproto/ofproto-dpif-mirror.h, `MAX_MIRRORS`.
pub const MIRRORS_MAX: usize = 32;

/// Mirrors of a bridge, a bit each.
pub(crate) type MirrorMask = u32;

/// A mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// What tells it from the bridge's other mirrors. Its counters stay as long as there is a mirror of that id.
    pub id: String,
    /// Its name, for messages.
    pub name: String,
    /// Packets that these ports receive are copied.
    pub sources: MirrorPorts,
    /// Packets that these ports send are copied.
    pub destinations: MirrorPorts,
    /// Only packets of these VLANs are copied; empty: of all.
    pub vlans: BTreeSet<u16>,
    /// Where the copies go.
    pub output: MirrorOutput,
    /// Longest copy, bytes; 0: copies are not cut.
    pub snaplen: u16,
}

/// Ports of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorPorts {
    /// All of them.
    All,
    /// Those of these names.
    Named(BTreeSet<String>),
}

/// Where copies go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorOutput {
    /// To the port of that name, which then serves for nothing else.
    Port(String),
    /// To all ports of that VLAN.
    Vlan(u16),
}

impl MirrorOutput {
    /// The name of the port, if it is one.
    pub fn into_port(self) -> Option<String> {
        match self {
            MirrorOutput::Port(name) => Some(name),
            MirrorOutput::Vlan(_) => None,
        }
    }
}

/// What a mirror has copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The counters of a mirror, which translations and revalidation credit.
#[derive(Debug, Default)]
pub(crate) struct MirrorCounts {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl MirrorCounts {
    pub fn credit(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn read(&self) -> MirrorStats {
        MirrorStats { packets: self.packets.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}

/// A mirror in its place.
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    pub config: MirrorConfig,
    /// Where copies go; `None`: its output port is missing.
    pub target: Option<MirrorTarget>,
    /// Itself, and the mirrors whose copies go to the same place: it gets one of each packet.
    pub duplicates: MirrorMask,
    pub counts: Arc<MirrorCounts>,
}

/// Where the copies of a mirror go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MirrorTarget {
    Port(OfPort),
    Vlan(u16),
}

/// The mirrors that concern a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortMirrors {
    /// Those that copy what it receives.
    pub sources: MirrorMask,
    /// Those that copy what it sends.
    pub destinations: MirrorMask,
    /// Those whose copies go out of it.
    pub outputs: MirrorMask,
}

/// The mirrors of a bridge. A mirror keeps its place as long as it exists, since frozen translations name it so. What they
/// are next is made of a copy, which takes as long as there are ports, and then put into their place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirrors {
    places: Vec<Option<Mirror>>,
    by_port: BTreeMap<OfPort, PortMirrors>,
}

impl Mirrors {
    /// Whether there are none that have work.
    pub fn is_idle(&self) -> bool {
        self.by_port.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// The mirrors that concern a port.
    pub fn of_port(&self, port: OfPort) -> PortMirrors {
        self.by_port.get(&port).copied().unwrap_or_default()
    }

    /// Whether copies go out of a port.
    pub fn has_output(&self, port: OfPort) -> bool {
        self.of_port(port).outputs != 0
    }

    /// The mirror of a bit.
    pub fn get(&self, bit: u32) -> Option<&Mirror> {
        self.places.get(bit as usize)?.as_ref()
    }

    /// What a mirror has copied.
    pub fn stats(&self, id: &str) -> Option<MirrorStats> {
        self.places.iter().flatten().find(|mirror| mirror.config.id == id).map(|mirror| mirror.counts.read())
    }

    /// Takes new configurations; returns those that are too many.
    pub fn configure<'a>(&mut self, wanted: &'a [MirrorConfig]) -> Vec<&'a MirrorConfig> {
        for place in &mut self.places {
            let is_gone = |mirror: &mut Mirror| wanted.iter().all(|config| config.id != mirror.config.id);
            place.take_if(is_gone);
        }
        let mut refused = Vec::new();
        for config in wanted {
            match self.places.iter_mut().flatten().find(|mirror| mirror.config.id == config.id) {
                Some(mirror) => mirror.config.clone_from(config),
                None => refused.extend((!self.add(config)).then_some(config)),
            }
        }
        refused
    }

    /// Puts a mirror in the first free place, if there is one.
    fn add(&mut self, config: &MirrorConfig) -> bool {
        let mirror = Mirror { config: config.clone(), target: None, duplicates: 0, counts: Arc::default() };
        match self.places.iter().position(Option::is_none) {
            Some(free) => self.places[free] = Some(mirror),
            None if self.places.len() < MIRRORS_MAX => self.places.push(Some(mirror)),
            None => {
                Limit::Mirrors.hit();
                return false;
            }
        }
        true
    }

    /// Looks up what the names stand for among these ports.
    pub fn resolve<'a>(&mut self, ports: impl IntoIterator<Item = &'a PortConfig>) {
        let ports: BTreeMap<&str, OfPort> = ports.into_iter().map(|port| (port.name.as_str(), port.number)).collect();
        let number = |name: &str| ports.get(name).copied();
        for mirror in self.places.iter_mut().flatten() {
            mirror.target = match &mirror.config.output {
                MirrorOutput::Port(name) => number(name).map(MirrorTarget::Port),
                MirrorOutput::Vlan(vlan) => Some(MirrorTarget::Vlan(*vlan)),
            };
        }
        self.by_port.clear();
        let targets: Vec<_> = self.places.iter().map(|place| place.as_ref().and_then(|mirror| mirror.target)).collect();
        for (at, place) in self.places.iter_mut().enumerate() {
            let Some(mirror) = place else { continue };
            let Some(target) = mirror.target else { continue };
            let bit = 1 << at;
            mirror.duplicates =
                targets.iter().enumerate().filter(|(_, other)| **other == Some(target)).map(|(at, _)| 1 << at).sum();
            for port in mirror.config.sources.among(&ports) {
                self.by_port.entry(port).or_default().sources |= bit;
            }
            for port in mirror.config.destinations.among(&ports) {
                self.by_port.entry(port).or_default().destinations |= bit;
            }
            if let MirrorTarget::Port(port) = target {
                self.by_port.entry(port).or_default().outputs |= bit;
            }
        }
    }
}

impl Mirror {
    /// Whether it copies packets of a VLAN.
    pub fn selects(&self, vlan: u16) -> bool {
        self.config.vlans.is_empty() || self.config.vlans.contains(&vlan)
    }
}

impl MirrorPorts {
    fn among<'a>(&'a self, ports: &'a BTreeMap<&str, OfPort>) -> impl Iterator<Item = OfPort> + 'a {
        let is_meant = move |name: &str| match self {
            MirrorPorts::All => true,
            MirrorPorts::Named(names) => names.contains(name),
        };
        ports.iter().filter(move |(name, _)| is_meant(name)).map(|(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_action::PortNo;

    fn ports(names: &[&str]) -> BTreeMap<OfPort, PortConfig> {
        let numbered = names.iter().zip(1..);
        numbered.map(|(name, n)| (OfPort(n), PortConfig::new(name, n, PortNo(n.into())))).collect()
    }

    fn mirror(id: &str, output: MirrorOutput) -> MirrorConfig {
        let (sources, destinations) = (MirrorPorts::All, MirrorPorts::Named(["b".to_owned()].into()));
        MirrorConfig { id: id.into(), name: id.into(), sources, destinations, vlans: [].into(), output, snaplen: 0 }
    }

    fn to(port: &str) -> MirrorOutput {
        MirrorOutput::Port(port.to_owned())
    }

    #[test]
    fn a_mirror_without_its_output_port_rests() {
        let mut mirrors = Mirrors::default();
        assert!(mirrors.configure(&[mirror("m", to("out"))]).is_empty());
        mirrors.resolve(ports(&["a", "b"]).values());
        assert!(mirrors.is_idle() && !mirrors.is_empty());
        mirrors.resolve(ports(&["a", "b", "out"]).values());
        assert_eq!(mirrors.of_port(OfPort(1)), PortMirrors { sources: 1, destinations: 0, outputs: 0 });
        assert_eq!(mirrors.of_port(OfPort(2)), PortMirrors { sources: 1, destinations: 1, outputs: 0 });
        assert_eq!(mirrors.of_port(OfPort(3)), PortMirrors { sources: 1, destinations: 0, outputs: 1 });
    }

    #[test]
    fn mirrors_to_one_place_know_of_each_other_and_keep_their_bits() {
        let mut mirrors = Mirrors::default();
        let wanted = [mirror("x", MirrorOutput::Vlan(7)), mirror("y", to("a")), mirror("z", MirrorOutput::Vlan(7))];
        mirrors.configure(&wanted);
        mirrors.resolve(ports(&["a", "b"]).values());
        assert_eq!([0, 1, 2].map(|bit| mirrors.get(bit).unwrap().duplicates), [0b101, 0b010, 0b101]);
        mirrors.get(2).unwrap().counts.credit(3, 180);
        mirrors.configure(&wanted[1..]);
        mirrors.resolve(ports(&["a", "b"]).values());
        assert!(mirrors.get(0).is_none());
        assert_eq!(mirrors.get(2).unwrap().duplicates, 0b100);
        assert_eq!(mirrors.stats("z"), Some(MirrorStats { packets: 3, bytes: 180 }));
    }

    #[test]
    fn there_are_so_many_at_most() {
        let (mut mirrors, before) = (Mirrors::default(), Limit::Mirrors.count());
        let wanted: Vec<_> = (0..=MIRRORS_MAX).map(|n| mirror(&n.to_string(), to("a"))).collect();
        assert_eq!(mirrors.configure(&wanted), [&wanted[MIRRORS_MAX]]);
        assert!(Limit::Mirrors.count() > before);
        assert!(mirrors.configure(&wanted[1..]).is_empty(), "the place of one that has gone is free");
    }
}
