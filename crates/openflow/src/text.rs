//! Messages as text, for the log: their names, and the bodies of those that are about flows and bundles.
//! Source: Open vSwitch, lib/ofp-print.c and the names of ofp-msgs.h.

use crate::message::connection::{BUNDLE_ATOMIC, BUNDLE_ORDERED, BundleAdd, BundleControl, BundleStep};
use crate::message::flow_mod::FlowModMessage;
use crate::message::flow_stats::{FlowRequest, FlowStats};
use crate::message::stats::{StatsReply, StatsRequest};
use crate::{Format, Message, Version, VersionBitmap};
use sluice_flow::PortNames;
use sluice_ofp::text::{FlowLine, FlowLineStats};
use sluice_ofp::{FlowCommand, OfAction};
use std::fmt::{self, Formatter};

/// The priority of a flow that names none: it is not shown.
const DEFAULT_PRIORITY: u16 = 0x8000;

/// A message's bytes, shown as `ovs-ofctl` shows messages.
pub struct MessageText<'a> {
    bytes: &'a [u8],
    table_in_command: bool,
}

impl<'a> MessageText<'a> {
    /// A whole message. `table_in_command` is that of [`Message::read`].
    pub fn new(bytes: &'a [u8], table_in_command: bool) -> Self {
        MessageText { bytes, table_in_command }
    }
}

impl fmt::Display for MessageText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (version, xid, message) = match Message::read(self.bytes, self.table_in_command) {
            Ok(read) => read,
            Err(error) => return write!(f, "***decode error: {}***", error.symbol()),
        };
        write!(f, "{}", message.log_name(version))?;
        if version > Version::V10 {
            write!(f, " (OF1.{})", version as u8 - 1)?;
        }
        write!(f, " (xid=0x{xid:x}):")?;
        self.body(&message, version, f)
    }
}

impl MessageText<'_> {
    fn body(&self, message: &Message, version: Version, f: &mut Formatter<'_>) -> fmt::Result {
        match message {
            Message::Hello(versions) => {
                let versions = VersionBitmap(versions.unwrap_or(VersionBitmap::up_to(version as u8).0));
                let named: Vec<String> =
                    (0..32u32).filter(|n| versions.0 >> n & 1 != 0).map(|n| format!("{n:#04x}")).collect();
                write!(f, "\n version bitmap: {}", named.join(", "))
            }
            Message::Error(code, _) => match crate::Error::from_code(*code, version) {
                Some(error) => write!(f, " {}", error.symbol()),
                None => Ok(()),
            },
            Message::EchoRequest(data) | Message::EchoReply(data) => write!(f, " {} bytes of payload", data.len()),
            Message::SetFlowFormat(Format::Standard) => f.write_str(" format=openflow10"),
            Message::SetFlowFormat(Format::Nicira) => f.write_str(" format=nxm"),
            Message::FlowMod(m) => flow_mod(m, version, f),
            Message::BundleControl(m) => bundle_control(m, f),
            Message::BundleAdd(BundleAdd { id, flags, message }) => {
                write!(f, "\n bundle_id={} flags=", Hex(*id))?;
                bundle_flags(*flags, f)?;
                write!(f, "\n{}", MessageText::new(message, self.table_in_command))
            }
            Message::StatsRequest(StatsRequest::Flows(wanted) | StatsRequest::Aggregate(wanted), _) => {
                flow_request(wanted, f)
            }
            Message::StatsReply(StatsReply::Flows(_, flows), more) => {
                f.write_str(if *more { " flags=[more]" } else { "" })?;
                flows.iter().try_for_each(|flow| write!(f, "\n {}", line(flow).display(&PortNames::NONE)))
            }
            _ => Ok(()),
        }
    }
}

/// A number as C's `%#x` shows it: zero has no prefix.
struct Hex(u32);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

fn bundle_control(m: &BundleControl, f: &mut Formatter<'_>) -> fmt::Result {
    let step = match m.step {
        BundleStep::Open => "OPEN",
        BundleStep::Close => "CLOSE",
        BundleStep::Commit => "COMMIT",
        BundleStep::Discard => "DISCARD",
    };
    let way = if m.is_reply { "REPLY" } else { "REQUEST" };
    write!(f, "\n bundle_id={} type={step}_{way} flags=", Hex(m.id))?;
    bundle_flags(m.flags, f)
}

fn bundle_flags(flags: u16, f: &mut Formatter<'_>) -> fmt::Result {
    let mut shown = Vec::new();
    for (bit, name) in [(BUNDLE_ATOMIC, "atomic"), (BUNDLE_ORDERED, "ordered")] {
        shown.extend((flags & bit != 0).then(|| name.to_owned()));
    }
    let rest = flags & !(BUNDLE_ATOMIC | BUNDLE_ORDERED);
    shown.extend((rest != 0).then(|| format!("{rest:#x}")));
    f.write_str(&if shown.is_empty() { "0".to_owned() } else { shown.join(" ") })
}

fn flow_mod(m: &FlowModMessage, version: Version, f: &mut Formatter<'_>) -> fmt::Result {
    let flow = &m.flow;
    let command = match flow.command {
        FlowCommand::Add => "ADD",
        FlowCommand::Modify => "MOD",
        FlowCommand::ModifyStrict => "MOD_STRICT",
        FlowCommand::Delete => "DEL",
        FlowCommand::DeleteStrict => "DEL_STRICT",
    };
    write!(f, " {command}")?;
    let has_table = version > Version::V10 || m.table_in_command;
    let all = if matches!(flow.command, FlowCommand::Delete | FlowCommand::DeleteStrict) { 255 } else { 0 };
    match flow.table.unwrap_or(all) {
        table if has_table && table != 0 => write!(f, " table:{table} ")?,
        _ => f.write_str(" ")?,
    }
    let matches = flow.matches.display(&PortNames::NONE, flow.priority).to_string();
    if !matches.is_empty() {
        write!(f, "{matches} ")?;
    }
    if let Some(cookie) = flow.new_cookie.filter(|cookie| *cookie != 0) {
        write!(f, "cookie:{cookie:#x} ")?;
    }
    if flow.cookie_mask != 0 {
        write!(f, "cookie:{:#x}/{:#x} ", flow.cookie, flow.cookie_mask)?;
    }
    let numbers = [("idle", flow.idle_timeout), ("hard", flow.hard_timeout), ("importance", flow.importance)];
    numbers.iter().filter(|(_, n)| *n != 0).try_for_each(|(name, n)| write!(f, "{name}:{n} "))?;
    if let Some(buffer) = m.buffer_id {
        write!(f, "buf:{buffer:#x} ")?;
    }
    if let Some(port) = flow.out_port {
        write!(f, "out_port:{} ", PortNames::NONE.display(port))?;
    }
    let mut flags = flow.flags;
    // Before OpenFlow 1.2 there is no such flag.
    flags.reset_counts &= version > Version::V11;
    write!(f, "{flags}actions={}", OfAction::display_list(&flow.actions, &PortNames::NONE))
}

fn flow_request(wanted: &FlowRequest, f: &mut Formatter<'_>) -> fmt::Result {
    if let Some(table) = wanted.table {
        write!(f, " table={table}")?;
    }
    if let Some(port) = wanted.out_port {
        write!(f, " out_port={}", PortNames::NONE.display(port))?;
    }
    let matches = wanted.matches.display(&PortNames::NONE, DEFAULT_PRIORITY).to_string();
    if matches.is_empty() { Ok(()) } else { write!(f, " {matches}") }
}

fn line(flow: &FlowStats) -> FlowLine<'_> {
    FlowLine {
        table: flow.table,
        cookie: flow.cookie,
        priority: flow.priority.into(),
        idle_timeout: flow.idle_timeout,
        hard_timeout: flow.hard_timeout,
        importance: flow.importance,
        flags: flow.flags,
        matches: &flow.matches,
        actions: &flow.actions,
        stats: Some(FlowLineStats {
            duration_ms: flow.duration_ns / 1_000_000,
            packets: flow.packets,
            bytes: flow.bytes,
            idle_age: flow.idle_age.map(u64::from),
            hard_age: flow.hard_age.map(u64::from),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::Match;
    use sluice_ofp::FlowMod;

    fn text(message: &Message, version: Version) -> String {
        MessageText::new(&message.write(version, 0x1a), false).to_string()
    }

    fn flow_mod(command: FlowCommand, flow: &str) -> Message {
        let flow = FlowMod::parse(flow, command, &PortNames::NONE).unwrap();
        Message::FlowMod(FlowModMessage {
            flow: Box::new(flow),
            buffer_id: None,
            format: Format::Standard,
            table_in_command: false,
        })
    }

    #[test]
    fn messages_are_shown_as_ovs_ofctl_shows_them() {
        let hello = Message::Hello(Some(0x12));
        assert_eq!(text(&hello, Version::V13), "OFPT_HELLO (OF1.3) (xid=0x1a):\n version bitmap: 0x01, 0x04");
        assert_eq!(text(&Message::BarrierRequest, Version::V10), "OFPT_BARRIER_REQUEST (xid=0x1a):");
        let format = Message::SetFlowFormat(Format::Nicira);
        assert_eq!(text(&format, Version::V10), "NXT_SET_FLOW_FORMAT (xid=0x1a): format=nxm");
        let delete = flow_mod(FlowCommand::Delete, "");
        assert_eq!(text(&delete, Version::V10), "OFPT_FLOW_MOD (xid=0x1a): DEL actions=drop");
        assert_eq!(text(&delete, Version::V14), "OFPT_FLOW_MOD (OF1.4) (xid=0x1a): DEL table:255 actions=drop");
        let add = flow_mod(FlowCommand::Add, "priority=7,in_port=2,idle_timeout=50,actions=output:1");
        let want = "OFPT_FLOW_MOD (OF1.4) (xid=0x1a): ADD priority=7,in_port=2 idle:50 actions=output:1";
        assert_eq!(text(&add, Version::V14), want);
    }

    #[test]
    fn a_bundle_s_message_is_shown_within() {
        let control = BundleControl { id: 0, step: BundleStep::Commit, is_reply: true, flags: 0 };
        let want = "ONFT_BUNDLE_CONTROL (OF1.3) (xid=0x1a):\n bundle_id=0 type=COMMIT_REPLY flags=0";
        assert_eq!(text(&Message::BundleControl(control), Version::V13), want);
        let message = Message::BarrierRequest.write(Version::V14, 2);
        let add = Message::BundleAdd(BundleAdd { id: 1, flags: 3, message });
        let want = "OFPT_BUNDLE_ADD_MESSAGE (OF1.4) (xid=0x1a):\n bundle_id=0x1 flags=atomic ordered\n\
                    OFPT_BARRIER_REQUEST (OF1.4) (xid=0x2):";
        assert_eq!(text(&add, Version::V14), want);
    }

    #[test]
    fn statistics_have_the_names_of_their_formats() {
        let wanted = |format| FlowRequest {
            format,
            matches: Match::ANY,
            table: None,
            out_port: None,
            out_group: None,
            cookie: 0,
            cookie_mask: 0,
        };
        let request = |format| Message::StatsRequest(StatsRequest::Flows(Box::new(wanted(format))), false);
        assert_eq!(text(&request(Format::Nicira), Version::V10), "NXST_FLOW request (xid=0x1a):");
        assert_eq!(text(&request(Format::Standard), Version::V13), "OFPST_FLOW request (OF1.3) (xid=0x1a):");
        let reply = Message::StatsReply(StatsReply::Flows(Format::Nicira, Vec::new()), false);
        assert_eq!(text(&reply, Version::V10), "NXST_FLOW reply (xid=0x1a):");
    }
}
