//! Meters of the bridges: each stands for one of the datapath.

use crate::depends::Changes;
use crate::error::Error;
use crate::flow_mod::{Pending, uses_meter};
use crate::ofproto::{Ofproto, position};
use sluice_action::{MeterStats, MeterStore};
use sluice_flow::{BandKind, METER_ALL, METER_MAX, MeterCommand, MeterConfig, MeterMod};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bands of a meter at most. Source: OVS lib/dpif-netdev.c, MAX_BANDS.
const BANDS_MAX: usize = 8;
/// Meters of the switch at most. Source: as before, MAX_METERS.
const METERS_MAX: u32 = 1 << 18;

/// A bridge's meters by number.
pub(crate) type Meters = BTreeMap<u32, Meter>;

/// A meter of a bridge.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// Its number in the datapath.
    pub datapath: u32,
    pub config: MeterConfig,
    pub created_ms: u64,
}

/// A meter with what it has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterEntry {
    /// Its number.
    pub id: u32,
    /// What it is.
    pub config: MeterConfig,
    /// When it was added, milliseconds.
    pub created_ms: u64,
    /// Rules that use it.
    pub flow_count: u32,
    /// What it has counted.
    pub stats: MeterStats,
}

/// The datapath's meters, and which of their numbers were given out.
#[derive(Default)]
pub(crate) struct Provider {
    pub store: Option<Arc<dyn MeterStore>>,
    used: BTreeSet<u32>,
    next: u32,
}

impl Provider {
    /// A number for a new meter: not one that was free only just now, which megaflows under way may still name.
    fn draw(&mut self) -> Option<u32> {
        let free = (self.next..METERS_MAX).chain(0..self.next).find(|number| !self.used.contains(number))?;
        self.used.insert(free);
        self.next = (free + 1) % METERS_MAX;
        Some(free)
    }
}

/// Refuses what the datapath cannot do.
fn check(gm: &MeterMod) -> Result<(), Error> {
    let bad = |why| Err(Error::BadMeter { meter: gm.meter, why });
    if !(1..=METER_MAX).contains(&gm.meter) {
        return bad("expected a number of 1 to 4294901760; meters of messages to controllers are not built yet");
    }
    if gm.config.bands.is_empty() || gm.config.bands.len() > BANDS_MAX {
        return Err(Error::MeterBands(gm.meter));
    }
    match gm.config.bands.iter().all(|band| band.kind == BandKind::Drop) {
        true => Ok(()),
        false => Err(Error::MeterBand(gm.meter)),
    }
}

impl Ofproto {
    /// Says where meters are made. To be called once, before the first meter.
    pub fn set_meters(&self, store: Arc<dyn MeterStore>) {
        self.writer().meters.store = Some(store);
    }

    /// Makes one change of the meters. Rules that use a meter which goes, go with it.
    pub fn meter_mod(&self, bridge: &str, mm: &MeterMod, now_ms: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = {
            let state = self.state();
            state.bridges[position(&state, bridge)?].id
        };
        if mm.command == MeterCommand::Delete {
            let version = self.state().tables_version + 1;
            let mut pending = Pending::new(version, now_ms);
            let gone = self.change(&mut writer, |state| {
                let Some(bridge) = state.bridge_mut(id) else { return Vec::new() };
                let gone: Vec<u32> =
                    bridge.meters.keys().copied().filter(|m| mm.meter == METER_ALL || *m == mm.meter).collect();
                gone.iter().for_each(|meter| pending.hide_users(bridge, *meter));
                gone.iter().filter_map(|meter| bridge.meters.remove(meter)).map(|meter| meter.datapath).collect()
            });
            self.commit(&mut writer, id, pending);
            for meter in gone {
                writer.meters.used.remove(&meter);
                writer.meters.store.iter().for_each(|store| store.remove(meter));
            }
            return Ok(());
        }
        check(mm)?;
        let old = self.state().bridge(id).and_then(|bridge| bridge.meters.get(&mm.meter).cloned());
        let (datapath, created_ms) = match (mm.command, old) {
            (MeterCommand::Add, Some(_)) => return Err(Error::MeterExists(mm.meter)),
            (MeterCommand::Add, None) => (writer.meters.draw().ok_or(Error::TooManyMeters)?, now_ms),
            (_, Some(old)) => (old.datapath, old.created_ms),
            (_, None) => return Err(Error::NoMeter(mm.meter)),
        };
        writer.meters.store.iter().for_each(|store| store.set(datapath, &mm.config, now_ms));
        self.change(&mut writer, |state| {
            let meter = Meter { datapath, config: mm.config.clone(), created_ms };
            state.bridge_mut(id).map(|bridge| bridge.meters.insert(mm.meter, meter))
        });
        self.announce(&Changes::of_bridge(id));
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
