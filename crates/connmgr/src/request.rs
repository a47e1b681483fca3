//! Requests: which function carries out each of them, and those that concern the bridge as a whole.

use crate::async_msg::{AsyncMsg, ForwardedRequest};
use crate::close_reason::CloseReason;
use crate::connection::Connection;
use crate::tables::miss_number;
use crate::{flows, meters, ports};
use sluice_flow::OfPort;
use sluice_ofproto::{FragmentMode, TableDesc};
use sluice_openflow::message::connection::{AsyncKind, Role, RoleMessage};
use sluice_openflow::message::ct_flush::CtFlush;
use sluice_openflow::message::groups::GroupFeatures;
use sluice_openflow::message::meters::QUEUE_ALL;
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::message::switch::{
    Description, FRAG_DROP, FRAG_MASK, FRAG_NX_MATCH, Features, SwitchConfig, TableFeatures, capability,
};
use sluice_openflow::message::table_stats::{TableBitmaps, TableStats};
use sluice_openflow::{Error, Format, Message, N_TABLES, Request, Version};
use std::sync::Arc;

/// OpenFlow 1.0's actions, a bit for each number: all but the vendor action. Source: Open vSwitch, `show`.
const ACTIONS10: u32 = 0xfff;

/// The limit that is reported for tables without one. Source: Open vSwitch.
const TABLE_ENTRIES: u32 = 1_000_000;

impl Connection {
    /// Carries out a request.
    pub(crate) fn request(&mut self, request: &Request, message: Message) -> Result<(), CloseReason> {
        let done = match message {
            Message::FeaturesRequest => self.features().map(Some),
            Message::GetConfigRequest => self.get_config().map(Some),
            Message::SetConfig(config) => self.set_config(config).map(|()| None),
            Message::BarrierRequest => Ok(Some(self.barrier())),
            Message::GroupMod(m) => self.group_mod(&m).map(|()| {
                self.forward(request.xid, Message::GroupMod(m));
                None
            }),
            Message::PacketOut(m) => self.packet_out(&m).map(|()| None),
            Message::Resume(m) => self.resume(*m).map(|()| None),
            Message::PortMod(m) => ports::port_mod(&self.switch, &self.conn_mgr, &self.handle, &m).map(|()| None),
            Message::MeterMod(m) => self.meter_mod(&m).map(|()| {
                self.forward(request.xid, Message::MeterMod(m));
                None
            }),
            Message::QueueGetConfigRequest(port) => {
                let wanted = Some(port).filter(|port| *port != OfPort::NONE);
                let known = self.queue_configs(wanted, QUEUE_ALL);
                known.map(|queues| Some(Message::QueueGetConfigReply(port, queues)))
            }
            Message::TlvTableMod(m) => {
                let (ofproto, bridge) = (&self.switch.ofproto, &self.conn_mgr.bridge);
                self.conn_mgr.tlv_table.lock().carry_out(&m, ofproto, bridge).map(|()| None)
            }
            Message::TlvTableRequest => Ok(Some(Message::TlvTableReply(self.conn_mgr.tlv_table.lock().reply()))),
            Message::StatsRequest(StatsRequest::Flows(wanted), false) => return self.flow_stats(request, &wanted),
            Message::StatsRequest(StatsRequest::Monitors(all), false) => return self.monitor(request, &all),
            Message::StatsRequest(StatsRequest::Groups(group), false) => return self.group_stats(request, group),
            Message::StatsRequest(StatsRequest::GroupDescs(group), false) => return self.group_descs(request, group),
            Message::StatsRequest(StatsRequest::Meters(meter), false) => return self.meter_stats(request, meter),
            Message::StatsRequest(StatsRequest::MeterConfigs(meter), false) => return self.meter_descs(request, meter),
            Message::MonitorCancel(id) => self.cancel_monitor(id).map(|()| None),
            Message::StatsRequest(request, false) => self.stats(request).map(|r| Some(Message::StatsReply(r, false))),
            // Only table features may be requested in several messages, and they cannot be changed.
            Message::StatsRequest(_, true) => Err(Error::RequestMultipartBufferOverflow),
            Message::TableMod(m) => self.table_mod(&m).map(|()| None),
            Message::CtFlushZone(zone) => {
                self.flush_connections(&CtFlush { zone: Some(zone), ..CtFlush::default() });
                Ok(None)
            }
            Message::CtFlush(wanted) => {
                self.flush_connections(&wanted);
                Ok(None)
            }
            _ => Err(Error::RequestBadType),
        };
        match done {
            Ok(Some(reply)) => self.session.reply(request, &reply),
            Ok(None) => {}
            Err(error) => self.session.refuse(request, error),
        }
        Ok(())
    }

    /// Tells the bridge's other controllers of a change of groups or meters.
    pub(crate) fn forward(&self, xid: u32, message: Message) {
        let forwarded = ForwardedRequest { message, xid };
        self.conn_mgr.post_to_others(&self.handle, &AsyncMsg::RequestForward(Arc::new(forwarded)));
    }

    /// Sends another controller's change, if this controller wants it. OpenFlow has meters since version 1.3.
    pub(crate) fn request_forward(&mut self, change: &ForwardedRequest) {
        // Numbers are OpenFlow 1.4's, `OFPRFR_*`.
        let (reason, since) = match change.message {
            Message::GroupMod(_) => (0, Version::V10),
            _ => (1, Version::V13),
        };
        let version = self.version();
        if version >= since && self.session.wants(AsyncKind::RequestForward, reason) {
            self.session.send(&Message::RequestForward(self.session.written(&change.message, change.xid)));
        }
    }

    pub(crate) fn version(&self) -> Version {
        self.session.version().unwrap_or(Version::V10)
    }

    fn features(&self) -> Result<Message, Error> {
        let version = self.version();
        let bridge = self.switch.ofproto.bridges().into_iter().find(|b| b.name == self.conn_mgr.bridge);
        let datapath_id = bridge.ok_or(Error::RequestEperm)?.datapath_id;
        let common =
            capability::FLOW_STATS | capability::TABLE_STATS | capability::PORT_STATS | capability::QUEUE_STATS;
        let capabilities = match version {
            Version::V10 => common | capability::ARP_MATCH_IP,
            Version::V11 => common | capability::ARP_MATCH_IP | capability::GROUP_STATS,
            Version::V12 | Version::V13 => common | capability::GROUP_STATS,
            _ => common | capability::GROUP_STATS | capability::BUNDLES,
        };
        let ports =
            if version < Version::V13 { ports::descriptions(&self.switch, &self.conn_mgr.bridge) } else { Vec::new() };
        let (n_tables, actions) = (N_TABLES, ACTIONS10);
        Ok(Message::FeaturesReply(Features {
            datapath_id,
            n_tables,
            capabilities,
            actions,
            ports,
            ..Features::default()
        }))
    }

    fn get_config(&self) -> Result<Message, Error> {
        let fragments = match self.switch.ofproto.fragments(&self.conn_mgr.bridge).map_err(|_| Error::RequestEperm)? {
            FragmentMode::Normal => 0,
            FragmentMode::Drop => FRAG_DROP,
            FragmentMode::NxMatch => FRAG_NX_MATCH,
        };
        let own = self.session.connection_config();
        // OpenFlow 1.3 removed the flag about time to live.
        let flags = if self.version() < Version::V13 { own.flags } else { 0 };
        Ok(Message::GetConfigReply(SwitchConfig { flags: fragments | flags, miss_send_len: own.miss_send_len }))
    }

    fn set_config(&self, config: SwitchConfig) -> Result<(), Error> {
        let fragments = match config.flags & FRAG_MASK {
            0 => FragmentMode::Normal,
            FRAG_DROP => FragmentMode::Drop,
            FRAG_NX_MATCH => FragmentMode::NxMatch,
            _ => return Err(Error::ConfigBadFlags),
        };
        let bridge = &self.conn_mgr.bridge;
        // A secondary controller may set what concerns its connection. The rest of its request is ignored without an error.
        if self.session.role() == Role::Secondary {
            return Ok(());
        }
        if self.switch.ofproto.fragments(bridge).map_err(|_| Error::RequestEperm)? != fragments {
            self.switch.ofproto.set_fragments(bridge, fragments).map_err(|_| Error::RequestEperm)?;
            self.switch.revalidate_soon();
        }
        Ok(())
    }

    /// Grants or refuses a role.
    pub(crate) fn role(&mut self, request: &Request, wanted: RoleMessage) {
        if let (Some(generation), Some(Role::Primary | Role::Secondary)) = (wanted.generation, wanted.role)
            && let Err(error) = self.conn_mgr.check_generation(generation)
        {
            return self.session.refuse(request, error);
        }
        if let Some(role) = wanted.role {
            match role {
                Role::Primary => self.conn_mgr.make_primary(&self.handle),
                _ => {
                    self.handle.set_primary(false);
                }
            }
            self.session.set_role(role);
        }
        let generation = if wanted.format == Format::Nicira { None } else { self.conn_mgr.generation() };
        let reply = RoleMessage { format: wanted.format, role: Some(self.session.role()), generation };
        self.session.reply(request, &Message::RoleReply(reply));
    }

    fn stats(&self, request: StatsRequest) -> Result<StatsReply, Error> {
        let (switch, bridge) = (&self.switch, self.conn_mgr.bridge.as_str());
        Ok(match request {
            StatsRequest::Description => StatsReply::Description(Box::new(self.description())),
            StatsRequest::Aggregate(wanted) => {
                StatsReply::Aggregate(wanted.format, flows::aggregate(switch, bridge, &wanted)?)
            }
            StatsRequest::Tables => StatsReply::Tables(self.tables()?),
            StatsRequest::Ports(port) => StatsReply::Ports(ports::stats(switch, &self.conn_mgr, port)?),
            StatsRequest::PortDescs(port) => {
                let all = ports::descriptions(switch, bridge).into_iter();
                StatsReply::PortDescs(all.filter(|d| port.is_none_or(|p| p.0 == d.port)).collect())
            }
            StatsRequest::Queues(port, queue) => StatsReply::Queues(self.queue_stats(port, queue)?),
            StatsRequest::QueueDescs(port, queue) => StatsReply::QueueDescs(self.queue_configs(port, queue)?),
            StatsRequest::MeterFeatures => StatsReply::MeterFeatures(meters::features()),
            StatsRequest::GroupFeatures => StatsReply::GroupFeatures(GroupFeatures::of_everything(self.version())),
            StatsRequest::TableFeatures(wanted) if wanted.is_empty() => {
                let tables = self.shown_tables()?.into_iter();
                StatsReply::TableFeatures(tables.map(|table| self.table_features(table)).collect())
            }
            // Table features cannot be changed.
            StatsRequest::TableFeatures(_) => return Err(Error::TableFeaturesEperm),
            // Those have replies of several messages: see `request`.
            StatsRequest::Flows(_)
            | StatsRequest::Monitors(_)
            | StatsRequest::Meters(_)
            | StatsRequest::MeterConfigs(_)
            | StatsRequest::Groups(_)
            | StatsRequest::GroupDescs(_) => return Err(Error::RequestBadStat),
            StatsRequest::TableDescs => StatsReply::TableDescs(self.table_descs()?),
        })
    }

    fn description(&self) -> Description {
        let said = self.conn_mgr.description.lock().clone();
        Description {
            manufacturer: "Sluice".into(),
            hardware: "Userspace software switch".into(),
            software: env!("CARGO_PKG_VERSION").into(),
            serial: said.serial.unwrap_or_else(|| "None".into()),
            datapath: said.datapath.unwrap_or_else(|| self.conn_mgr.bridge.clone()),
        }
    }

    /// The tables that controllers see.
    fn shown_tables(&self) -> Result<Vec<TableDesc>, Error> {
        let mut tables = self.switch.ofproto.table_descs(&self.conn_mgr.bridge).map_err(|_| Error::RequestEperm)?;
        tables.retain(|table| table.table < N_TABLES);
        Ok(tables)
    }

    fn table_features(&self, table: TableDesc) -> TableFeatures {
        let everything = TableFeatures::of_everything(table.table, N_TABLES, max_entries(&table), self.version());
        TableFeatures { name: table.name, ..everything }
    }

    fn tables(&self) -> Result<Vec<TableStats>, Error> {
        self.switch.backend.credit_rules();
        let known = self.switch.ofproto.table_stats(&self.conn_mgr.bridge).map_err(|_| Error::RequestEperm)?;
        let rows = self.shown_tables()?.into_iter().map(|table| {
            let stats = known.iter().find(|t| t.table == table.table).copied().unwrap_or_default();
            TableStats {
                table: table.table,
                max_entries: max_entries(&table),
                name: table.name,
                bitmaps: TableBitmaps::of_everything(self.version(), table.table + 1 == N_TABLES),
                config: miss_number(table.miss),
                active: stats.rules as u32,
                lookups: stats.matched + stats.missed,
                matched: stats.matched,
            }
        });
        Ok(rows.collect())
    }
}

/// The limit that is reported for a table.
fn max_entries(table: &TableDesc) -> u32 {
    table.limit.map_or(TABLE_ENTRIES, |limit| u32::try_from(limit).unwrap_or(u32::MAX))
}
