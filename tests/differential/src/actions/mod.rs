//! Random actions in `ovs-ofctl` syntax that are consistent with a match.

mod headers;
mod metadata;
mod pipeline;
mod seldom;
mod sending;

use crate::matches::{Match, Protocol};
use crate::rng::Rng;
use crate::table::Theme;
use crate::values::{PORTS, Values};

/// The OpenFlow version a table is loaded with. A few actions exist in some of them only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Of10,
    Of13,
    Of15,
}

/// Where a rule stands, which limits what it may do.
pub struct Place<'a> {
    pub version: Version,
    pub theme: Theme,
    pub table: u8,
    /// All the tables that have rules, ascending.
    pub tables: &'a [u8],
    /// Which rule it is.
    pub rule: usize,
}

/// Writes a rule's actions.
pub fn random(rng: &mut Rng, values: &Values, matched: &Match, place: &Place) -> String {
    if rng.chance(7) {
        return "drop".into();
    }
    let mut writer = Writer {
        rng,
        values,
        matched,
        place,
        out: Vec::new(),
        protocol: matched.protocol,
        behind_label: None,
        has_vlan: matched.vlan,
        tags: usize::from(matched.vlan == Some(true)),
        depth: 0,
    };
    writer.apply_actions();
    writer.instructions();
    writer.text()
}

/// A kind of action and how often it is chosen.
type Kind = (usize, fn(&mut Writer));

/// What changes a packet or what travels with it. A new action is a line here, or in [`STEPS`].
const EDITS: &[Kind] = &[
    (20, |w| w.register()),
    (18, |w| w.ethernet()),
    (12, |w| w.vlan()),
    (14, |w| w.r#move()),
    (20, |w| w.network()),
    (16, |w| w.transport()),
    (5, |w| w.metadata()),
    (4, |w| w.stack()),
    (4, |w| w.push_label()),
    (3, |w| w.queue()),
    (4, |w| w.seldom()),
];

/// What sends a packet, or leads it elsewhere.
const STEPS: &[Kind] = &[
    (40, |w| w.output()),
    (5, |w| w.output_to_register()),
    (4, |w| w.output_truncated()),
    (4, |w| w.controller()),
    (6, |w| w.clone_packet()),
    (3, |w| w.multipath()),
    (3, |w| w.bundle()),
    (3, |w| w.check_packet_length()),
    (3, |w| w.dec_ttl()),
    (2, |w| w.nothing()),
    (1, |w| w.exit()),
    (4, |w| w.pop_label()),
    (8, |w| w.normal()),
    (5, |w| w.learn()),
    (4, |w| w.fin_timeout()),
];

struct Writer<'a> {
    rng: &'a mut Rng,
    values: &'a Values,
    matched: &'a Match,
    place: &'a Place<'a>,
    out: Vec<String>,
    /// What the packet is known to be at this point of the list.
    protocol: Protocol,
    /// What it was before this list pushed a label.
    behind_label: Option<Protocol>,
    /// Whether a VLAN tag is known to be there at this point of the list.
    has_vlan: Option<bool>,
    /// How many tags are known to be there at most.
    tags: usize,
    /// Lists of actions that this one is in.
    depth: usize,
}

impl Writer<'_> {
    fn apply_actions(&mut self) {
        for _ in 0..self.rng.below(4) {
            self.edit();
        }
        for _ in 0..self.rng.weighted(&[5, 4, 1]) {
            self.resubmit();
        }
        for _ in 0..self.rng.weighted(&[2, 6, 3]) {
            if self.rng.chance(20) {
                self.edit();
            }
            self.one_of(STEPS);
        }
    }

    fn push(&mut self, action: String) {
        self.out.push(action);
    }

    fn text(self) -> String {
        if self.out.is_empty() { "drop".into() } else { self.out.join(",") }
    }

    fn edit(&mut self) {
        self.one_of(EDITS);
    }

    fn one_of(&mut self, kinds: &[Kind]) {
        let weights: Vec<usize> = kinds.iter().map(|(weight, _)| *weight).collect();
        kinds[self.rng.weighted(&weights)].1(self);
    }

    /// A list of actions within this one, which sees what this one knows and teaches it nothing.
    fn inner(&mut self, write: impl FnOnce(&mut Writer)) -> String {
        let mut writer = Writer { rng: &mut *self.rng, out: Vec::new(), depth: self.depth + 1, ..*self };
        write(&mut writer);
        writer.text()
    }

    fn port(&mut self) -> usize {
        1 + self.rng.below(PORTS.into())
    }

    /// Over OpenFlow 1.0, ovs-ofctl sends `set_field` of an old field without its mask.
    fn masks_survive(&self) -> bool {
        self.place.version != Version::Of10
    }

    fn later_tables(&self) -> Vec<u8> {
        self.place.tables.iter().copied().filter(|t| *t > self.place.table).collect()
    }
}
