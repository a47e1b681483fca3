//! What a change affects: the megaflows that asked what has changed.
//!
//! A translation's xlate cache names each search with the key that it was made with, each station whose place it asked for, and
//! the ports, groups and meters that it looked up, found or not, and the tables whose room for learned rules it asked for. A port that changes affects what came in by it, went or
//! wanted to go out of it, and all floods. A rule that comes, goes or changes affects the megaflows that searched its table with a key that it may match:
//! not only with the key of the packet that made the megaflow, but with that of any packet the megaflow stands for.
//!
//! **What is known of those keys.** Their bits under the megaflow's mask are those of its packet. What actions wrote
//! before the search is the same for all its packets too, since whatever they read is in the mask. So a rule is out
//! of the question if it wants a known bit to be other than it is, and of interest if not.

use crate::bridge::{Bridge, BridgeId};
use crate::group::Groups;
use crate::mac::Mac;
use crate::port::{Attach, PortConfig};
use crate::xlate_cache::{Dependency, XcEntry, XlateCache};
use sluice_flow::layout::{self, FLOW_KEY_SIZE, Span};
use sluice_flow::{FlowKey, LINE_SIZE, Line, Match, OfPort, PacketKey};
use std::collections::HashSet;
use std::sync::Arc;

/// So many rules of a table are looked at one by one; of more, all the table's megaflows are affected.
const RULES_MAX: usize = 64;

/// Words of a key, and of the part of it that packets have.
const WORDS: usize = FLOW_KEY_SIZE / 8;
const PACKET_WORDS: usize = 32;
const LINE_WORDS: usize = LINE_SIZE / 8;

/// What has changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    everything: bool,
    /// Bridges of which anything may have changed: a setting.
    bridges: Vec<BridgeId>,
    tables: Vec<TableChanges>,
    stations: HashSet<(BridgeId, u16, Mac)>,
    /// Ports, groups and meters that came, went or changed.
    asked: Vec<(BridgeId, Dependency)>,
}

/// The rules that came, went or changed in one table.
#[derive(Debug)]
struct TableChanges {
    bridge: BridgeId,
    table: u8,
    /// What they match; not all of them if there are more than [`RULES_MAX`].
    rules: Vec<RuleBits>,
    count: usize,
}

/// What a rule matches, as those words of a key that it looks at.
#[derive(Debug)]
struct RuleBits(Vec<WordBits>);

/// WordBits of one word of a key: `value` where `mask` has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordBits {
    place: u8,
    mask: u64,
    value: u64,
}

/// The key of a search, as far as it differs from the packet's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SearchKey {
    in_port: OfPort,
    /// The words that differ, with the bits that do.
    altered: Box<[WordBits]>,
}

impl Changes {
    /// Anything may have changed.
    pub fn everything() -> Self {
        Changes { everything: true, ..Changes::default() }
    }

    /// Something of a bridge that is not followed up one by one has changed.
    pub fn of_bridge(bridge: BridgeId) -> Self {
        Changes { bridges: vec![bridge], ..Changes::default() }
    }

    /// A port, group or meter has come, gone or changed.
    pub fn of(bridge: BridgeId, what: Dependency) -> Self {
        Changes { asked: vec![(bridge, what)], ..Changes::default() }
    }

    /// A port has come, gone or changed: that touches who asked for it, and for stations that went with it; or anybody, if
    /// bridges are joined there.
    pub fn of_port(bridge: &Bridge, port: &PortConfig) -> Self {
        if let Attach::Patch(_) = port.attach {
            return Changes::everything();
        }
        let mut changes = Changes::of(bridge.id, Dependency::Port(port.number));
        let mut macs = bridge.macs.write();
        changes.add_stations(bridge.id, macs.take_changed());
        changes
    }

    /// Groups that are not the same any more.
    pub fn add_groups(&mut self, bridge: BridgeId, old: &Groups, new: &Groups) {
        let is_same = |id: &u32| old.get(id).zip(new.get(id)).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
        let all = old.keys().chain(new.keys().filter(|id| !old.contains_key(id)));
        self.asked.extend(all.filter(|id| !is_same(id)).map(|id| (bridge, Dependency::Group(*id))));
    }

    /// A rule of that match came, went or changed. `matches` is asked only if it is of use.
    pub fn add_rule(&mut self, bridge: BridgeId, table: u8, matches: impl FnOnce() -> Option<Match>) {
        let is_it = |changes: &TableChanges| (changes.bridge, changes.table) == (bridge, table);
        let at = self.tables.iter().position(is_it).unwrap_or_else(|| {
            self.tables.push(TableChanges { bridge, table, rules: Vec::new(), count: 0 });
            self.tables.len() - 1
        });
        let changes = &mut self.tables[at];
        changes.count += 1;
        if changes.count > RULES_MAX {
            return;
        }
        match matches() {
            Some(matches) => changes.rules.push(RuleBits::of(&matches)),
            None => changes.count = RULES_MAX + 1,
        }
    }

    /// Stations that have come, gone or moved.
    pub fn add_stations(&mut self, bridge: BridgeId, stations: impl IntoIterator<Item = (u16, Mac)>) {
        self.stations.extend(stations.into_iter().map(|(vlan, mac)| (bridge, vlan, mac)));
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        let Changes { everything, bridges, tables, stations, asked } = self;
        !everything && bridges.is_empty() && tables.is_empty() && stations.is_empty() && asked.is_empty()
    }

    /// Whether they may affect the megaflow of that mask and xlate cache.
    pub fn affect(&self, mask: &PacketKey, record: &XlateCache) -> bool {
        self.everything
            || record.lock().entries.iter().any(|event| match event {
                XcEntry::Table { bridge, table, key, .. } => {
                    self.bridges.contains(bridge)
                        || self.asked.contains(&(*bridge, Dependency::Port(key.in_port)))
                        || self.tables.iter().any(|changes| {
                            (changes.bridge, changes.table) == (*bridge, *table)
                                && changes.affect(|rule| rule.may_match(record, mask, key))
                        })
                }
                XcEntry::MacLookup { bridge, vlan, mac } => {
                    self.bridges.contains(bridge) || self.stations.contains(&(*bridge, *vlan, *mac))
                }
                &XcEntry::Depends { bridge, on: Dependency::TableCapacity(table) } => {
                    let is_it = |changes: &TableChanges| (changes.bridge, changes.table) == (bridge, table);
                    self.bridges.contains(&bridge) || self.tables.iter().any(is_it)
                }
                &XcEntry::Depends { bridge, on } => self.bridges.contains(&bridge) || self.has_changed(bridge, on),
                // What goes on after recirculation may search nothing, and begins by asking for the port it came by.
                XcEntry::Recirculation(recirculation) => {
                    let bridge = recirculation.frozen.bridge;
                    self.bridges.contains(&bridge) || self.has_changed(bridge, Dependency::AllPorts)
                }
                _ => false,
            })
    }
}

impl Changes {
    fn has_changed(&self, bridge: BridgeId, what: Dependency) -> bool {
        self.asked.iter().any(|(of, changed)| {
            *of == bridge
                && (*changed == what || what == Dependency::AllPorts && matches!(changed, Dependency::Port(_)))
        })
    }
}

impl TableChanges {
    fn affect(&self, may_match: impl FnMut(&RuleBits) -> bool) -> bool {
        self.count > RULES_MAX || self.rules.iter().any(may_match)
    }
}

impl RuleBits {
    fn of(matches: &Match) -> Self {
        let bits = |place: usize| WordBits {
            place: place as u8,
            mask: word(&matches.mask, place) & !CONJUNCTION[place],
            value: word(&matches.key, place),
        };
        RuleBits((0..WORDS).map(bits).filter(|bits| bits.mask != 0).collect())
    }

    /// Whether a search with that key may find it, on behalf of some packet of the megaflow.
    fn may_match(&self, record: &XlateCache, mask: &PacketKey, key: &SearchKey) -> bool {
        self.0.iter().all(|rule| {
            let place = usize::from(rule.place);
            let (mut value, mut known) = match place {
                0..PACKET_WORDS => (record.word(place), mask_word(mask, place)),
                // Registers and metadata begin blank.
                _ => (BLANK[place], u64::MAX),
            };
            if let Some(altered) = key.altered.iter().find(|altered| altered.place == rule.place) {
                (value, known) = (altered.value, known | altered.mask);
            }
            if place == IN_PORT_PLACE {
                value = value & !IN_PORT_BITS | in_port_word(key.in_port);
                known |= IN_PORT_BITS;
            }
            (value ^ rule.value) & rule.mask & known == 0
        })
    }
}

impl SearchKey {
    /// The key of a search, where a packet came with `original`, both with an OpenFlow port number.
    pub fn new(original: &FlowKey, key: &FlowKey) -> Self {
        let mut altered = Vec::new();
        for (line, (now, blank)) in key.lines.iter().zip(&BLANK_LINES).enumerate() {
            let was = if line < PACKET_WORDS / LINE_WORDS { &original.lines[line] } else { blank };
            // Most lines are as they were.
            if was == now {
                continue;
            }
            for place in LINE_WORDS * line..LINE_WORDS * (line + 1) {
                let (was, value) = (line_word(was, place), line_word(now, place));
                let mask = (was ^ value) & !(if place == IN_PORT_PLACE { IN_PORT_BITS } else { 0 });
                if mask != 0 {
                    altered.push(WordBits { place: place as u8, mask, value });
                }
            }
        }
        SearchKey { in_port: OfPort(key.number(layout::IN_PORT) as u16), altered: altered.into() }
    }
}

/// The word that holds the port, and the port's bits there.
const IN_PORT_PLACE: usize = layout::IN_PORT.offset / 8;
const IN_PORT_BITS: u64 = span_bits(layout::IN_PORT);

/// The bits of each word that the classifier itself sets while it searches: whatever they are, a rule may match them.
const CONJUNCTION: [u64; WORDS] = {
    let mut bits = [0; WORDS];
    bits[layout::CONJ_ID.offset / 8] = span_bits(layout::CONJ_ID);
    bits
};

/// What registers and metadata are before anything is written.
const BLANK: [u64; WORDS] = {
    let mut words = [0; WORDS];
    let unset = (OfPort::UNSET.0 as u32).swap_bytes() as u64;
    words[layout::ACTSET_OUTPUT.offset / 8] = unset << (layout::ACTSET_OUTPUT.offset % 8 * 8);
    words
};

/// The same as lines.
const BLANK_LINES: [Line; WORDS / LINE_WORDS] = {
    let mut lines = [Line::ZERO; WORDS / LINE_WORDS];
    let mut byte = 0;
    while byte < WORDS * 8 {
        lines[byte / LINE_SIZE].0[byte % LINE_SIZE] = BLANK[byte / 8].to_le_bytes()[byte % 8];
        byte += 1;
    }
    lines
};

/// A field's bits in its word, as a little-endian number.
const fn span_bits(span: Span) -> u64 {
    (u64::MAX >> (64 - span.size * 8)) << (span.offset % 8 * 8)
}

fn in_port_word(port: OfPort) -> u64 {
    u64::from(u32::from(port.0).swap_bytes()) << (layout::IN_PORT.offset % 8 * 8)
}

fn word(key: &FlowKey, place: usize) -> u64 {
    line_word(&key.lines[place / 8], place)
}

fn mask_word(mask: &PacketKey, place: usize) -> u64 {
    line_word(mask.line(place / 8), place)
}

fn line_word(line: &Line, place: usize) -> u64 {
    let (chunks, _) = line.0.as_chunks::<8>();
    u64::from_le_bytes(chunks[place % 8])
}
