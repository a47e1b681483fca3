//! Requests, and who carries them out.

use crate::connection::{Connection, End};
use crate::hub::{Forwarded, News};
use crate::{flows, meters, ports};
use sluice_flow::OfPort;
use sluice_ofproto::FragmentMode;
use sluice_openflow::message::connection::{AsyncKind, Role, RoleMessage};
use sluice_openflow::message::groups::GroupFeatures;
use sluice_openflow::message::meters::QUEUE_ALL;
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::message::switch::{
    Description, FRAG_DROP, FRAG_MASK, FRAG_NX_MATCH, Features, SwitchConfig, TableFeatures, TableStats, capability,
};
use sluice_openflow::{Error, Format, Message, Request, Version};
use std::sync::Arc;

/// Tables of a bridge, as controllers are told: 255 means all of them.
pub(crate) const N_TABLES: u8 = 254;

/// OpenFlow 1.0's actions, by bits of their numbers: all but vendors'. Source: Open vSwitch, `show`.
const ACTIONS10: u32 = 0xfff;

/// OpenFlow 1.0's wildcards: all. Source: `OFPFW_ALL`.
const WILDCARDS10: u32 = 0x3f_ffff;

/// Rules that a table is said to hold. Source: Open vSwitch says the same.
const TABLE_ENTRIES: u32 = 1_000_000;

impl Connection {
    /// Carries out a request.
    pub(crate) fn request(&mut self, request: &Request, message: Message) -> Result<(), End> {
        let done = match message {
            Message::FeaturesRequest => self.features().map(Some),
            Message::GetConfigRequest => self.get_config().map(Some),
            Message::SetConfig(config) => self.set_config(config).map(|()| None),
            // Everything before is done.
            Message::BarrierRequest => Ok(Some(Message::BarrierReply)),
            Message::GroupMod(m) => self.group_mod(&m).map(|()| {
                self.forward(request, Message::GroupMod(m));
                None
            }),
            Message::PacketOut(m) => self.packet_out(&m).map(|()| None),
            Message::Resume(m) => self.resume(*m).map(|()| None),
            Message::PortMod(m) => ports::port_mod(&self.switch, &self.hub, &m).map(|()| None),
            Message::MeterMod(m) => self.meter_mod(&m).map(|()| {
                self.forward(request, Message::MeterMod(m));
                None
            }),
            Message::QueueGetConfigRequest(port) => {
                let known = self.queues(Some(port).filter(|port| *port != OfPort::NONE), QUEUE_ALL);
                known.map(|()| Some(Message::QueueGetConfigReply(port, Vec::new())))
            }
            Message::StatsRequest(StatsRequest::Flows(wanted), false) => return self.flow_stats(request, &wanted),
            Message::StatsRequest(StatsRequest::Monitors(all), false) => return self.monitor(request, &all),
            Message::MonitorCancel(id) => self.cancel_monitor(id).map(|()| None),
            Message::StatsRequest(question, false) => self.stats(question).map(|r| Some(Message::StatsReply(r, false))),
            // Questions in pieces: only table features may be, and those cannot be changed here.
            Message::StatsRequest(_, true) => Err(Error::RequestMultipartBufferOverflow),
            Message::TableMod(m) => self.table_mod(&m).map(|()| None),
            _ => Err(Error::RequestBadType),
        };
        match done {
            Ok(Some(reply)) => self.session.reply(request, &reply),
            Ok(None) => {}
            Err(error) => self.session.refuse(request, error),
        }
        Ok(())
    }

    /// Tells the other controllers of a change of groups or meters.
    fn forward(&self, request: &Request, message: Message) {
        let forwarded = Forwarded { message, xid: request.xid };
        self.hub.post_to_others(&self.mailbox, &News::Forwarded(Arc::new(forwarded)));
    }

    /// Passes on another controller's change, if this one wants to hear of it.
    pub(crate) fn request_forward(&mut self, change: &Forwarded) {
        // Numbers are OpenFlow 1.4's, `OFPRFR_*`.
        let reason = if matches!(change.message, Message::GroupMod(_)) { 0 } else { 1 };
        let version = self.version();
        if version >= Version::V14 && self.session.wants(AsyncKind::RequestForward, reason) {
            self.session.send(&Message::RequestForward(change.message.write(version, change.xid)));
        }
    }

    pub(crate) fn version(&self) -> Version {
        self.session.version().unwrap_or(Version::V10)
    }

    fn features(&self) -> Result<Message, Error> {
        let version = self.version();
        let bridge = self.switch.ofproto.bridges().into_iter().find(|b| b.name == self.hub.bridge);
        let datapath_id = bridge.ok_or(Error::RequestEperm)?.datapath_id;
        let common =
            capability::FLOW_STATS | capability::TABLE_STATS | capability::PORT_STATS | capability::QUEUE_STATS;
        let capabilities = match version {
            Version::V10 => common | capability::ARP_MATCH_IP,
            Version::V13 => common | capability::GROUP_STATS,
            _ => common | capability::GROUP_STATS | capability::BUNDLES,
        };
        let ports = match version {
            Version::V10 => ports::descriptions(&self.switch, &self.hub.bridge),
            _ => Vec::new(),
        };
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
        let fragments = match self.switch.ofproto.fragments(&self.hub.bridge).map_err(|_| Error::RequestEperm)? {
            FragmentMode::Normal => 0,
            FragmentMode::Drop => FRAG_DROP,
            FragmentMode::NxMatch => FRAG_NX_MATCH,
        };
        let own = self.session.connection_config();
        // OpenFlow 1.3 did away with the flag about time to live.
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
        let bridge = &self.hub.bridge;
        // A secondary controller sets what concerns its connection, and is not told that the rest is not its.
        if self.session.role() == Role::Secondary {
            return Ok(());
        }
        if self.switch.ofproto.fragments(bridge).map_err(|_| Error::RequestEperm)? != fragments {
            self.switch.ofproto.set_bridge(bridge, None, Some(fragments)).map_err(|_| Error::RequestEperm)?;
            self.switch.hurry();
        }
        Ok(())
    }

    /// Gives or refuses a role.
    pub(crate) fn role(&mut self, request: &Request, wish: RoleMessage) {
        if let (Some(generation), Some(Role::Primary | Role::Secondary)) = (wish.generation, wish.role)
            && let Err(error) = self.hub.check_generation(generation)
        {
            return self.session.refuse(request, error);
        }
        if let Some(role) = wish.role {
            match role {
                Role::Primary => self.hub.make_primary(&self.mailbox),
                _ => self.mailbox.set_primary(false),
            }
            self.session.set_role(role);
        }
        let generation = if wish.format == Format::Nicira { None } else { self.hub.generation() };
        let reply = RoleMessage { format: wish.format, role: Some(self.session.role()), generation };
        self.session.reply(request, &Message::RoleReply(reply));
    }

    fn stats(&self, question: StatsRequest) -> Result<StatsReply, Error> {
        let (switch, bridge) = (&self.switch, self.hub.bridge.as_str());
        Ok(match question {
            StatsRequest::Description => StatsReply::Description(Box::new(description(bridge))),
            StatsRequest::Aggregate(wanted) => {
                StatsReply::Aggregate(wanted.format, flows::aggregate(switch, bridge, &wanted)?)
            }
            StatsRequest::Tables => StatsReply::Tables(self.tables()?),
            StatsRequest::Ports(port) => StatsReply::Ports(ports::stats(switch, bridge, port)?),
            StatsRequest::PortDescs(port) => {
                let all = ports::descriptions(switch, bridge).into_iter();
                StatsReply::PortDescs(all.filter(|d| port.is_none_or(|p| p.0 == d.port)).collect())
            }
            StatsRequest::Queues(port, queue) => self.queues(port, queue).map(|()| StatsReply::Queues(Vec::new()))?,
            StatsRequest::QueueDescs(port, queue) => {
                self.queues(port, queue).map(|()| StatsReply::QueueDescs(Vec::new()))?
            }
            StatsRequest::Meters(meter) => StatsReply::Meters(self.meter_stats(meter)?),
            StatsRequest::MeterConfigs(meter) => StatsReply::MeterConfigs(self.meter_descs(meter)?),
            StatsRequest::MeterFeatures => StatsReply::MeterFeatures(meters::features()),
            StatsRequest::Groups(group) => StatsReply::Groups(self.group_stats(group)?),
            StatsRequest::GroupDescs(group) => StatsReply::GroupDescs(self.group_descs(group)?),
            StatsRequest::GroupFeatures => StatsReply::GroupFeatures(GroupFeatures::of_everything(self.version())),
            StatsRequest::TableFeatures(wanted) if wanted.is_empty() => {
                let of = |(t, limit)| TableFeatures::of_everything(t, N_TABLES, limit, self.version());
                StatsReply::TableFeatures(self.table_limits()?.into_iter().map(of).collect())
            }
            // Tables are as they are.
            StatsRequest::TableFeatures(_) => return Err(Error::TableFeaturesEperm),
            // Those are answered piece by piece, see `flow_stats` and `monitor`.
            StatsRequest::Flows(_) | StatsRequest::Monitors(_) => return Err(Error::RequestBadStat),
            StatsRequest::TableDescs => StatsReply::TableDescs(self.table_descs()?),
        })
    }

    /// The tables with the rules that each is said to hold.
    fn table_limits(&self) -> Result<Vec<(u8, u32)>, Error> {
        let tables = self.switch.ofproto.table_descs(&self.hub.bridge).map_err(|_| Error::RequestEperm)?;
        let limit = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let shown = tables.iter().filter(|table| table.table < N_TABLES);
        Ok(shown.map(|table| (table.table, table.limit.map_or(TABLE_ENTRIES, limit))).collect())
    }

    fn tables(&self) -> Result<Vec<TableStats>, Error> {
        let known = self.switch.ofproto.table_stats(&self.hub.bridge).map_err(|_| Error::RequestEperm)?;
        let rows = self.table_limits()?.into_iter().map(|(table, max_entries)| {
            let stats = known.iter().find(|t| t.table == table).copied().unwrap_or_default();
            TableStats {
                table,
                name: String::new(),
                wildcards: WILDCARDS10,
                max_entries,
                active: stats.rules as u32,
                lookups: stats.matched + stats.missed,
                matched: stats.matched,
            }
        });
        Ok(rows.collect())
    }
}

fn description(bridge: &str) -> Description {
    Description {
        manufacturer: "Sluice".into(),
        hardware: "Userspace software switch".into(),
        software: env!("CARGO_PKG_VERSION").into(),
        serial: "None".into(),
        datapath: bridge.into(),
    }
}
