//! Meters as controllers see them.

use crate::connection::Connection;
use crate::flows::{nanoseconds, refusal};
use sluice_ofp::{METER_ALL, MeterMod};
use sluice_ofproto::{BANDS_MAX, METERS_MAX, MeterEntry};
use sluice_openflow::Error;
use sluice_openflow::message::meters::{MeterDesc, MeterFeatures, MeterStats};

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

    /// One meter, or all.
    fn meters(&self, wanted: u32) -> Result<Vec<MeterEntry>, Error> {
        let mut meters = self.switch.ofproto.meters(&self.conn_mgr.bridge).map_err(|error| refusal(&error))?;
        if wanted != METER_ALL {
            meters.retain(|meter| meter.id == wanted);
            if meters.is_empty() {
                return Err(Error::MeterModUnknownMeter);
            }
        }
        Ok(meters)
    }

    pub(crate) fn meter_descs(&self, wanted: u32) -> Result<Vec<MeterDesc>, Error> {
        let meters = self.meters(wanted)?.into_iter();
        Ok(meters.map(|meter| MeterDesc { meter: meter.id, config: meter.config }).collect())
    }

    pub(crate) fn meter_stats(&self, wanted: u32) -> Result<Vec<MeterStats>, Error> {
        let now_ms = self.switch.now_ms();
        let stats = self.meters(wanted)?.into_iter().map(|meter| MeterStats {
            meter: meter.id,
            flows: meter.flow_count,
            packets: meter.stats.packets,
            bytes: meter.stats.bytes,
            duration_ns: nanoseconds(now_ms.saturating_sub(meter.created_ms)),
            bands: meter.stats.bands,
        });
        Ok(stats.collect())
    }
}
