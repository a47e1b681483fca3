//! Nicira's larger actions: dec_ttl with ids, multipath, bundle, learn, controller, sample.

use super::{destination, put_bits_and_field, read_bits, source};
use crate::Error;
use crate::oxm::{Numbering, field_header, put_field_header, read_nxm_field};
use crate::property;
use crate::wire::{Reader, Writer};
use sluice_flow::{Field, FieldId, OfPort, SubField, Wide};
use sluice_ofp::OfAction;
use sluice_ofp::ofpact::{
    Bundle, BundleAlgorithm, ControllerAction, HashFields, Learn, LearnSource, LearnSpec, LearnTarget, Multipath,
    MultipathAlgorithm, PacketInReason, Sample, SampleDirection,
};

/// The id that names `in_port` in bundles: `NXM_OF_IN_PORT`.
const MEMBER_PORTS: u32 = 0x0000_0002;

pub(super) fn read_dec_ttl(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let n = usize::from(r.u16()?);
    r.zeros(4)?;
    let mut ids = r.part(r.len())?;
    if 2 * n > ids.len() {
        return Err(Error::ActionBadLen);
    }
    let controllers = (0..n).map(|_| ids.u16()).collect::<Result<_, _>>()?;
    Ok(OfAction::DecTtl { controllers, listed: true })
}

fn hash_fields(number: u16) -> Result<HashFields, Error> {
    use HashFields::{EthSrc, NwDst, NwSrc, SymmetricL3, SymmetricL3L4, SymmetricL3L4Udp, SymmetricL4};
    let known = [EthSrc, SymmetricL4, SymmetricL3L4, SymmetricL3L4Udp, NwSrc, NwDst, SymmetricL3];
    known.into_iter().find(|f| *f as u16 == number).ok_or(Error::ActionBadArgument)
}

pub(super) fn read_multipath(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    use MultipathAlgorithm::{HashThreshold, Hrw, IterHash, ModuloN};
    let (fields, basis) = (hash_fields(r.u16()?)?, r.u16()?);
    r.skip(2)?;
    let number = r.u16()?;
    let known = [ModuloN, HashThreshold, Hrw, IterHash];
    let algorithm = known.into_iter().find(|a| *a as u16 == number).ok_or(Error::ActionBadArgument)?;
    let (max_link, arg) = (r.u16()?, r.u32()?);
    r.skip(2)?;
    let (start, n_bits) = read_bits(r)?;
    let dst = destination(read_nxm_field(r)?, start, n_bits)?;
    // Every link's number must fit.
    if n_bits < 16 && max_link >> n_bits != 0 {
        return Err(Error::ActionBadArgument);
    }
    Ok(OfAction::Multipath(Box::new(Multipath { fields, basis, algorithm, max_link, arg, dst })))
}

pub(super) fn put_multipath(m: &Multipath, w: &mut Writer) {
    w.u16(m.fields as u16);
    w.u16(m.basis);
    w.zeros(2);
    w.u16(m.algorithm as u16);
    w.u16(m.max_link);
    w.u32(m.arg);
    w.zeros(2);
    put_bits_and_field(m.dst, w);
}

pub(super) fn read_bundle(loads: bool, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let algorithm = match r.u16()? {
        0 => BundleAlgorithm::ActiveBackup,
        1 => BundleAlgorithm::Hrw,
        _ => return Err(Error::ActionBadArgument),
    };
    let (fields, basis, kind, n) = (hash_fields(r.u16()?)?, r.u16()?, r.u32()?, usize::from(r.u16()?));
    if kind != MEMBER_PORTS {
        return Err(Error::ActionBadArgument);
    }
    let dst = if loads {
        let (start, n_bits) = read_bits(r)?;
        let dst = destination(read_nxm_field(r)?, start, n_bits)?;
        if n_bits < 16 {
            return Err(Error::ActionBadArgument);
        }
        Some(dst)
    } else {
        r.zeros(6).map_err(|_| Error::ActionBadArgument)?;
        None
    };
    r.zeros(4).map_err(|_| Error::ActionBadArgument)?;
    let mut ports = r.part(r.len())?;
    let members = (0..n).map(|_| ports.u16().map(OfPort)).collect::<Result<_, _>>()?;
    Ok(OfAction::Bundle(Box::new(Bundle { fields, basis, algorithm, dst, members })))
}

pub(super) fn put_bundle(b: &Bundle, w: &mut Writer) {
    w.u16(b.algorithm as u16);
    w.u16(b.fields as u16);
    w.u16(b.basis);
    w.u32(MEMBER_PORTS);
    w.u16(b.members.len() as u16);
    match b.dst {
        Some(dst) => put_bits_and_field(dst, w),
        None => w.zeros(6),
    }
    w.zeros(4);
    b.members.iter().for_each(|port| w.u16(port.0));
}

const LEARN_SEND_FLOW_REM: u16 = 1;
const LEARN_DELETE_LEARNED: u16 = 2;
const LEARN_WRITE_RESULT: u16 = 4;

/// Parts of the header of a piece of a learned flow.
const LEARN_BITS: u16 = 0x3ff;
const LEARN_IMMEDIATE: u16 = 1 << 13;
const LEARN_TO: u16 = 3 << 11;
const LEARN_TO_MATCH: u16 = 0;
const LEARN_TO_LOAD: u16 = 1 << 11;
const LEARN_TO_OUTPUT: u16 = 2 << 11;

pub(super) fn read_learn(second: bool, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let (idle_timeout, hard_timeout, priority, cookie) = (r.u16()?, r.u16()?, r.u16()?, r.u64()?);
    let (flags, table) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (fin_idle_timeout, fin_hard_timeout) = (r.u16()?, r.u16()?);
    let known = LEARN_SEND_FLOW_REM | LEARN_DELETE_LEARNED | if second { LEARN_WRITE_RESULT } else { 0 };
    if flags & !known != 0 || table == 255 {
        return Err(Error::ActionBadArgument);
    }
    let (mut limit, mut result_dst) = (0, None);
    if second {
        limit = r.u32()?;
        let start = r.u16()?;
        r.zeros(2).map_err(|_| Error::ActionBadArgument)?;
        if flags & LEARN_WRITE_RESULT != 0 {
            result_dst = Some(destination(field_header(r)?, start.into(), 1)?);
        }
    }
    let specs = read_learn_specs(r)?;
    Ok(OfAction::Learn(Box::new(Learn {
        table,
        idle_timeout,
        hard_timeout,
        fin_idle_timeout,
        fin_hard_timeout,
        priority,
        cookie,
        send_flow_rem: flags & LEARN_SEND_FLOW_REM != 0,
        delete_learned: flags & LEARN_DELETE_LEARNED != 0,
        limit,
        result_dst,
        specs,
    })))
}

fn read_learn_specs(r: &mut Reader<'_>) -> Result<Vec<LearnSpec>, Error> {
    let mut specs = Vec::new();
    while !r.is_empty() {
        let header = r.u16()?;
        if header == 0 {
            break;
        }
        let n_bits = u32::from(header & LEARN_BITS);
        let to = header & LEARN_TO;
        let immediate = header & LEARN_IMMEDIATE != 0;
        if header >> 14 != 0 || to == LEARN_TO || to == LEARN_TO_OUTPUT && immediate {
            return Err(Error::ActionBadArgument);
        }
        let from = if immediate {
            let n_bytes = 2 * n_bits.div_ceil(16) as usize;
            if n_bytes > Field::MAX_BITS as usize / 8 {
                return Err(Error::ActionBadArgument);
            }
            LearnSource::Value(Wide::from_be(r.take(n_bytes)?).into())
        } else {
            let field = read_nxm_field(r)?;
            LearnSource::Field(source(field, r.u16()?.into(), n_bits)?)
        };
        let target = if to == LEARN_TO_OUTPUT {
            LearnTarget::Output
        } else {
            let field = read_nxm_field(r)?;
            let start = r.u16()?.into();
            match to {
                LEARN_TO_MATCH => LearnTarget::Match(source(field, start, n_bits)?),
                _ => LearnTarget::Load(destination(field, start, n_bits)?),
            }
        };
        specs.push(LearnSpec { source: from, target });
    }
    r.zeros(r.len()).map_err(|_| Error::ActionBadArgument)?;
    Ok(specs)
}

/// Whether `learn` needs its second form.
pub(super) fn needs_learn2(learn: &Learn) -> bool {
    learn.limit != 0 || learn.result_dst.is_some()
}

pub(super) fn put_learn(learn: &Learn, w: &mut Writer) {
    let flag = |set: bool, bit: u16| if set { bit } else { 0 };
    w.u16(learn.idle_timeout);
    w.u16(learn.hard_timeout);
    w.u16(learn.priority);
    w.u64(learn.cookie);
    w.u16(
        flag(learn.send_flow_rem, LEARN_SEND_FLOW_REM)
            | flag(learn.delete_learned, LEARN_DELETE_LEARNED)
            | flag(learn.result_dst.is_some(), LEARN_WRITE_RESULT),
    );
    w.u8(learn.table);
    w.zeros(1);
    w.u16(learn.fin_idle_timeout);
    w.u16(learn.fin_hard_timeout);
    if needs_learn2(learn) {
        w.u32(learn.limit);
        w.u16(learn.result_dst.map_or(0, |dst| dst.start as u16));
        w.zeros(2);
        if let Some(dst) = learn.result_dst {
            put_field_header(dst.field, Numbering::Nxm, w);
        }
    }
    learn.specs.iter().for_each(|spec| put_learn_spec(spec, w));
}

fn put_learn_spec(spec: &LearnSpec, w: &mut Writer) {
    let field = |sub: SubField, w: &mut Writer| {
        put_field_header(sub.field, Numbering::Nxm, w);
        w.u16(sub.start as u16);
    };
    let (to, dst) = match spec.target {
        LearnTarget::Match(dst) => (LEARN_TO_MATCH, Some(dst)),
        LearnTarget::Load(dst) => (LEARN_TO_LOAD, Some(dst)),
        LearnTarget::Output => (LEARN_TO_OUTPUT, None),
    };
    match &spec.source {
        LearnSource::Field(src) => {
            w.u16(to | src.n_bits as u16);
            field(*src, w);
        }
        LearnSource::Value(value) => {
            let n_bits = dst.map_or(16, |dst| dst.n_bits);
            w.u16(to | LEARN_IMMEDIATE | n_bits as u16);
            w.put(&value.wide().to_be(2 * n_bits.div_ceil(16) as usize));
        }
    }
    if let Some(dst) = dst {
        field(dst, w);
    }
}

fn reason(number: u8) -> Result<PacketInReason, Error> {
    crate::packet_in::reason(number).ok_or(Error::ActionBadArgument)
}

pub(super) fn read_controller(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let (max_len, controller_id, why) = (r.u16()?, r.u16()?, r.u8()?);
    r.skip(1)?;
    let base = ControllerAction::default();
    Ok(OfAction::Controller(Box::new(ControllerAction { max_len, controller_id, reason: reason(why)?, ..base })))
}

/// Properties of the second form of `controller`.
mod controller2 {
    pub const MAX_LEN: u16 = 0;
    pub const CONTROLLER_ID: u16 = 1;
    pub const REASON: u16 = 2;
    pub const USERDATA: u16 = 3;
    pub const PAUSE: u16 = 4;
    pub const METER_ID: u16 = 5;
}

pub(super) fn read_controller2(r: &mut Reader<'_>) -> Result<OfAction, Error> {
    r.zeros(6)?;
    let mut c = ControllerAction::default();
    property::each(r.part(r.len())?, |kind, body| {
        match kind {
            controller2::MAX_LEN => c.max_len = property::u16(body)?,
            controller2::CONTROLLER_ID => c.controller_id = property::u16(body)?,
            controller2::REASON => c.reason = reason(property::u8(body)?)?,
            controller2::USERDATA => c.userdata = body.take(body.len())?.to_vec(),
            controller2::PAUSE => c.pause = true,
            controller2::METER_ID => c.meter_id = Some(property::u32(body)?),
            _ => return Err(property::unknown(kind, body)),
        }
        Ok(())
    })?;
    Ok(OfAction::Controller(Box::new(c)))
}

/// Whether `controller` needs its second form.
pub(super) fn needs_controller2(c: &ControllerAction) -> bool {
    !c.userdata.is_empty() || c.pause || c.meter_id.is_some()
}

pub(super) fn put_controller(c: &ControllerAction, w: &mut Writer) {
    if !needs_controller2(c) {
        w.u16(c.max_len);
        w.u16(c.controller_id);
        w.u8(c.reason as u8);
        return w.zeros(1);
    }
    w.zeros(6);
    if c.max_len != u16::MAX {
        property::put_u16(controller2::MAX_LEN, c.max_len, w);
    }
    if c.controller_id != 0 {
        property::put_u16(controller2::CONTROLLER_ID, c.controller_id, w);
    }
    if c.reason != PacketInReason::Action {
        property::put_u8(controller2::REASON, c.reason as u8, w);
    }
    if !c.userdata.is_empty() {
        property::put(controller2::USERDATA, &c.userdata, w);
    }
    if c.pause {
        property::put(controller2::PAUSE, &[], w);
    }
    if let Some(meter) = c.meter_id {
        property::put(controller2::METER_ID, &meter.to_be_bytes(), w);
    }
}

pub(super) fn read_sample(format: u8, r: &mut Reader<'_>) -> Result<OfAction, Error> {
    let (probability, collector_set_id, obs_domain_id, obs_point_id) = (r.u16()?, r.u32()?, r.u32()?, r.u32()?);
    let (mut sampling_port, mut direction) = (OfPort::NONE, SampleDirection::Unsaid);
    if format != 0 {
        sampling_port = OfPort(r.u16()?);
        let number = r.u8()?;
        r.zeros(5)?;
        direction = match number {
            1 if format == 2 => SampleDirection::Ingress,
            2 if format == 2 => SampleDirection::Egress,
            0 => SampleDirection::Unsaid,
            _ if format == 1 => SampleDirection::Unsaid,
            _ => return Err(Error::ActionBadArgument),
        };
    }
    if probability == 0 {
        return Err(Error::ActionBadArgument);
    }
    let sample = Sample { probability, collector_set_id, obs_domain_id, obs_point_id, sampling_port, direction };
    Ok(OfAction::Sample(Box::new(sample)))
}

/// The shortest format of `sample` that has all its arguments.
pub(super) fn sample_format(s: &Sample) -> u8 {
    match (s.direction, s.sampling_port) {
        (SampleDirection::Unsaid, OfPort::NONE) => 0,
        (SampleDirection::Unsaid, _) => 1,
        _ => 2,
    }
}

pub(super) fn put_sample(s: &Sample, w: &mut Writer) {
    w.u16(s.probability);
    w.u32(s.collector_set_id);
    w.u32(s.obs_domain_id);
    w.u32(s.obs_point_id);
    if sample_format(s) != 0 {
        w.u16(s.sampling_port.0);
        w.u8(match s.direction {
            SampleDirection::Unsaid => 0,
            SampleDirection::Ingress => 1,
            SampleDirection::Egress => 2,
        });
        w.zeros(5);
    }
}

/// Whether `output_reg` needs the format with an experimenter's id for a field.
pub(super) fn needs_long_header(field: FieldId) -> bool {
    let mut w = Writer::default();
    put_field_header(field, Numbering::Nxm, &mut w);
    w.len() != 4
}
