//! What a bond is asked for.

/// How traffic is spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One member carries all of it.
    #[default]
    ActiveBackup,
    /// By source address and VLAN. The other end need not know of the bond.
    BalanceSlb,
    /// By connection. Members take part while LACP says so.
    BalanceTcp,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::ActiveBackup, Mode::BalanceSlb, Mode::BalanceTcp];

    /// As Open vSwitch writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::ActiveBackup => "active-backup",
            Mode::BalanceSlb => "balance-slb",
            Mode::BalanceTcp => "balance-tcp",
        }
    }

    /// The mode of that name.
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The configuration of a bond; the fields are keys of `Port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How traffic is spread.
    pub mode: Mode,
    /// How long a link has to be up before its member is used, ms.
    pub updelay_ms: u64,
    /// How long a link has to be down before its member is not used any more, ms.
    pub downdelay_ms: u64,
    /// How often load is spread anew, ms; 0: never.
    pub rebalance_interval_ms: u64,
    /// What hashes begin with.
    pub hash_basis: u32,
    /// The member that is to be active whenever it can be.
    pub primary: Option<String>,
    /// Whether one member carries traffic while LACP has found no partner.
    pub fallback_ab: bool,
    /// Whether the datapath chooses the member of a packet without another lookup (`lb-output-action`).
    pub lb_output: bool,
    /// Whether multicast is admitted on every member.
    pub all_members_active: bool,
    /// How often links are asked whether they are up, ms; `None`: links tell.
    pub miimon_interval_ms: Option<u64>,
    /// The address of the member that was active when the configuration was last in force.
    pub last_active: Option<[u8; 6]>,
}

/// How often load is spread anew, by default, ms.
const REBALANCE_INTERVAL_MS: u64 = 10_000;

impl Default for Config {
    fn default() -> Self {
        Config {
            mode: Mode::ActiveBackup,
            updelay_ms: 0,
            downdelay_ms: 0,
            rebalance_interval_ms: REBALANCE_INTERVAL_MS,
            hash_basis: 0,
            primary: None,
            fallback_ab: false,
            lb_output: false,
            all_members_active: false,
            miimon_interval_ms: None,
            last_active: None,
        }
    }
}

impl Config {
    /// The shortest interval between two rebalancings, ms.
    pub const REBALANCE_MIN_MS: u64 = 1000;

    /// How often links are asked if nothing else is said, ms.
    pub const MIIMON_MS: u64 = 200;
}
