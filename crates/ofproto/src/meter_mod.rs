//! Requests about meters: changes and listings.

use crate::action_refs::uses_meter;
use crate::depends::Changes;
use crate::error::Error;
use crate::meter::{BANDS_MAX, Meter, MeterEntry};
use crate::ofproto::{Ofproto, position};
use crate::xlate_cache::Dependency;
use sluice_action::MeterStore;
use sluice_ofp::{BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterMod};
use std::sync::Arc;

/// Checks a meter's number and its number of bands.
fn check_number(mm: &MeterMod) -> Result<(), Error> {
    if !(1..=METER_MAX).contains(&mm.meter) && ![METER_CONTROLLER, METER_SLOWPATH].contains(&mm.meter) {
        let why = "expected a number of 1 to 4294901760, or controller or slowpath";
        return Err(Error::BadMeter { meter: mm.meter, why });
    }
    if mm.config.bands.len() > BANDS_MAX { Err(Error::MeterBands(mm.meter)) } else { Ok(()) }
}

/// Checks a meter's bands.
fn check_bands(mm: &MeterMod) -> Result<(), Error> {
    let bands = &mm.config.bands;
    if bands.iter().any(|band| band.rate == 0) {
        return Err(Error::MeterRate(mm.meter));
    }
    if bands.iter().all(|band| band.kind == BandKind::Drop) { Ok(()) } else { Err(Error::MeterBand(mm.meter)) }
}

impl Ofproto {
    /// Sets the datapath's meters. To be called once, before the first meter is added.
    pub fn set_meters(&self, store: Arc<dyn MeterStore>) {
        self.writer().meters.store = Some(store);
    }

    /// Makes one change of the meters. Deletes the rules that use a deleted meter.
    pub fn meter_mod(&self, bridge: &str, mm: &MeterMod, now_ms: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = self.bridge_id(bridge)?;
        if mm.command == MeterCommand::Delete {
            let mut pending = self.begin(&mut writer, id, now_ms);
            let gone = self.change(&mut writer, |state| {
                let Some(bridge) = state.bridge_mut(id) else { return Vec::new() };
                let gone: Vec<u32> =
                    bridge.meters.keys().copied().filter(|m| mm.meter == METER_ALL || *m == mm.meter).collect();
                gone.iter().for_each(|meter| pending.hide_users(bridge, *meter));
                gone.iter().filter_map(|meter| bridge.meters.remove(meter)).map(|meter| meter.datapath).collect()
            });
            self.commit(&mut writer, id, pending);
            // Messages to controllers use meters that no rule names.
            if !gone.is_empty() {
                self.announce(&Changes::of_bridge(id));
            }
            for meter in gone {
                writer.meters.free(meter);
                if let Some(store) = &writer.meters.store {
                    store.remove(meter);
                }
            }
            return Ok(());
        }
        check_number(mm)?;
        let old = self.state().bridge(id).and_then(|bridge| bridge.meters.get(&mm.meter).cloned());
        match (mm.command, &old) {
            (MeterCommand::Add, Some(_)) => return Err(Error::MeterExists(mm.meter)),
            (MeterCommand::Modify, None) => return Err(Error::NoMeter(mm.meter)),
            _ => check_bands(mm)?,
        }
        let (datapath, created_ms) = match old {
            None => (writer.meters.allocate().ok_or(Error::TooManyMeters)?, now_ms),
            Some(old) => (old.datapath, old.created_ms),
        };
        if let Some(store) = &writer.meters.store {
            store.set(datapath, &mm.config, now_ms);
        }
        self.change(&mut writer, |state| {
            let meter = Meter { datapath, config: mm.config.clone(), created_ms };
            state.bridge_mut(id).map(|bridge| bridge.meters.insert(mm.meter, meter))
        });
        self.announce(&Changes::of(id, Dependency::Meter(mm.meter)));
        Ok(())
    }

    /// A bridge's meters, by number.
    pub fn meters(&self, bridge: &str) -> Result<Vec<MeterEntry>, Error> {
        let store = self.writer().meters.store.clone();
        let state = self.state();
        let bridge = &state.bridges[position(&state, bridge)?];
        let users = |id| {
            let tables = bridge.tables.iter().filter_map(|table| table.rules.as_deref());
            let rules = tables.flat_map(|rules| rules.iter(state.tables_version));
            rules.filter(|rule| uses_meter(&rule.payload().actions, id)).count() as u32
        };
        let entry = |(id, meter): (&u32, &Meter)| MeterEntry {
            id: *id,
            config: meter.config.clone(),
            created_ms: meter.created_ms,
            flow_count: users(*id),
            stats: store.as_ref().and_then(|store| store.stats(meter.datapath)).unwrap_or_default(),
        };
        Ok(bridge.meters.iter().map(entry).collect())
    }
}
