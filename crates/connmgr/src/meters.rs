//! Meters as controllers see them.

use crate::close_reason::CloseReason;
use crate::connection::Connection;
use crate::flows::{nanoseconds, refusal};
use sluice_ofp::{METER_ALL, MeterMod};
use sluice_ofproto::{BANDS_MAX, METERS_MAX, MeterEntry, Ofproto, Users};
use sluice_openflow::message::meters::{MeterDesc, MeterFeatures, MeterStats};
use sluice_openflow::message::stats::StatsReply;
use sluice_openflow::{Error, Request};

/// The band types there are, a bit for each: only drop. Source: OpenFlow 1.3, `OFPMBT_DROP`.
const BAND_TYPES: u32 = 1 << 1;

/// Rates in kilobits and packets, bursts, statistics. Source: OpenFlow 1.3, `OFPMF_*`.
const CAPABILITIES: u32 = 0xf;

/// The meter features there are.
pub fn features() -> MeterFeatures {
    MeterFeatures {
        max_meters: METERS_MAX,
        band_types: BAND_TYPES,
        capabilities: CAPABILITIES,
        max_bands: BANDS_MAX as u8,
        max_color: 0,
    }
}

impl Connection {
    pub(crate) fn meter_mod(&mut self, m: &MeterMod) -> Result<(), Error> {
        let changed = self.switch.ofproto.meter_mod(&self.conn_mgr.bridge, m, self.switch.now_ms());
        changed.map_err(|error| refusal(&error))?;
        self.switch.revalidate_soon();
        self.switch.publish_removed();
        Ok(())
    }

    /// The numbers of one meter, or of all.
    fn meter_ids(&self, wanted: u32) -> Result<Vec<u32>, Error> {
        let mut ids = self.switch.ofproto.meter_ids(&self.conn_mgr.bridge).map_err(|error| refusal(&error))?;
        ids.retain(|id| wanted == METER_ALL || *id == wanted);
        if ids.is_empty() && wanted != METER_ALL {
            return Err(Error::MeterModUnknownMeter);
        }
        Ok(ids)
    }

    /// Replies with the bands of one meter or of all, in as many messages as are needed.
    pub(crate) fn meter_descs(&mut self, request: &Request, wanted: u32) -> Result<(), CloseReason> {
        let part = |ofproto: &Ofproto, bridge: &str, ids: &[u32]| {
            let meters = ofproto.meter_entries(bridge, ids, &Users::new()).unwrap_or_default().into_iter();
            StatsReply::MeterConfigs(meters.map(|meter| MeterDesc { meter: meter.id, config: meter.config }).collect())
        };
        self.reply_in_parts(request, self.meter_ids(wanted), part)
    }

    /// Replies with the counters of one meter or of all.
    pub(crate) fn meter_stats(&mut self, request: &Request, wanted: u32) -> Result<(), CloseReason> {
        let now_ms = self.switch.now_ms();
        let stats = |meter: MeterEntry| MeterStats {
            meter: meter.id,
            flows: meter.flow_count,
            packets: meter.stats.packets,
            bytes: meter.stats.bytes,
            duration_ns: nanoseconds(now_ms.saturating_sub(meter.created_ms)),
            bands: meter.stats.bands,
        };
        let users = self.switch.ofproto.meter_users(&self.conn_mgr.bridge).unwrap_or_default();
        let part = |ofproto: &Ofproto, bridge: &str, ids: &[u32]| {
            let meters = ofproto.meter_entries(bridge, ids, &users).unwrap_or_default();
            StatsReply::Meters(meters.into_iter().map(stats).collect())
        };
        self.reply_in_parts(request, self.meter_ids(wanted), part)
    }
}
