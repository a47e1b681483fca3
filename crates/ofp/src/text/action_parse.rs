//! Reading actions.

use super::action_args::{self, arrow, outputs_to, writable};
use super::action_check::{self, Placed};
use super::{ct_args, declared, learn_args};
use crate::OfAction;
use crate::consistency::Within;
use crate::ofpact::{ActionId, ActionType, SetOption, Text};
use sluice_flow::field::{FieldId, ones};
use sluice_flow::text::{Delimiter, Pair, Piece, SyntaxError, number, value};
use sluice_flow::{Field, OfPort, PortNames, SubField};

/// The greatest depth of actions within actions. Open vSwitch's parser has a limit of 100.
const MAX_DEPTH: usize = 64;

/// Reads lists of actions.
#[derive(Clone, Copy)]
pub(crate) struct ActionReader<'p> {
    pub ports: &'p PortNames,
    depth: usize,
}

impl<'p> ActionReader<'p> {
    pub fn new(ports: &'p PortNames) -> Self {
        ActionReader { ports, depth: 0 }
    }

    /// Reads a list of actions and checks that they may stand together.
    pub fn list(self, text: Piece<'_>, within: Within) -> Result<Vec<OfAction>, SyntaxError> {
        let placed = self.placed_list(text, within)?;
        Ok(placed.into_iter().map(|p| p.action).collect())
    }

    /// Reads a list of actions with their places.
    pub fn placed_list<'a>(self, text: Piece<'a>, within: Within) -> Result<Vec<Placed<'a>>, SyntaxError> {
        let mut placed = Vec::new();
        let mut drop = None;
        let mut rest = text;
        while let Some(pair) = rest.next_pair()? {
            if pair.key.text.eq_ignore_ascii_case("drop") && pair.delimiter == Delimiter::None {
                drop = Some(pair.key);
                continue;
            }
            self.one(&pair, &mut placed)?;
        }
        if let (Some(drop), false) = (drop, placed.is_empty()) {
            return Err(drop.conflict("drop beside other actions", "drop alone, or actions without it"));
        }
        action_check::order(&placed, within)?;
        Ok(placed)
    }

    /// Reads a list within an action.
    pub fn nested(self, text: Piece<'_>, within: Within) -> Result<Vec<OfAction>, SyntaxError> {
        if self.depth >= MAX_DEPTH {
            return Err(text.conflict(
                format!("actions nested {MAX_DEPTH} deep"),
                format!("less than {MAX_DEPTH} actions within one another"),
            ));
        }
        ActionReader { depth: self.depth + 1, ..self }.list(text, within)
    }

    /// Reads one action; a load of more than 64 bits becomes several.
    fn one<'a>(self, pair: &Pair<'a>, to: &mut Vec<Placed<'a>>) -> Result<(), SyntaxError> {
        let name = pair.key.text.to_ascii_lowercase();
        let row = ActionType::by_name(&name);
        if row.is_none_or(|row| row.text != Text::Arrow) {
            sluice_flow::text::expect_no_tail(pair)?;
        }
        let action = match row {
            Some(ActionType { id: ActionId::Load, .. }) => {
                to.extend(load(pair.value)?.into_iter().map(|action| Placed { action, at: pair.key }));
                return Ok(());
            }
            Some(row) => match row.make.filter(|_| row.text != Text::Own) {
                Some(make) => declared::read(row, make, pair)?,
                None => self.own(row.id, pair)?,
            },
            None if name == "apply_actions" => {
                return Err(pair.key.error("the actions themselves, since applying them is the default"));
            }
            None => self.port(pair)?,
        };
        // On the wire, writing nothing to the action set is saying nothing.
        if action != OfAction::WriteActions(Vec::new()) {
            to.push(Placed { action, at: pair.key });
        }
        Ok(())
    }

    /// Reads an action whose arguments are read by code of its own.
    fn own(self, id: ActionId, pair: &Pair<'_>) -> Result<OfAction, SyntaxError> {
        let value = pair.value;
        match id {
            ActionId::Output => self.output(pair),
            ActionId::Controller => action_args::controller(value),
            ActionId::Enqueue => self.enqueue(value),
            ActionId::Bundle => action_args::bundle(value, self.ports, false),
            ActionId::BundleLoad => action_args::bundle(value, self.ports, true),
            ActionId::Resubmit => action_args::resubmit(value, self.ports),
            ActionId::DecTtl => action_args::dec_ttl(value),
            ActionId::FinTimeout => action_args::fin_timeout(value),
            ActionId::SetField => self.set_field(value),
            ActionId::Move => action_args::move_bits(value),
            ActionId::DeleteField => delete_field(value),
            ActionId::Encap => action_args::encap(value),
            ActionId::Decap => action_args::decap(value),
            ActionId::Learn => learn_args::learn(value, self.ports),
            ActionId::Conjunction => action_args::conjunction(value),
            ActionId::Multipath => action_args::multipath(value),
            ActionId::Note => number::hex_bytes(value).map(note),
            ActionId::Sample => action_args::sample(value, self.ports),
            ActionId::Clone => self.nested(value, Within::Clone).map(OfAction::Clone),
            ActionId::Conntrack => ct_args::conntrack(value, self),
            ActionId::Nat => ct_args::nat(value).map(OfAction::Nat),
            ActionId::WriteActions => self.nested(value, Within::WriteActions).map(OfAction::WriteActions),
            ActionId::WriteMetadata => action_args::write_metadata(value),
            _ => Err(pair.key.error("an action that text can say")),
        }
    }

    /// A port's number or name alone.
    fn port(self, pair: &Pair<'_>) -> Result<OfAction, SyntaxError> {
        match self.ports.parse(pair.key.text) {
            Some(port) if pair.delimiter == Delimiter::None => {
                Ok(OfAction::Output { port: outputs_to(pair.key, port)?, max_len: 0 })
            }
            _ => Err(pair.key.error("an action, or the number or name of a port")),
        }
    }

    fn output(self, pair: &Pair<'_>) -> Result<OfAction, SyntaxError> {
        let value = pair.value;
        if pair.key.text.eq_ignore_ascii_case("in_port") {
            return Ok(OfAction::Output { port: OfPort::IN_PORT, max_len: 0 });
        }
        if value.text.contains("port") && value.text.contains("max_len") {
            return action_args::output_trunc(value, self.ports);
        }
        if let Some(port) = self.ports.parse(value.text) {
            let max_len = if port == OfPort::CONTROLLER { u16::MAX } else { 0 };
            return Ok(OfAction::Output { port: outputs_to(value, port)?, max_len });
        }
        match value::parse_subfield(value) {
            Ok(src) => Ok(OfAction::OutputReg { src, max_len: u16::MAX }),
            Err(_) => Err(value.error("a port number or name, or a field that holds a port number")),
        }
    }

    fn enqueue(self, value: Piece<'_>) -> Result<OfAction, SyntaxError> {
        let wrong = || value.error("PORT:QUEUE");
        // A port's name may have a q of its own.
        let end = value.text.rfind([':', ',']).or_else(|| value.text.rfind('q')).ok_or_else(wrong)?;
        let (port, queue) = value.split_at(end);
        let number = self.ports.parse_piece(port)?;
        if !number.is_ordinary() && number != OfPort::IN_PORT && number != OfPort::LOCAL {
            return Err(port.error("an ordinary port, IN_PORT or LOCAL"));
        }
        Ok(OfAction::Enqueue { port: number, queue: number::u32(queue.split_at(1).1)? })
    }

    fn set_field(self, text: Piece<'_>) -> Result<OfAction, SyntaxError> {
        let (value, name) = arrow(text)?;
        let field = value::parse_field_name(name)?;
        if !field.writable {
            return Err(name.error("a field that can be written"));
        }
        if field.is_wide() {
            let (number, mask) = value::parse_wide(field, value, self.ports)?;
            let set = SetOption { field: field.id, value: number.and(&mask), mask };
            return Ok(OfAction::SetOption(Box::new(set)));
        }
        let (number, mask) = value::parse(field, value, self.ports)?;
        if field.id == FieldId::DlVlan && number > 0xfff {
            return Err(value.error(number::expected(12)));
        }
        Ok(OfAction::SetField { field: field.id, value: number & mask, mask })
    }
}

/// Only options of a tunnel can be deleted: packets have all other fields or none of their layer.
fn delete_field(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let field = Field::by_name(text.text).filter(|field| field.id.tunnel_option().is_some());
    field
        .map(|field| OfAction::DeleteField(field.id))
        .ok_or_else(|| text.error("a tunnel option (tun_metadata0 to 63)"))
}

fn load(text: Piece<'_>) -> Result<Vec<OfAction>, SyntaxError> {
    let (value, name) = arrow(text)?;
    let dst = writable(name)?;
    let value = number::wide_integer(value, dst.n_bits)?;
    let pieces = (0..dst.n_bits).step_by(64).map(|start| {
        let part = SubField { start: dst.start + start, n_bits: (dst.n_bits - start).min(64), ..dst };
        OfAction::Load { dst: part, value: value.shr(start).low() & ones(part.n_bits) }
    });
    Ok(pieces.collect())
}

/// Notes are as long as they are on the wire: six bytes, or eight more each time.
fn note(mut bytes: Vec<u8>) -> OfAction {
    bytes.resize(bytes.len().saturating_sub(6).next_multiple_of(8) + 6, 0);
    OfAction::Note(bytes)
}
