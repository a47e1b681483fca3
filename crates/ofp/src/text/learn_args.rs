//! Reading the arguments of `learn`.

use super::action_args::{arrow, for_each_pair, move_bits, table, writable};
use crate::OfAction;
use crate::ofpact::{Learn, LearnSource, LearnSpec, LearnTarget};
use sluice_flow::text::{Pair, Piece, SyntaxError, number, value};
use sluice_flow::{DEFAULT_PRIORITY, Field, PortNames};

pub(super) fn learn(text: Piece<'_>, ports: &PortNames) -> Result<OfAction, SyntaxError> {
    let mut learn = Learn {
        table: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: DEFAULT_PRIORITY,
        cookie: 0,
        send_flow_rem: false,
        delete_learned: false,
        limit: 0,
        result_dst: None,
        specs: Vec::new(),
    };
    for_each_pair(text, |pair| {
        let value = pair.value;
        match pair.key.text {
            "table" => learn.table = table(value)?,
            "priority" => learn.priority = number::u16(value)?,
            "idle_timeout" => learn.idle_timeout = number::u16(value)?,
            "hard_timeout" => learn.hard_timeout = number::u16(value)?,
            "fin_idle_timeout" => learn.fin_idle_timeout = number::u16(value)?,
            "fin_hard_timeout" => learn.fin_hard_timeout = number::u16(value)?,
            "cookie" => learn.cookie = number::u64(value)?,
            "send_flow_rem" => learn.send_flow_rem = true,
            "delete_learned" => learn.delete_learned = true,
            "limit" => learn.limit = number::u32(value)?,
            "result_dst" => match writable(value)? {
                bit if bit.n_bits == 1 => learn.result_dst = Some(bit),
                _ => return Err(value.error("a single bit")),
            },
            _ => learn_spec(pair, ports, &mut learn.specs)?,
        }
        Ok(())
    })?;
    Ok(OfAction::Learn(Box::new(learn)))
}

fn learn_spec(pair: &Pair<'_>, ports: &PortNames, specs: &mut Vec<LearnSpec>) -> Result<(), SyntaxError> {
    let value = pair.value;
    let spec = match pair.key.text {
        "load" => {
            let (source, name) = arrow(value)?;
            match number::wide_integer(source, Field::MAX_BITS) {
                Ok(_) => {
                    let dst = writable(name)?;
                    let constant = number::wide_integer(source, dst.n_bits)?.into();
                    LearnSpec { source: LearnSource::Value(constant), target: LearnTarget::Load(dst) }
                }
                Err(_) => match move_bits(value)? {
                    OfAction::Move { src, dst } => {
                        LearnSpec { source: LearnSource::Field(src), target: LearnTarget::Load(dst) }
                    }
                    _ => return Err(value.error("VALUE->FIELD[BITS] or FIELD[BITS]->FIELD[BITS]")),
                },
            }
        }
        "output" => {
            let source = LearnSource::Field(value::parse_subfield(value)?);
            LearnSpec { source, target: LearnTarget::Output }
        }
        _ => learn_match(pair, ports)?,
    };
    specs.push(spec);
    Ok(())
}

/// `FIELD[BITS]`, `FIELD[BITS]=FIELD[BITS]` or `FIELD=VALUE`.
fn learn_match(pair: &Pair<'_>, ports: &PortNames) -> Result<LearnSpec, SyntaxError> {
    let value = pair.value;
    let dst = value::parse_subfield(pair.key)
        .map_err(|e| SyntaxError { expected: format!("a setting of learn, load, output, or {}", e.expected), ..e })?;
    let source = if value.is_empty() {
        LearnSource::Field(dst)
    } else if let Ok(src) = value::parse_subfield(value) {
        if src.n_bits != dst.n_bits {
            return Err(value.conflict(
                format!("{} bits to be matched with {}", src.n_bits, dst.n_bits),
                "as many bits behind the = as before it",
            ));
        }
        LearnSource::Field(src)
    } else if dst.is_whole() {
        let field = dst.field.field();
        match value::parse_wide(field, value, ports)? {
            (number, mask) if field.is_wide() && mask == field.all_ones_wide() => LearnSource::Value(number.into()),
            _ => LearnSource::Value(value::parse_exact(field, value, ports)?.into()),
        }
    } else {
        LearnSource::Value(number::wide_integer(value, dst.n_bits)?.into())
    };
    Ok(LearnSpec { source, target: LearnTarget::Match(dst) })
}
