//! Writing actions.

use super::action_args::{BUNDLE_ALGORITHMS, ENCAP_HEADERS, HASH_FIELDS, MULTIPATH_ALGORITHMS, REASONS};
use super::declared;
use crate::OfAction;
use crate::ofpact::{
    Bundle, Conntrack, ConntrackZone, ControllerAction, Learn, LearnSource, LearnSpec, LearnTarget, Multipath, Nat,
    NatAddresses, NatKind, NshProperty, Sample, SampleDirection,
};
use sluice_flow::text::number::{Ip6, show_hex};
use sluice_flow::text::value;
use sluice_flow::{DEFAULT_PRIORITY, OfPort, PortNames};
use std::fmt::{self, Formatter, Result, Write};

/// Actions as text; see [`OfAction::display_list`].
#[derive(Clone, Copy, Debug)]
pub struct DisplayActions<'a> {
    actions: &'a [OfAction],
    ports: &'a PortNames,
}

impl OfAction {
    /// A list of actions as `dump-flows` writes it behind `actions=`, ports by the names they have.
    pub fn display_list<'a>(actions: &'a [OfAction], ports: &'a PortNames) -> DisplayActions<'a> {
        DisplayActions { actions, ports }
    }
}

/// One action, ports by number.
impl fmt::Display for OfAction {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        action(f, self, &PortNames::NONE)
    }
}

impl fmt::Display for DisplayActions<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.actions.is_empty() {
            return f.write_str("drop");
        }
        let mut items = Items::new(f);
        self.actions.iter().try_for_each(|a| {
            items.comma()?;
            action(items.f, a, self.ports)
        })
    }
}

/// Items with commas between them.
struct Items<'a, 'f> {
    f: &'a mut Formatter<'f>,
    first: bool,
}

impl<'a, 'f> Items<'a, 'f> {
    fn new(f: &'a mut Formatter<'f>) -> Self {
        Items { f, first: true }
    }

    fn comma(&mut self) -> Result {
        if std::mem::take(&mut self.first) { Ok(()) } else { self.f.write_char(',') }
    }

    /// Writes an item if it is to be there.
    fn item(&mut self, wanted: bool, text: fmt::Arguments<'_>) -> Result {
        if !wanted {
            return Ok(());
        }
        self.comma()?;
        self.f.write_fmt(text)
    }
}

fn action(f: &mut Formatter<'_>, a: &OfAction, ports: &PortNames) -> Result {
    match a {
        OfAction::Output { port, max_len } => output(f, *port, *max_len, ports),
        OfAction::OutputTrunc { port, max_len } => {
            write!(f, "output(port={},max_len={max_len})", ports.display(*port))
        }
        OfAction::OutputReg { src, .. } => write!(f, "output:{src}"),
        OfAction::Controller(c) => controller(f, c),
        OfAction::Enqueue { port, queue } => write!(f, "enqueue:{}:{queue}", ports.display(*port)),
        OfAction::Bundle(b) => bundle(f, b, ports),
        OfAction::Resubmit { port, table, with_ct_orig } => resubmit(f, *port, *table, *with_ct_orig, ports),
        OfAction::SetField { field, value, mask } => {
            let field = field.field();
            write!(f, "set_field:{}->{}", value::show(field, *value, *mask, ports), field.name)
        }
        OfAction::SetOption(set) => {
            let field = set.field.field();
            write!(f, "set_field:{}->{}", value::show_wide(field, set.value, set.mask, ports), field.name)
        }
        OfAction::Load { dst, value } => write!(f, "load:{}->{dst}", show_hex(*value)),
        OfAction::Move { src, dst } => write!(f, "move:{src}->{dst}"),
        OfAction::DecTtl { controllers, listed } => dec_ttl(f, controllers, *listed),
        OfAction::FinTimeout { idle, hard } => fin_timeout(f, *idle, *hard),
        OfAction::Learn(learn) => learn_text(f, learn, ports),
        OfAction::Conjunction { id, clause, n_clauses } => write!(f, "conjunction({id},{}/{n_clauses})", clause + 1),
        OfAction::Multipath(m) => multipath(f, m),
        OfAction::Note(bytes) => {
            f.write_str("note:")?;
            dotted_hex(f, bytes)
        }
        OfAction::Sample(s) => sample(f, s, ports),
        OfAction::Clone(actions) => write!(f, "clone({})", OfAction::display_list(actions, ports)),
        OfAction::Conntrack(ct) => conntrack(f, ct, ports),
        OfAction::Nat(nat) => nat_text(f, nat),
        OfAction::DeleteField(field) => write!(f, "delete_field:{}", field.field().name),
        OfAction::Encap { packet_type, properties } => encap(f, *packet_type, properties),
        OfAction::Decap { packet_type } => decap(f, *packet_type),
        OfAction::WriteActions(actions) => write!(f, "write_actions({})", OfAction::display_list(actions, ports)),
        OfAction::WriteMetadata { metadata, mask } => write_metadata(f, *metadata, *mask),
        _ => {
            let (id, values) = a.parts();
            declared::show(f, id.row(), &values)
        }
    }
}

fn dec_ttl(f: &mut Formatter<'_>, controllers: &[u16], listed: bool) -> Result {
    f.write_str("dec_ttl")?;
    let ids = || controllers.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    if listed { write!(f, "({})", ids()) } else { Ok(()) }
}

fn fin_timeout(f: &mut Formatter<'_>, idle: u16, hard: u16) -> Result {
    f.write_str("fin_timeout(")?;
    let mut items = Items::new(f);
    items.item(idle != 0, format_args!("idle_timeout={idle}"))?;
    items.item(hard != 0, format_args!("hard_timeout={hard}"))?;
    f.write_char(')')
}

fn decap(f: &mut Formatter<'_>, packet_type: Option<u32>) -> Result {
    match packet_type {
        None => f.write_str("decap()"),
        Some(t) => write!(f, "decap(packet_type(ns={},type={}))", t >> 16, show_hex(u128::from(t & 0xffff))),
    }
}

fn write_metadata(f: &mut Formatter<'_>, metadata: u64, mask: u64) -> Result {
    write!(f, "write_metadata:{}", show_hex(u128::from(metadata)))?;
    if mask == u64::MAX { Ok(()) } else { write!(f, "/{}", show_hex(u128::from(mask))) }
}

fn output(f: &mut Formatter<'_>, port: OfPort, max_len: u16, ports: &PortNames) -> Result {
    if port.is_ordinary() {
        f.write_str("output:")?;
    }
    write!(f, "{}", ports.display(port))?;
    if port == OfPort::CONTROLLER { write!(f, ":{max_len}") } else { Ok(()) }
}

/// The name of a value in a list of names.
fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, v)| *v == value).map_or("", |(name, _)| name)
}

fn dotted_hex(f: &mut Formatter<'_>, bytes: &[u8]) -> Result {
    bytes.iter().enumerate().try_for_each(|(i, b)| write!(f, "{}{b:02x}", if i == 0 { "" } else { "." }))
}

fn controller(f: &mut Formatter<'_>, c: &ControllerAction) -> Result {
    let default = ControllerAction::default();
    f.write_str("controller(")?;
    let mut items = Items::new(f);
    items.item(c.reason != default.reason, format_args!("reason={}", name_of(&REASONS, c.reason)))?;
    items.item(c.max_len != default.max_len, format_args!("max_len={}", c.max_len))?;
    items.item(c.controller_id != 0, format_args!("id={}", c.controller_id))?;
    let userdata = fmt::from_fn(|f| dotted_hex(f, &c.userdata));
    items.item(!c.userdata.is_empty(), format_args!("userdata={userdata}"))?;
    items.item(c.pause, format_args!("pause"))?;
    items.item(c.meter_id.is_some(), format_args!("meter_id={}", c.meter_id.unwrap_or(0)))?;
    f.write_char(')')
}

fn resubmit(f: &mut Formatter<'_>, port: OfPort, table: Option<u8>, ct: bool, ports: &PortNames) -> Result {
    let named =
        |f: &mut Formatter<'_>| if port == OfPort::IN_PORT { Ok(()) } else { write!(f, "{}", ports.display(port)) };
    if table.is_none() && port != OfPort::IN_PORT && !ct {
        f.write_str("resubmit:")?;
        return named(f);
    }
    f.write_str("resubmit(")?;
    named(f)?;
    f.write_char(',')?;
    if let Some(table) = table {
        write!(f, "{table}")?;
    }
    f.write_str(if ct { ",ct)" } else { ")" })
}

fn bundle(f: &mut Formatter<'_>, b: &Bundle, ports: &PortNames) -> Result {
    let name = if b.dst.is_some() { "bundle_load" } else { "bundle" };
    let (fields, algorithm) = (name_of(&HASH_FIELDS, b.fields), name_of(&BUNDLE_ALGORITHMS, b.algorithm));
    write!(f, "{name}({fields},{},{algorithm},ofport,", b.basis)?;
    if let Some(dst) = b.dst {
        write!(f, "{dst},")?;
    }
    f.write_str("members:")?;
    let mut items = Items::new(f);
    b.members.iter().try_for_each(|m| items.item(true, format_args!("{}", ports.display(*m))))?;
    f.write_char(')')
}

fn multipath(f: &mut Formatter<'_>, m: &Multipath) -> Result {
    let (fields, algorithm) = (name_of(&HASH_FIELDS, m.fields), name_of(&MULTIPATH_ALGORITHMS, m.algorithm));
    let n_links = u32::from(m.max_link) + 1;
    write!(f, "multipath({fields},{},{algorithm},{n_links},{},{})", m.basis, m.arg, m.dst)
}

fn sample(f: &mut Formatter<'_>, s: &Sample, ports: &PortNames) -> Result {
    write!(f, "sample(probability={},collector_set_id={}", s.probability, s.collector_set_id)?;
    write!(f, ",obs_domain_id={},obs_point_id={}", s.obs_domain_id, s.obs_point_id)?;
    if s.sampling_port != OfPort::NONE {
        write!(f, ",sampling_port={}", ports.display(s.sampling_port))?;
    }
    f.write_str(match s.direction {
        SampleDirection::Unsaid => ")",
        SampleDirection::Ingress => ",ingress)",
        SampleDirection::Egress => ",egress)",
    })
}

fn learn_text(f: &mut Formatter<'_>, l: &Learn, ports: &PortNames) -> Result {
    f.write_str("learn(")?;
    let mut items = Items::new(f);
    items.item(true, format_args!("table={}", l.table))?;
    items.item(l.idle_timeout != 0, format_args!("idle_timeout={}", l.idle_timeout))?;
    items.item(l.hard_timeout != 0, format_args!("hard_timeout={}", l.hard_timeout))?;
    items.item(l.fin_idle_timeout != 0, format_args!("fin_idle_timeout={}", l.fin_idle_timeout))?;
    items.item(l.fin_hard_timeout != 0, format_args!("fin_hard_timeout={}", l.fin_hard_timeout))?;
    items.item(l.priority != DEFAULT_PRIORITY, format_args!("priority={}", l.priority))?;
    items.item(l.send_flow_rem, format_args!("send_flow_rem"))?;
    items.item(l.delete_learned, format_args!("delete_learned"))?;
    items.item(l.cookie != 0, format_args!("cookie={:#x}", l.cookie))?;
    items.item(l.limit != 0, format_args!("limit={}", l.limit))?;
    if let Some(dst) = l.result_dst {
        items.item(true, format_args!("result_dst={dst}"))?;
    }
    l.specs.iter().try_for_each(|spec| {
        items.comma()?;
        learn_spec(items.f, spec, ports)
    })?;
    f.write_char(')')
}

fn learn_spec(f: &mut Formatter<'_>, spec: &LearnSpec, ports: &PortNames) -> Result {
    match (&spec.source, spec.target) {
        (LearnSource::Value(value), LearnTarget::Match(dst)) if dst.is_whole() => {
            let field = dst.field.field();
            write!(f, "{}={}", field.name, value::show_wide(field, value.wide(), field.all_ones_wide(), ports))
        }
        (LearnSource::Value(value), LearnTarget::Match(dst)) => write!(f, "{dst}={}", value.wide()),
        (LearnSource::Field(src), LearnTarget::Match(dst)) if *src == dst => write!(f, "{dst}"),
        (LearnSource::Field(src), LearnTarget::Match(dst)) => write!(f, "{dst}={src}"),
        (LearnSource::Value(value), LearnTarget::Load(dst)) => write!(f, "load:{}->{dst}", value.wide()),
        (LearnSource::Field(src), LearnTarget::Load(dst)) => write!(f, "load:{src}->{dst}"),
        (LearnSource::Field(src), LearnTarget::Output) => write!(f, "output:{src}"),
        // Text cannot say this, so nothing reads it back.
        (LearnSource::Value(value), LearnTarget::Output) => write!(f, "output:{}", value.low()),
    }
}

fn encap(f: &mut Formatter<'_>, packet_type: u32, properties: &[NshProperty]) -> Result {
    write!(f, "encap({}", name_of(&ENCAP_HEADERS, packet_type))?;
    if !properties.is_empty() {
        f.write_char('(')?;
        let mut items = Items::new(f);
        properties.iter().try_for_each(|property| match property {
            NshProperty::MdType(kind) => items.item(true, format_args!("md_type={kind}")),
            NshProperty::Tlv { class, tlv_type, value } => {
                let hex = fmt::from_fn(|f| hex_number(f, value));
                items.item(true, format_args!("tlv({class:#06x},{tlv_type},{hex})"))
            }
        })?;
        f.write_char(')')?;
    }
    f.write_char(')')
}

/// Bytes as one hexadecimal number.
fn hex_number(f: &mut Formatter<'_>, bytes: &[u8]) -> Result {
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    match digits.trim_start_matches('0') {
        "" => f.write_str("0"),
        digits => write!(f, "0x{digits}"),
    }
}

fn conntrack(f: &mut Formatter<'_>, ct: &Conntrack, ports: &PortNames) -> Result {
    f.write_str("ct(")?;
    let mut items = Items::new(f);
    items.item(ct.commit, format_args!("commit"))?;
    items.item(ct.force, format_args!("force"))?;
    items.item(ct.table.is_some(), format_args!("table={}", ct.table.unwrap_or(0)))?;
    match ct.zone {
        ConntrackZone::Number(zone) => items.item(zone != 0, format_args!("zone={zone}"))?,
        ConntrackZone::Field(zone) => items.item(true, format_args!("zone={zone}"))?,
    }
    let exec = match ct.actions.split_first() {
        Some((nat @ OfAction::Nat(_), rest)) => {
            items.item(true, format_args!("{nat}"))?;
            rest
        }
        _ => &ct.actions[..],
    };
    items.item(!exec.is_empty(), format_args!("exec({})", OfAction::display_list(exec, ports)))?;
    match ct.alg {
        0 => {}
        21 => items.item(true, format_args!("alg=ftp"))?,
        69 => items.item(true, format_args!("alg=tftp"))?,
        port => items.item(true, format_args!("alg={port}"))?,
    }
    f.write_char(')')
}

fn nat_text(f: &mut Formatter<'_>, nat: &Nat) -> Result {
    f.write_str("nat")?;
    let Some(kind) = nat.kind else { return Ok(()) };
    f.write_str(if kind == NatKind::Src { "(src" } else { "(dst" })?;
    if let Some(addresses) = nat.addresses {
        let (first, last) = nat.ports;
        f.write_char('=')?;
        match addresses {
            NatAddresses::V4(a, b) if a == b => write!(f, "{a}")?,
            NatAddresses::V4(a, b) => write!(f, "{a}-{b}")?,
            NatAddresses::V6(a, b) => {
                let bracketed = |a| {
                    fmt::from_fn(move |f| match first {
                        0 => write!(f, "{}", Ip6(a)),
                        _ => write!(f, "[{}]", Ip6(a)),
                    })
                };
                write!(f, "{}", bracketed(a))?;
                if a != b {
                    write!(f, "-{}", bracketed(b))?;
                }
            }
        }
        if first != 0 {
            write!(f, ":{first}")?;
            if last != first {
                write!(f, "-{last}")?;
            }
        }
        for (flag, name) in [(nat.persistent, ",persistent"), (nat.hash, ",hash"), (nat.random, ",random")] {
            f.write_str(if flag { name } else { "" })?;
        }
    }
    f.write_char(')')
}
