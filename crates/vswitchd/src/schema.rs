//! The tables and columns of interest. A column that the server lacks reads as its default, and is not written.
//!
//! A change of a column that this program writes itself asks for no reconfiguration: `omit_alert`.
//! Source: Open vSwitch vswitchd/bridge.c, `bridge_init`.

use sluice_ovsdb::AtomicType::{Boolean, Integer, String, Uuid};
use sluice_ovsdb::{Column, ColumnType, Table};

/// The database.
pub const DATABASE: &str = "Open_vSwitch";

/// The lock that the one process that serves a database holds.
pub const LOCK: &str = "ovs_vswitchd";

/// Table names.
pub const OPEN_VSWITCH: &str = "Open_vSwitch";
pub const BRIDGE: &str = "Bridge";
pub const PORT: &str = "Port";
pub const INTERFACE: &str = "Interface";
pub const CONTROLLER: &str = "Controller";
pub const MANAGER: &str = "Manager";
pub const SSL: &str = "SSL";
pub const FLOW_TABLE: &str = "Flow_Table";
pub const MIRROR: &str = "Mirror";
pub const QOS: &str = "QoS";
pub const QUEUE: &str = "Queue";
pub const SFLOW: &str = "sFlow";
pub const DATAPATH: &str = "Datapath";
pub const CT_ZONE: &str = "CT_Zone";
pub const CT_TIMEOUT_POLICY: &str = "CT_Timeout_Policy";

/// The columns of what an interface may receive: kilobits a second and their burst, thousands of packets a second and
/// their burst.
pub const POLICING_COLUMNS: [&str; 4] =
    ["ingress_policing_rate", "ingress_policing_burst", "ingress_policing_kpkts_rate", "ingress_policing_kpkts_burst"];

/// All tables.
pub fn tables() -> Vec<Table> {
    vec![
        open_vswitch(),
        bridge(),
        port(),
        interface(),
        controller(),
        manager(),
        ssl(),
        flow_table(),
        mirror(),
        qos(),
        queue(),
        sflow(),
        datapath(),
        ct_zone(),
        ct_timeout_policy(),
    ]
}

fn open_vswitch() -> Table {
    Table::new(
        OPEN_VSWITCH,
        [
            Column::scalar("next_cfg", Integer),
            Column::set("bridges", Uuid),
            Column::new("datapaths", ColumnType::map(String, Uuid)),
            Column::optional("ssl", Uuid),
            Column::set("manager_options", Uuid),
            Column::string_map("other_config"),
            Column::scalar("cur_cfg", Integer).omit_alert(),
            Column::set("datapath_types", String).omit_alert(),
            Column::set("iface_types", String).omit_alert(),
            Column::scalar("dpdk_initialized", Boolean).omit_alert(),
            Column::optional("dpdk_version", String).omit_alert(),
        ],
    )
}

fn bridge() -> Table {
    Table::new(
        BRIDGE,
        [
            Column::scalar("name", String),
            Column::scalar("datapath_type", String),
            Column::set("ports", Uuid),
            Column::optional("fail_mode", String),
            Column::set("controller", Uuid),
            Column::set("protocols", String),
            Column::new("flow_tables", ColumnType::map(Integer, Uuid)),
            Column::set("mirrors", Uuid),
            Column::set("flood_vlans", Integer),
            Column::optional("netflow", Uuid),
            Column::optional("sflow", Uuid),
            Column::optional("ipfix", Uuid),
            Column::scalar("stp_enable", Boolean),
            Column::scalar("rstp_enable", Boolean),
            Column::scalar("mcast_snooping_enable", Boolean),
            Column::string_map("status").omit_alert(),
            Column::string_map("other_config"),
            Column::optional("datapath_id", String).omit_alert(),
            Column::scalar("datapath_version", String).omit_alert(),
        ],
    )
}

fn port() -> Table {
    Table::new(
        PORT,
        [
            Column::scalar("name", String),
            Column::set("interfaces", Uuid),
            Column::optional("tag", Integer),
            Column::set("trunks", Integer),
            Column::set("cvlans", Integer),
            Column::optional("vlan_mode", String),
            Column::scalar("protected", Boolean),
            Column::optional("qos", Uuid),
            Column::optional("lacp", String),
            Column::optional("mac", String),
            Column::optional("bond_mode", String),
            Column::scalar("bond_updelay", Integer),
            Column::scalar("bond_downdelay", Integer),
            Column::optional("bond_active_slave", String).omit_alert(),
            Column::string_map("status").omit_alert(),
            Column::string_map("other_config"),
        ],
    )
}

fn interface() -> Table {
    Table::new(
        INTERFACE,
        [
            Column::scalar("name", String),
            Column::scalar("type", String),
            Column::string_map("other_config"),
            Column::string_map("options"),
            Column::optional("ofport_request", Integer),
            Column::optional("mtu_request", Integer),
            Column::optional("mac", String),
            Column::string_map("bfd"),
            Column::optional("cfm_mpid", Integer),
            Column::string_map("lldp"),
            Column::scalar(POLICING_COLUMNS[0], Integer),
            Column::scalar(POLICING_COLUMNS[1], Integer),
            Column::scalar(POLICING_COLUMNS[2], Integer),
            Column::scalar(POLICING_COLUMNS[3], Integer),
            Column::string_map("bfd_status").omit_alert(),
            Column::optional("lacp_current", Boolean).omit_alert(),
            Column::optional("ofport", Integer).omit_alert(),
            Column::optional("error", String).omit_alert(),
            Column::optional("admin_state", String).omit_alert(),
            Column::optional("link_state", String).omit_alert(),
            Column::optional("link_resets", Integer).omit_alert(),
            Column::optional("duplex", String).omit_alert(),
            Column::optional("link_speed", Integer).omit_alert(),
            Column::optional("mtu", Integer).omit_alert(),
            Column::optional("mac_in_use", String).omit_alert(),
            Column::optional("ifindex", Integer).omit_alert(),
            Column::string_map("status").omit_alert(),
            Column::new("statistics", ColumnType::map(String, Integer)).omit_alert(),
        ],
    )
}

fn controller() -> Table {
    Table::new(
        CONTROLLER,
        [
            Column::scalar("target", String),
            Column::optional("connection_mode", String),
            Column::optional("max_backoff", Integer),
            Column::optional("inactivity_probe", Integer),
            Column::optional("controller_rate_limit", Integer),
            Column::optional("controller_burst_limit", Integer),
            Column::optional("enable_async_messages", Boolean),
            Column::optional("type", String),
            Column::optional("local_ip", String),
            Column::optional("controller_queue_size", Integer),
            Column::scalar("is_connected", Boolean).omit_alert(),
            Column::optional("role", String).omit_alert(),
            Column::string_map("status").omit_alert(),
        ],
    )
}

fn manager() -> Table {
    Table::new(MANAGER, [Column::scalar("target", String), Column::optional("connection_mode", String)])
}

fn ssl() -> Table {
    Table::new(
        SSL,
        [
            Column::scalar("private_key", String),
            Column::scalar("certificate", String),
            Column::scalar("ca_cert", String),
            Column::scalar("bootstrap_ca_cert", Boolean),
        ],
    )
}

fn flow_table() -> Table {
    Table::new(
        FLOW_TABLE,
        [
            Column::optional("name", String),
            Column::optional("flow_limit", Integer),
            Column::optional("overflow_policy", String),
            Column::set("groups", String),
            Column::set("prefixes", String),
        ],
    )
}

fn mirror() -> Table {
    Table::new(
        MIRROR,
        [
            Column::scalar("name", String),
            Column::scalar("select_all", Boolean),
            Column::set("select_src_port", Uuid),
            Column::set("select_dst_port", Uuid),
            Column::set("select_vlan", Integer),
            Column::optional("output_port", Uuid),
            Column::optional("output_vlan", Integer),
            Column::optional("snaplen", Integer),
            Column::new("statistics", ColumnType::map(String, Integer)).omit_alert(),
        ],
    )
}

fn qos() -> Table {
    let queues = Column::new("queues", ColumnType::map(Integer, Uuid));
    Table::new(QOS, [Column::scalar("type", String), Column::string_map("other_config"), queues])
}

fn queue() -> Table {
    Table::new(QUEUE, [Column::optional("dscp", Integer), Column::string_map("other_config")])
}

fn sflow() -> Table {
    Table::new(
        SFLOW,
        [
            Column::set("targets", String),
            Column::optional("sampling", Integer),
            Column::optional("polling", Integer),
            Column::optional("header", Integer),
            Column::optional("agent", String),
        ],
    )
}

fn datapath() -> Table {
    Table::new(
        DATAPATH,
        [Column::new("ct_zones", ColumnType::map(Integer, Uuid)), Column::string_map("capabilities").omit_alert()],
    )
}

fn ct_zone() -> Table {
    Table::new(CT_ZONE, [Column::optional("timeout_policy", Uuid)])
}

fn ct_timeout_policy() -> Table {
    Table::new(CT_TIMEOUT_POLICY, [Column::new("timeouts", ColumnType::map(String, Integer))])
}
