//! Meters as data: what `ovs-ofctl add-meter` and OpenFlow's meter messages say of them.

/// The largest number that a meter can have. Source: OpenFlow 1.3, `OFPM_MAX`.
pub const METER_MAX: u32 = 0xffff_0000;

/// All meters, in deletions and requests.
pub const METER_ALL: u32 = 0xffff_ffff;

/// The meter of packets to the slow path. Source: OpenFlow 1.3, `OFPM_SLOWPATH`.
pub const METER_SLOWPATH: u32 = 0xffff_fffd;

/// The meter of packets to controllers. Source: OpenFlow 1.3, `OFPM_CONTROLLER`.
pub const METER_CONTROLLER: u32 = 0xffff_fffe;

/// A change of the meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// Add, change or delete.
    pub command: MeterCommand,
    /// Number of the meter; for deletions also [`METER_ALL`].
    pub meter: u32,
    /// What it is from now on.
    pub config: MeterConfig,
}

/// Kind of a [`MeterMod`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MeterCommand {
    /// Add it; there must be none of its number.
    Add,
    /// Change it; it must be there.
    Modify,
    /// Delete it, and rules that use it.
    Delete,
}

/// What a meter is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterConfig {
    /// Rates are packets a second; if not, kilobits a second.
    pub packets: bool,
    /// Bands have burst sizes; if not, each has the default.
    pub burst: bool,
    /// Collect statistics.
    pub stats: bool,
    /// What happens above which rate.
    pub bands: Vec<Band>,
}

/// A band of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// What happens to packets above the rate.
    pub kind: BandKind,
    /// Kilobits or packets a second.
    pub rate: u32,
    /// Kilobits or packets at once.
    pub burst: u32,
}

/// What a band does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandKind {
    /// They are dropped.
    Drop,
    /// Their drop precedence goes up by so much.
    DscpRemark(u8),
}
