//! Reading and writing meters as `ovs-ofctl add-meter` and `dump-meters` do.

use crate::{
    Band, BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterConfig, MeterMod,
};
use sluice_flow::text::{FlowTextError, Piece, SyntaxError, number};
use std::fmt::{self, Formatter, Result as Printed};

/// What parts words from each other.
const GAPS: &[char] = &['=', ',', ' ', '\t', '\r', '\n'];

impl MeterMod {
    /// Reads one change of the meters: `meter=ID kbps|pktps [burst] [stats] bands=type=drop rate=N [burst_size=N] …`;
    /// a deletion is `meter=ID`, or nothing for all.
    pub fn parse(text: &str, command: MeterCommand) -> Result<MeterMod, FlowTextError> {
        read(Piece::new(text), command).map_err(|e| e.located(text))
    }
}

/// The number of a meter, or one of the names that some have.
fn meter_id(text: Piece<'_>) -> Result<u32, SyntaxError> {
    match text.text {
        "all" => Ok(METER_ALL),
        "controller" => Ok(METER_CONTROLLER),
        "slowpath" => Ok(METER_SLOWPATH),
        _ => match number::u32(text)? {
            id @ 1..=METER_MAX => Ok(id),
            _ => Err(text.error(format!("a meter's number, 1 to {METER_MAX}, or controller or slowpath"))),
        },
    }
}

fn read(text: Piece<'_>, command: MeterCommand) -> Result<MeterMod, SyntaxError> {
    let mut config = MeterConfig::default();
    let deletes = command == MeterCommand::Delete;
    let end = text.split_at(text.text.len()).1;
    let (head, bands) = match text.split_once("band") {
        Some(_) if deletes => return Err(text.conflict("bands", "only which meter to delete")),
        // `bands=` and `band=` both will do.
        Some((head, rest)) => match rest.split_once("=") {
            Some((_, bands)) => (head, Some(bands)),
            None => return Err(rest.error("bands=type=…")),
        },
        None => (text, None),
    };
    let (mut meter, mut has_unit) = (None, false);
    let words = head.words(GAPS);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.text {
            "meter" => meter = Some(meter_id(words.next().ok_or_else(|| end.error("meter=ID"))?)?),
            "kbps" if !deletes => has_unit = true,
            "pktps" if !deletes => (has_unit, config.packets) = (true, true),
            "burst" if !deletes => config.burst = true,
            "stats" if !deletes => config.stats = true,
            _ if deletes => return Err(word.error("meter=ID")),
            _ => return Err(word.error("meter=ID, kbps, pktps, burst, stats or bands=…")),
        }
    }
    let meter = match meter {
        Some(meter) => meter,
        None if deletes && text.trim().is_empty() => METER_ALL,
        None => return Err(end.error("meter=ID")),
    };
    if !deletes {
        if !has_unit {
            return Err(head.error("kbps or pktps"));
        }
        let bands = bands.ok_or_else(|| end.error("bands=type=drop rate=N"))?;
        config.bands = read_bands(bands, config.burst)?;
    }
    Ok(MeterMod { command, meter, config })
}

fn read_bands(text: Piece<'_>, with_burst: bool) -> Result<Vec<Band>, SyntaxError> {
    let mut bands: Vec<Band> = Vec::new();
    let mut words = text.words(GAPS).into_iter();
    while let Some(key) = words.next() {
        let value = words.next().ok_or_else(|| key.error(format!("{}=VALUE", key.text)))?;
        if key.text == "type" {
            let kind = match value.text {
                "drop" => BandKind::Drop,
                "dscp_remark" => BandKind::DscpRemark(0),
                _ => return Err(value.error("drop or dscp_remark")),
            };
            bands.push(Band { kind, rate: 0, burst: 0 });
            continue;
        }
        let Some(band) = bands.last_mut() else { return Err(key.error("type=drop or type=dscp_remark first")) };
        match (key.text, &mut band.kind) {
            ("rate", _) => band.rate = number::u32(value)?,
            ("burst_size", _) if with_burst => band.burst = number::u32(value)?,
            ("burst_size", _) => return Err(key.conflict("burst_size", "burst_size with the word burst only")),
            ("prec_level", BandKind::DscpRemark(level)) => *level = number::u8(value)?,
            _ => return Err(key.error("type, rate, burst_size, or, to remark, prec_level")),
        }
    }
    let wrong = |band: &Band| match band.kind {
        _ if band.rate == 0 => Some("a rate in each band"),
        _ if with_burst && band.burst == 0 => Some("a burst_size in each band, since burst was said"),
        BandKind::DscpRemark(0) => Some("a prec_level in each band that remarks"),
        _ => None,
    };
    match bands.iter().find_map(wrong) {
        Some(expected) => Err(text.error(expected)),
        None if bands.is_empty() => Err(text.error("type=drop rate=N")),
        None => Ok(bands),
    }
}

/// As `dump-meters` prints it behind the meter's number, a line a band.
impl fmt::Display for MeterConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> Printed {
        f.write_str(if self.packets { "pktps" } else { "kbps" })?;
        f.write_str(if self.burst { " burst" } else { "" })?;
        f.write_str(if self.stats { " stats" } else { "" })?;
        f.write_str(" bands=")?;
        for band in &self.bands {
            let kind = if band.kind == BandKind::Drop { "drop" } else { "dscp_remark" };
            write!(f, "\ntype={kind} rate={}", band.rate)?;
            if self.burst {
                write!(f, " burst_size={}", band.burst)?;
            }
            if let BandKind::DscpRemark(level) = band.kind {
                write!(f, " prec_level={level}")?;
            }
        }
        Ok(())
    }
}
