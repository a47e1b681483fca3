//! Errors of requests.

use sluice_flow::OfPort;

/// Why a rule or a group gets no memory.
const NO_RULE_MEMORY: &str =
    "rules and groups take as much memory as they may (rule-memory), or more than a share of it";

/// Why a request was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such bridge.
    #[error("no bridge named \"{0}\"")]
    NoBridge(String),
    /// The name is taken.
    #[error("there is a bridge named \"{0}\" already")]
    BridgeExists(String),
    /// A field that only the switch sets.
    #[error("no rule may match {0}, which only the switch itself sets")]
    HiddenField(&'static str),
    /// A field that stands for no option.
    #[error("{0} stands for no Geneve option in this bridge; ovs-ofctl add-tlv-map maps one")]
    UnmappedOption(&'static str),
    /// Bits that an option does not have.
    #[error("{field} stands for an option of {length} bytes, and has no such bits")]
    OptionBits {
        /// The field.
        field: &'static str,
        /// Bytes of the option.
        length: u8,
    },
    /// There is no such port.
    #[error("bridge \"{bridge}\" has no port named \"{port}\"")]
    NoPort {
        /// Bridge.
        bridge: String,
        /// Port.
        port: String,
    },
    /// The name is taken.
    #[error("there is a port named \"{name}\" already, in bridge \"{bridge}\"")]
    PortExists {
        /// Port.
        name: String,
        /// Its bridge.
        bridge: String,
    },
    /// The number is taken.
    #[error("bridge \"{bridge}\" has port {} already: \"{name}\"", number.0)]
    PortNumberTaken {
        /// Bridge.
        bridge: String,
        /// Number.
        number: OfPort,
        /// The port that has it.
        name: String,
    },
    /// The number is not a port number.
    #[error("port \"{name}\": {number} is not a port number; expected 1 to 65279, or LOCAL")]
    BadPortNumber {
        /// Port.
        name: String,
        /// Number.
        number: u16,
    },
    /// Another port has that datapath port.
    #[error("port \"{name}\": datapath port {datapath} is taken")]
    DatapathPortTaken {
        /// Port.
        name: String,
        /// Number.
        datapath: u32,
    },
    /// Another port is the same tunnel.
    #[error("{name}: attempting to add tunnel port with same config as port '{other}' ({tunnel})")]
    TunnelTaken {
        /// Port.
        name: String,
        /// The other one.
        other: String,
        /// What both are.
        tunnel: String,
    },
    /// There is no such table.
    #[error("table {0}: expected 0 to 254")]
    BadTable(u8),
    /// `goto_table` to the same or an earlier table.
    #[error("goto_table:{to} in table {table}: expected a higher table")]
    GotoBackwards {
        /// The rule's table.
        table: u8,
        /// The target.
        to: u8,
    },
    /// An action that is not implemented.
    #[error("action {action}: {why}")]
    Unsupported {
        /// The action's text.
        action: String,
        /// What is missing.
        why: &'static str,
    },
    /// A field that is not implemented.
    #[error("field {field}: {why}")]
    MissingField {
        /// Its name.
        field: &'static str,
        /// What is missing.
        why: &'static str,
    },
    /// A rule has conjunctions and other actions.
    #[error("conjunction({0},…): a rule with conjunction actions can have no others but notes")]
    ConjunctionNotAlone(u32),
    /// `check_overlap` found an overlapping rule.
    #[error("another rule of priority {priority} overlaps in table {table}")]
    Overlap {
        /// Table.
        table: u8,
        /// Priority.
        priority: u16,
    },
    /// The table is full.
    #[error("table {table} is full: it holds {limit} rules")]
    TableFull {
        /// Table.
        table: u8,
        /// Rules at most.
        limit: usize,
    },
    /// The memory of rules is in use.
    #[error("table {table}: {NO_RULE_MEMORY}")]
    RuleMemory {
        /// Table.
        table: u8,
    },
    /// The memory of groups is in use.
    #[error("group {0}: {NO_RULE_MEMORY}")]
    GroupMemory(u32),
    /// The group exists.
    #[error("group {0} is there already")]
    GroupExists(u32),
    /// There is no such group.
    #[error("there is no group {0}")]
    NoGroup(u32),
    /// An action uses an unknown group.
    #[error("group:{0}: there is no such group; add it before rules that name it")]
    BadOutGroup(u32),
    /// The group's configuration is wrong.
    #[error("group {group}: {why}")]
    BadGroup {
        /// Number.
        group: u32,
        /// What was expected.
        why: &'static str,
    },
    /// The liveness of the group would depend on itself.
    #[error("group {0}: its buckets watch groups that watch it")]
    GroupLoop(u32),
    /// Only select and fast failover groups watch ports and groups.
    #[error("group {0}: watch_port and watch_group are for select and fast failover groups")]
    WatchUnsupported(u32),
    /// The bucket exists.
    #[error("group {group} has a bucket {bucket} already")]
    BucketExists {
        /// Group.
        group: u32,
        /// Bucket.
        bucket: u32,
    },
    /// There is no such bucket.
    #[error("group {group} has no bucket {bucket}")]
    NoBucket {
        /// Group.
        group: u32,
        /// Bucket.
        bucket: u32,
    },
    /// The meter exists.
    #[error("meter {0} is there already")]
    MeterExists(u32),
    /// There is no such meter.
    #[error("there is no meter {0}")]
    NoMeter(u32),
    /// An action uses an unknown meter.
    #[error("meter:{0}: there is no such meter")]
    BadMeterAction(u32),
    /// The meter's configuration is wrong.
    #[error("meter {meter}: {why}")]
    BadMeter {
        /// Number.
        meter: u32,
        /// What was expected.
        why: &'static str,
    },
    /// Too many bands.
    #[error("meter {0}: expected at most 8 bands")]
    MeterBands(u32),
    /// A band of another type than drop.
    #[error("meter {0}: expected bands of type drop; the datapath has no others")]
    MeterBand(u32),
    /// A band with rate 0.
    #[error("meter {0}: expected a rate above zero")]
    MeterRate(u32),
    /// No meter is free.
    #[error("there are 262144 meters already")]
    TooManyMeters,
    /// The translations of a bundle's packets take too much.
    #[error("the bundle's packets take more than {0} actions and effects: send fewer at a time")]
    BundledPackets(usize),
    /// A flow of a bundle was refused.
    #[error("flow {index}: {error}")]
    InBundle {
        /// Which, from 1.
        index: usize,
        /// Why.
        error: Box<Error>,
    },
}
