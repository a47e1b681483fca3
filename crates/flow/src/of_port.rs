//! OpenFlow port numbers and their names.

use std::collections::HashMap;
use std::fmt;

/// An OpenFlow port number, 16 bits as in OpenFlow 1.0; the reserved ports of later versions map to these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfPort(pub u16);

impl OfPort {
    /// First number that is not an ordinary port.
    /// Source: OpenFlow 1.0 `OFPP_MAX`.
    pub const MAX: OfPort = OfPort(0xff00);
    /// No port decided yet (action sets).
    pub const UNSET: OfPort = OfPort(0xfff7);
    /// The port it came in by.
    pub const IN_PORT: OfPort = OfPort(0xfff8);
    /// The flow tables (packet-out only).
    pub const TABLE: OfPort = OfPort(0xfff9);
    /// The switch's own forwarding.
    pub const NORMAL: OfPort = OfPort(0xfffa);
    /// All ports but the one it came in by and those closed to flooding.
    pub const FLOOD: OfPort = OfPort(0xfffb);
    /// All ports but the one it came in by.
    pub const ALL: OfPort = OfPort(0xfffc);
    /// The controller.
    pub const CONTROLLER: OfPort = OfPort(0xfffd);
    /// The bridge's own port.
    pub const LOCAL: OfPort = OfPort(0xfffe);
    /// No port; any port in requests.
    pub const NONE: OfPort = OfPort(0xffff);

    /// The reserved ports with their names, as `ovs-ofctl` writes them.
    pub const RESERVED: &'static [(&'static str, OfPort)] = &[
        ("UNSET", Self::UNSET),
        ("IN_PORT", Self::IN_PORT),
        ("TABLE", Self::TABLE),
        ("NORMAL", Self::NORMAL),
        ("FLOOD", Self::FLOOD),
        ("ALL", Self::ALL),
        ("CONTROLLER", Self::CONTROLLER),
        ("LOCAL", Self::LOCAL),
        ("ANY", Self::NONE),
    ];

    /// Whether an action may send packets there.
    pub fn can_be_sent_to(self) -> bool {
        self.is_ordinary() || (Self::IN_PORT..=Self::LOCAL).contains(&self)
    }

    /// Whether it numbers an ordinary port.
    pub fn is_ordinary(self) -> bool {
        self < Self::MAX
    }

    /// The 32-bit number of OpenFlow 1.1 and later.
    pub fn to_of11(self) -> u32 {
        if self >= Self::MAX { u32::from(self.0) | 0xffff_0000 } else { u32::from(self.0) }
    }

    /// From a 32-bit number; `None` for numbers between the ordinary and the reserved ports.
    pub fn from_of11(number: u32) -> Option<OfPort> {
        match number {
            0..0xff00 => Some(OfPort(number as u16)),
            0xffff_ff00.. => Some(OfPort(number as u16)),
            _ => None,
        }
    }
}

impl fmt::Debug for OfPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OfPort({})", PortNames::NONE.display(*self))
    }
}

/// The configured names of ports, in both directions. Reserved ports always have their names.
#[derive(Clone, Debug, Default)]
pub struct PortNames {
    by_name: Option<HashMap<String, OfPort>>,
    by_port: Option<HashMap<OfPort, String>>,
}

impl PortNames {
    /// No names but the reserved ones.
    pub const NONE: PortNames = PortNames { by_name: None, by_port: None };

    /// Names a port. A port keeps its first name, a name its last port.
    pub fn insert(&mut self, name: &str, port: OfPort) {
        self.by_name.get_or_insert_default().insert(name.to_owned(), port);
        self.by_port.get_or_insert_default().entry(port).or_insert_with(|| name.to_owned());
    }

    /// The port with a configured name.
    pub fn port(&self, name: &str) -> Option<OfPort> {
        self.by_name.as_ref()?.get(name).copied()
    }

    /// The configured name of a port.
    pub fn name(&self, port: OfPort) -> Option<&str> {
        self.by_port.as_ref()?.get(&port).map(String::as_str)
    }

    /// A port as text: its reserved name, its given name (quoted where it could be taken for something else), or its
    /// number.
    pub fn display(&self, port: OfPort) -> DisplayPort<'_> {
        DisplayPort { port, names: self }
    }
}

impl<'a> FromIterator<(&'a str, OfPort)> for PortNames {
    fn from_iter<I: IntoIterator<Item = (&'a str, OfPort)>>(ports: I) -> Self {
        let mut names = PortNames::NONE;
        ports.into_iter().for_each(|(name, port)| names.insert(name, port));
        names
    }
}

/// See [`PortNames::display`].
#[derive(Clone, Copy, Debug)]
pub struct DisplayPort<'a> {
    port: OfPort,
    names: &'a PortNames,
}

impl fmt::Display for DisplayPort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = OfPort::RESERVED.iter().find(|(_, p)| *p == self.port) {
            return f.write_str(name);
        }
        match self.names.name(self.port) {
            Some(name) if is_plain_name(name) => f.write_str(name),
            Some(name) => write!(f, "\"{}\"", escaped(name)),
            None => write!(f, "{}", self.port.0),
        }
    }
}

/// Whether a port name needs no quotes: a letter, then letters and digits. (`eth-0` could be taken for a range.)
fn is_plain_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic()) && bytes.all(|b| b.is_ascii_alphanumeric())
}

fn escaped(name: &str) -> String {
    name.chars().flat_map(|c| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] }).collect()
}
