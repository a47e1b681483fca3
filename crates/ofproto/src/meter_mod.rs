//! Requests about meters: changes and listings.

use crate::action_refs::meters_of;
use crate::bridges::position;
use crate::depends::Changes;
use crate::error::Error;
use crate::flow_mod::CHUNK;
use crate::meter::{BANDS_MAX, Meter, MeterEntry};
use crate::ofproto::Ofproto;
use crate::rules::Users;
use crate::xlate_cache::Dependency;
use sluice_action::MeterStore;
use sluice_ofp::{BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterMod};
use std::collections::HashSet;
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
            let mut pending = self.begin(&mut writer, id, None, now_ms);
            let gone: HashSet<u32> = {
                let state = self.state();
                let meters = state.bridge(id).map(|bridge| &bridge.meters);
                match mm.meter {
                    METER_ALL => meters.into_iter().flat_map(|meters| meters.keys().copied()).collect(),
                    one => meters.filter(|meters| meters.contains_key(&one)).map(|_| one).into_iter().collect(),
                }
            };
            if !gone.is_empty() {
                self.hide_users_of_meters(&mut writer, id, &mut pending, &gone);
            }
            let gone: Vec<u32> = gone.into_iter().collect();
            let mut freed = Vec::new();
            for piece in gone.chunks(CHUNK) {
                self.change(&mut writer, |state| {
                    let Some(bridge) = state.bridge_mut(id) else { return };
                    freed.extend(piece.iter().filter_map(|meter| Some(bridge.meters.remove(meter)?.datapath)));
                });
            }
            self.commit(&mut writer, id, pending);
            // Messages to controllers use meters that no rule names.
            if !freed.is_empty() {
                self.announce(&Changes::of_bridge(id));
            }
            freed.into_iter().for_each(|meter| writer.meters.remove(meter));
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
        let (ids, users) = (self.meter_ids(bridge)?, self.meter_users(bridge)?);
        self.meter_entries(bridge, &ids, &users)
    }

    /// The numbers of a bridge's meters, in order.
    pub fn meter_ids(&self, bridge: &str) -> Result<Vec<u32>, Error> {
        let state = self.state();
        Ok(state.bridges[position(&state, bridge)?].meters.keys().copied().collect())
    }

    /// How many rules use each of a bridge's meters.
    pub fn meter_users(&self, bridge: &str) -> Result<Users, Error> {
        match self.meter_ids(bridge)?.is_empty() {
            true => Ok(Users::new()),
            false => self.users(bridge, |actions| meters_of(actions).collect()),
        }
    }

    /// Those of some meters that there are, with their users.
    pub fn meter_entries(&self, bridge: &str, ids: &[u32], users: &Users) -> Result<Vec<MeterEntry>, Error> {
        let store = self.writer().meters.store.clone();
        let state = self.state();
        let meters = &state.bridges[position(&state, bridge)?].meters;
        let entry = |(id, meter): (u32, &Meter)| MeterEntry {
            id,
            config: meter.config.clone(),
            created_ms: meter.created_ms,
            flow_count: users.get(&id).copied().unwrap_or(0),
            stats: store.as_ref().and_then(|store| store.stats(meter.datapath)).unwrap_or_default(),
        };
        Ok(ids.iter().filter_map(|id| Some((*id, meters.get(id)?))).map(entry).collect())
    }
}
