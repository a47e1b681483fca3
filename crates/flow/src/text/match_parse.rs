//! Reading matches.

use super::number::wide_integer;
use super::piece::{Delimiter, Pair, Piece};
use super::value;
use super::{FlowTextError, SyntaxError};
use crate::field::{Field, FieldId, Prereq};
use crate::{Match, PortNames, Wide, layout};

/// A match being read: what it says so far, and where each field stands.
pub struct MatchReader<'a> {
    /// What it says so far.
    pub matches: Match,
    seen: Vec<(&'static Field, Piece<'a>)>,
    ports: &'a PortNames,
}

impl<'a> MatchReader<'a> {
    /// A match that says nothing yet.
    pub fn new(ports: &'a PortNames) -> Self {
        MatchReader { matches: Match::ANY, seen: Vec::new(), ports }
    }

    /// Reads a pair if it belongs to a match; `false` if it does not.
    pub fn read(&mut self, pair: &Pair<'a>) -> Result<bool, SyntaxError> {
        let key = pair.key;
        if pair.delimiter == Delimiter::None && (key.text == "eth" || self.matches.set_shorthand(key.text)) {
            // A later dl_type may take away what the shorthand's protocol needs.
            if self.matches.field(FieldId::IpProto).1 != 0 {
                self.seen.push((FieldId::IpProto.field(), key));
            }
            return Ok(true);
        }
        if key.text.contains('[') {
            self.read_subfield(pair)?;
            return Ok(true);
        }
        // OXM names are for actions and subfields; a match takes only plain names.
        let Some(field) = Field::by_name(key.text).filter(|f| f.name == key.text || f.alias == Some(key.text)) else {
            return Ok(false);
        };
        let (value, mask) = match pair.value.is_empty() {
            true if pair.delimiter == Delimiter::None => (Wide::ZERO, Wide::ZERO),
            _ => value::parse_wide(field, pair.value, self.ports)?,
        };
        self.set(field, value, mask, key);
        Ok(true)
    }

    fn read_subfield(&mut self, pair: &Pair<'a>) -> Result<(), SyntaxError> {
        let sub = value::parse_subfield(pair.key)?;
        let field = sub.field.field();
        if !field.maskable && !sub.is_whole() {
            return Err(pair.key.error(format!("all bits of {}, since it cannot have a mask", field.name)));
        }
        let bits = wide_integer(pair.value, sub.n_bits)?;
        self.set(field, bits.shl(sub.start), sub.mask_wide(), pair.key);
        Ok(())
    }

    fn set(&mut self, field: &'static Field, value: Wide, mask: Wide, at: Piece<'a>) {
        // An option may be matched for being there.
        if mask.is_zero() && field.id.tunnel_option().is_none() {
            self.matches.clear(field.id);
            self.seen.retain(|(seen, _)| seen.id != field.id);
            return;
        }
        match field.id {
            FieldId::DlVlan if value == 0xffff.into() => self.matches.set(FieldId::VlanTci, 0),
            // Ethernet packets, as every flow means that does not say otherwise.
            FieldId::PacketType if value.is_zero() => self.matches.clear(FieldId::PacketType),
            _ => self.matches.set_masked_wide(field.id, value, mask),
        }
        self.seen.push((field, at));
    }

    /// The match, once all is read and every field's prerequisite is met.
    pub fn finish(self) -> Result<Match, SyntaxError> {
        for (field, at) in &self.seen {
            self.check(field, *at)?;
        }
        Ok(self.matches)
    }

    fn check(&self, field: &Field, at: Piece<'_>) -> Result<(), SyntaxError> {
        let is_icmp = self.matches.satisfies(Prereq::Icmpv4) || self.matches.satisfies(Prereq::Icmpv6);
        let is_port = matches!(field.place.span, layout::TP_SRC | layout::TP_DST) && field.n_bits == 16;
        let (value, mask) = self.matches.field(field.id);
        if is_icmp && is_port && (value > 0xff || mask != 0xffff) {
            return Err(at.conflict(format!("{} as an ICMP type or code", at.text), "8 bits without a mask"));
        }
        let is_later = self.matches.key.number(layout::NW_FRAG) & 2 != 0;
        match self.matches.allows(field) {
            true => Ok(()),
            false if is_later && matches!(field.prereq, Prereq::Tcp | Prereq::Udp | Prereq::Sctp) => {
                let found = format!("{} in a match on fragments that are not the first", at.text);
                Err(at.conflict(found, "only fields before the transport header, which later fragments lack"))
            }
            false => Err(at.conflict(
                format!("{} in a match that does not say {}", at.text, field.prereq.remedy()),
                format!("{} beside it", field.prereq.remedy()),
            )),
        }
    }
}

impl Match {
    /// Reads a match: `tcp,tp_dst=80`.
    pub fn parse(text: &str, ports: &PortNames) -> Result<Match, FlowTextError> {
        parse(Piece::new(text), ports).map_err(|e| e.located(text))
    }
}

/// Reads a whole match.
fn parse(text: Piece<'_>, ports: &PortNames) -> Result<Match, SyntaxError> {
    let mut reader = MatchReader::new(ports);
    let mut rest = text;
    while let Some(pair) = rest.next_pair()? {
        expect_no_tail(&pair)?;
        if !reader.read(&pair)? {
            return Err(pair.key.error("a field to match"));
        }
    }
    reader.finish()
}

/// Refuses what stands right behind a closing parenthesis.
pub fn expect_no_tail(pair: &Pair<'_>) -> Result<(), SyntaxError> {
    if pair.tail.is_empty() { Ok(()) } else { Err(pair.tail.error("a comma or the end")) }
}
