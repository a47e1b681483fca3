//! FTP: announcements of data connections on a control connection.
//!
//! `PORT` and the reply 227 (IPv4), `EPRT` and the reply to `EPSV` (IPv6), each in one segment, at its beginning. The
//! announced connection is expected. With NAT the address in the text is replaced by the translated one, which may make
//! the segment longer or shorter and so shifts all later sequence numbers. Other replies, and announcements that are
//! split over segments, are ignored. Source of the rules: OVS lib/conntrack.c.

use crate::conn_key::ConnKey;
use crate::connection::{Connection, Skew};
use crate::expectation::Expectations;
use crate::key_fields::ct_state;
use crate::track::CtContext;
use sluice_packet::headers::{TCP_SIZE, be32, ip_proto};
use sluice_packet::{Packet, checksum};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of a segment that are read.
const MESSAGE_MAX: usize = 128;

/// What a control message announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Announcement {
    /// The announcing end opened the control connection.
    is_active: bool,
    /// The announced address, and where in the message it is. `EPSV` has none.
    addr: Option<([u8; 16], usize, usize)>,
    port: u16,
}

/// The part of a segment's text that is read, without the last byte, which ends the line.
fn message(l4: &[u8]) -> &[u8] {
    let size = l4.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    let text = l4.get(size.max(TCP_SIZE)..).unwrap_or(&[]);
    let text = &text[..text.len().min(MESSAGE_MAX).saturating_sub(1)];
    text.split(|byte| *byte == 0).next().unwrap_or(&[])
}

fn begins_with(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// The text in the reply to `EPSV`.
const EPSV_ANSWER: &[u8] = b"extended passive";

/// Whether a segment looks like an announcement, well-formed or not.
pub(crate) fn is_announcement(l4: &[u8], v6: bool) -> bool {
    let text = message(l4);
    if v6 {
        let is_answer = || text.windows(EPSV_ANSWER.len()).any(|words| words.eq_ignore_ascii_case(EPSV_ANSWER));
        begins_with(text, b"EPRT") || is_answer()
    } else {
        begins_with(text, b"PORT") || begins_with(text, b"227")
    }
}

/// The number at the start of `text`, and the rest.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((value, &text[digits..]))
}

/// The first position at or after `from` for which `is_it` holds.
fn position(text: &[u8], from: usize, is_it: impl Fn(&u8) -> bool) -> Option<usize> {
    Some(from + text.get(from..)?.iter().position(is_it)?)
}

/// `PORT 10,0,0,1,4,1` or `227 … (10,0,0,1,4,1)`.
fn parse_v4(text: &[u8]) -> Option<Announcement> {
    let is_active = begins_with(text, b"PORT");
    let space = position(text, if is_active { 4 } else { 3 }, |byte| *byte == b' ')?;
    let start = position(text, space, u8::is_ascii_digit)?;
    let commas = text[start..].iter().enumerate().filter(|(_, byte)| **byte == b',');
    let end = start + commas.map(|(at, _)| at).nth(3)?;
    let dotted: String =
        text[start..end].iter().map(|byte| if *byte == b',' { '.' } else { char::from(*byte) }).collect();
    let (high, rest) = number(&text[end + 1..])?;
    let (low, _) = number(rest.get(1..)?)?;
    let port = u16::from_be_bytes([u8::try_from(high).ok()?, u8::try_from(low).ok()?]);
    let mut addr = [0; 16];
    addr[..4].copy_from_slice(&dotted.parse::<Ipv4Addr>().ok()?.octets());
    Some(Announcement { is_active, addr: Some((addr, start, end)), port })
}

/// `EPRT |2|fc00::1|1025|` or `229 … (|||1025|)`.
fn parse_v6(text: &[u8]) -> Option<Announcement> {
    if !begins_with(text, b"EPRT") {
        let open = position(text, 0, |byte| *byte == b'(')?;
        let (port, _) = number(&text[position(text, open, u8::is_ascii_digit)?..])?;
        return Some(Announcement { is_active: false, addr: None, port: u16::try_from(port).ok()? });
    }
    let family = position(text, 4, u8::is_ascii_digit)?;
    if text[family] != b'2' || text.get(family + 1).is_none_or(u8::is_ascii_digit) {
        return None;
    }
    let start = family + 2;
    let end = position(text, start, |byte| !byte.is_ascii_hexdigit() && !matches!(byte, b':' | b'.'))?;
    let addr: Ipv6Addr = std::str::from_utf8(&text[start..end]).ok()?.parse().ok()?;
    let (port, _) = number(&text[end + 1..])?;
    let port = u16::try_from(port).ok()?;
    Some(Announcement { is_active: true, addr: Some((addr.octets(), start, end)), port })
}

/// Reads a packet of a control connection: adds an expectation for an announcement, and translates it.
pub(crate) fn read(ctx: &mut CtContext<'_>, connection: &Connection, expectations: &Expectations) {
    let v6 = ctx.conn_key.tuple.v6;
    if !is_announcement(ctx.l4(), v6) {
        return;
    }
    let text = message(ctx.l4());
    let announced = if v6 { parse_v6(text) } else { parse_v4(text) };
    let Some(announced) = announced.filter(|it| is_own_address(it, connection)) else {
        ctx.set_state(ctx.state() | ct_state::TRACKED | ct_state::INVALID);
        return;
    };
    let reply = ctx.state() & ct_state::REPLY != 0;
    let skew = connection.skew();
    expectations.add(announced.port, connection, reply, connection.marks());
    if ctx.request.nat.is_none() {
        return;
    }
    let grown = translate(ctx, connection, &announced);
    shift(ctx.packet, &ctx.conn_key, skew, ctx.reply);
    if grown != 0 {
        connection.set_skew(Skew { bytes: skew.bytes.wrapping_add(grown), in_reply: ctx.reply });
    }
}

/// The announcing end's address before and after NAT.
fn addresses(announced: &Announcement, connection: &Connection) -> [[u8; 16]; 2] {
    let (original, reply) = (&connection.original, &connection.reply);
    if announced.is_active { [original.src.addr, reply.dst.addr] } else { [reply.src.addr, original.dst.addr] }
}

/// Whether the announced address is the announcing end's own. Another address would let a third host in.
fn is_own_address(announced: &Announcement, connection: &Connection) -> bool {
    announced.addr.is_none_or(|(addr, ..)| addresses(announced, connection).contains(&addr))
}

/// Writes the translated address into the text. Returns by how much the segment grew.
fn translate(ctx: &mut CtContext<'_>, connection: &Connection, announced: &Announcement) -> i32 {
    let Some((_, start, end)) = announced.addr else { return 0 };
    let [_, addr] = addresses(announced, connection);
    let text = match ctx.conn_key.tuple.v6 {
        true => Ipv6Addr::from(addr).to_string(),
        false => format!("{},{},{},{}", addr[0], addr[1], addr[2], addr[3]),
    };
    let header = usize::from(ctx.l4()[12] >> 4) * 4;
    let at = ctx.conn_key.l4 + header + start;
    match replace(ctx.packet, at, end - start, text.as_bytes()) {
        Some(grown) => {
            ctx.conn_key.end = ctx.conn_key.end.saturating_add_signed(grown as isize);
            set_length(ctx.packet.bytes_mut(), &ctx.conn_key, grown);
            grown
        }
        None => 0,
    }
}

/// Replaces `size` bytes at `at`. The bytes in front move, since that is where a frame has room; `None` if there is too
/// little. Returns by how much the packet grew.
fn replace(packet: &mut Packet, at: usize, size: usize, new: &[u8]) -> Option<i32> {
    let grown = new.len() as i32 - size as i32;
    if grown > 0 {
        let by = grown as usize;
        packet.frame.push_front(u16::try_from(by).ok()?).ok()?;
        packet.bytes_mut().copy_within(by..by + at, 0);
    } else if grown < 0 {
        let by = grown.unsigned_abs() as usize;
        packet.bytes_mut().copy_within(..at, by);
        packet.frame.trim_front(u16::try_from(by).ok()?);
    }
    packet.bytes_mut()[at..at + new.len()].copy_from_slice(new);
    Some(grown)
}

/// Writes the new length into the IP header.
fn set_length(bytes: &mut [u8], conn_key: &ConnKey, grown: i32) {
    let l3 = conn_key.l3;
    let at = if conn_key.tuple.v6 { l3 + 4 } else { l3 + 2 };
    let old = [bytes[at], bytes[at + 1]];
    let new = u16::from_be_bytes(old).wrapping_add_signed(grown as i16).to_be_bytes();
    bytes[at..at + 2].copy_from_slice(&new);
    if !conn_key.tuple.v6 {
        let sum = u16::from_be_bytes([bytes[l3 + 10], bytes[l3 + 11]]);
        bytes[l3 + 10..l3 + 12].copy_from_slice(&checksum::update(sum, &old, &new).to_be_bytes());
    }
}

/// Shifts the sequence number of packets in the skewed direction, or the acknowledgement of packets against it, and
/// recomputes the TCP checksum.
pub(crate) fn shift(packet: &mut Packet, conn_key: &ConnKey, skew: Skew, reply: bool) {
    let bytes = packet.bytes_mut();
    let (at, by) = if reply == skew.in_reply { (conn_key.l4 + 4, skew.bytes) } else { (conn_key.l4 + 8, -skew.bytes) };
    if let Some(old) = be32(bytes, at) {
        bytes[at..at + 4].copy_from_slice(&old.wrapping_add_signed(by).to_be_bytes());
    }
    renew_checksum(bytes, conn_key);
}

fn renew_checksum(bytes: &mut [u8], conn_key: &ConnKey) {
    let (l3, l4, end) = (conn_key.l3, conn_key.l4, conn_key.end);
    let addresses = if conn_key.tuple.v6 { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
    bytes[l4 + 16..l4 + 18].copy_from_slice(&[0, 0]);
    let pseudo = checksum::sum(&bytes[addresses]) + u64::from(ip_proto::TCP) + (end - l4) as u64;
    let sum = checksum::finish(pseudo + checksum::sum(&bytes[l4..end]));
    bytes[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(text: &str) -> Vec<u8> {
        let mut l4 = vec![0; 20];
        l4[12] = 5 << 4;
        l4.extend_from_slice(text.as_bytes());
        l4
    }

    fn v4(addr: [u8; 4]) -> [u8; 16] {
        let mut out = [0; 16];
        out[..4].copy_from_slice(&addr);
        out
    }

    #[test]
    fn announcements_of_both_families_are_read() {
        let port = segment("PORT 10,1,1,1,4,1\r\n");
        let read = parse_v4(message(&port)).expect("a good command");
        assert_eq!(read, Announcement { is_active: true, addr: Some((v4([10, 1, 1, 1]), 5, 13)), port: 1025 });
        let pasv = segment("227 Entering Passive Mode (10,1,1,2,255,254).\r\n");
        let read = parse_v4(message(&pasv)).expect("a good answer");
        assert_eq!((read.is_active, read.port), (false, 0xfffe));
        let eprt = segment("eprt |2|fc00::1|1025|\r\n");
        let read = parse_v6(message(&eprt)).expect("a good command");
        assert_eq!((read.port, read.addr.map(|(_, start, end)| end - start)), (1025, Some(7)));
        let epsv = segment("229 Entering Extended Passive Mode (|||49152|)\r\n");
        assert!(is_announcement(&epsv, true) && !is_announcement(&epsv, false));
        let read = parse_v6(message(&epsv)).expect("a good answer");
        assert_eq!(read, Announcement { is_active: false, addr: None, port: 49152 });
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for text in [
            "PORT 10,1,1,1,4\r\n",
            "PORT10,1,1,1,4,1\r\n",
            "PORT 10,1,1,1,256,1\r\n",
            "227 none\r\n",
            "PORT 10,1,1,300,4,1\r\n",
            "PORT 10,1,1,1,4,99999999999\r\n",
            "PORT \r\n",
        ] {
            assert_eq!(parse_v4(message(&segment(text))), None, "{text}");
        }
        for text in
            ["EPRT |1|10.0.0.1|1025|\r\n", "EPRT |22|fc00::1|1025|\r\n", "EPRT |2|fc00::1|99999|\r\n", "EPRT |2|"]
        {
            assert_eq!(parse_v6(message(&segment(text))), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(start in "(PORT |227 |EPRT |229 Extended Passive \\()?", rest in "[0-9,.|:a-f() 2]{0,60}") {
            let l4 = segment(&format!("{start}{rest}"));
            let _ = (parse_v4(message(&l4)), parse_v6(message(&l4)));
        }
    }
}
