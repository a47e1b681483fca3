//! Numbers of fields on the wire.

/// An OXM class, with the experimenter it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OxmClass {
    /// Nicira's first, 0x0000.
    Nxm0,
    /// Nicira's second, 0x0001.
    Nxm1,
    /// Ericsson's, 0x1000.
    Ericsson,
    /// The standard's, 0x8000.
    Basic,
    /// Packet registers, 0x8001.
    PacketRegs,
    /// An experimenter's, 0xffff and then its id.
    Experimenter(u32),
}

impl OxmClass {
    /// The Open Networking Foundation's extensions.
    pub const ONF: OxmClass = OxmClass::Experimenter(0x4f4e_4600);
    /// Nicira's experimenter class.
    pub const NICIRA: OxmClass = OxmClass::Experimenter(0x0000_2320);
    /// NSH fields.
    pub const NSH: OxmClass = OxmClass::Experimenter(0x005a_d650);

    /// The 16 bits in an OXM header.
    pub const fn code(self) -> u16 {
        match self {
            OxmClass::Nxm0 => 0,
            OxmClass::Nxm1 => 1,
            OxmClass::Ericsson => 0x1000,
            OxmClass::Basic => 0x8000,
            OxmClass::PacketRegs => 0x8001,
            OxmClass::Experimenter(_) => 0xffff,
        }
    }
}

/// One way to name a field in NXM or OXM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oxm {
    /// Its symbol, `NXM_OF_IN_PORT`.
    pub name: &'static str,
    /// Its class.
    pub class: OxmClass,
    /// Its number in the class.
    pub number: u8,
    /// First OpenFlow wire version that has it: 0 for extensions, which any may use, 3 for OpenFlow 1.2 …
    pub since: u8,
}
