//! The keys themselves.

use crate::layout::{self, FLOW_LINES, PACKET_KEY_SIZE, PACKET_LINES, SHARED_LINES, Span};
use crate::{TunMetadata, tunnel_flags};

/// Bytes in a key line: one cache line.
pub const LINE_SIZE: usize = 64;

/// One cache line of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(64))]
pub struct Line(pub [u8; LINE_SIZE]);

/// The datapath's key of a packet: line 0 always, lines 1 to 7 if byte [`layout::PRESENCE`] says so.
///
/// A line that is not present holds anything; read it through [`PacketKey::line`], which gives zeros then.
/// A mask is a `PacketKey` too: its presence byte says which of its lines have bits, and is itself no part of the mask.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PacketKey {
    /// The lines as stored.
    pub lines: [Line; PACKET_LINES],
}

/// The key that OpenFlow tables match on: the lines that it shares with a [`PacketKey`], all present (absent lines are zero),
/// two lines of its own, and the values of a tunnel's Geneve options.
///
/// The presence byte is zero here: tables never look at it.
#[derive(PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FlowKey {
    /// The lines.
    pub lines: [Line; FLOW_LINES],
    /// The fields `tun_metadata0` and on. [`FlowKey::of_packet`] leaves them out: what a packet's options stand for depends on
    /// the bridge ([`crate::geneve::OptionMap`]).
    pub tun_metadata: TunMetadata,
}

/// A tunnel's addresses: where those of both families stand in the datapath, and where those of IPv4 stand in tables.
const TUNNEL_ADDRESSES: [(Span, Span); 2] =
    [(layout::TUN_IPV6_SRC, layout::TUN_IPV4_SRC), (layout::TUN_IPV6_DST, layout::TUN_IPV4_DST)];

/// What an IPv4 address stands behind in an IPv6 address that maps it. Source: RFC 4291, 2.5.5.2.
const IPV4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

const _: () =
    assert!(size_of::<PacketKey>() == PACKET_KEY_SIZE && size_of::<FlowKey>() <= (FLOW_LINES + 1) * LINE_SIZE);

impl Line {
    /// All bits zero.
    pub const ZERO: Line = Line([0; LINE_SIZE]);

    /// The line as eight little-endian words (the same numbers on every machine).
    #[inline]
    pub fn words(&self) -> [u64; 8] {
        let (chunks, _) = self.0.as_chunks::<8>();
        std::array::from_fn(|i| u64::from_le_bytes(chunks[i]))
    }

    /// The line of eight little-endian words, as [`Line::words`] gives them.
    #[inline]
    pub fn from_words(words: [u64; 8]) -> Line {
        let mut out = Line::ZERO;
        let (chunks, _) = out.0.as_chunks_mut::<8>();
        chunks.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        out
    }

    /// The bits that both have.
    #[inline]
    pub fn and(&self, mask: &Line) -> Line {
        let mut out = *self;
        out.0.iter_mut().zip(&mask.0).for_each(|(to, m)| *to &= m);
        out
    }

    /// The bits that either has.
    #[inline]
    pub fn or(&self, other: &Line) -> Line {
        let mut out = *self;
        out.0.iter_mut().zip(&other.0).for_each(|(to, m)| *to |= m);
        out
    }

    /// Whether all bits are zero.
    #[inline]
    pub fn is_zero(&self) -> bool {
        *self == Line::ZERO
    }

    /// Whether both have the same bits under a mask. Compared by words in registers: a copy of masked bytes and a call to
    /// compare it costs several times that.
    #[inline]
    pub fn agrees_under(&self, other: &Line, mask: &Line) -> bool {
        let (a, b, mask) = (self.words(), other.words(), mask.words());
        (0..a.len()).fold(0, |differing, i| differing | (a[i] ^ b[i]) & mask[i]) == 0
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chunks(8).enumerate().try_for_each(|(i, word)| {
            let gap = if i == 0 { "" } else { " " };
            write!(f, "{gap}")?;
            word.iter().try_for_each(|b| write!(f, "{b:02x}"))
        })
    }
}

impl PacketKey {
    /// No bit set, no line but line 0 present.
    pub const ZERO: PacketKey = PacketKey { lines: [Line::ZERO; PACKET_LINES] };

    /// Every bit set, every line present: the mask that matches every field.
    pub const ONES: PacketKey = {
        let mut lines = [Line([0xff; LINE_SIZE]); PACKET_LINES];
        lines[0].0[layout::PRESENCE.offset] = 0xfe;
        PacketKey { lines }
    };

    /// Line `i`, zeros if the key does not have it.
    #[inline]
    pub fn line(&self, i: usize) -> &Line {
        if self.has_line(i) { &self.lines[i] } else { &Line::ZERO }
    }

    /// Whether the key has line `i`.
    #[inline]
    pub fn has_line(&self, i: usize) -> bool {
        i == 0 || self.lines[0].0[layout::PRESENCE.offset] >> i & 1 != 0
    }

    /// Writes line `i`, which is none but the first.
    #[inline]
    pub fn put_line(&mut self, i: usize, line: Line) {
        self.lines[0].0[layout::PRESENCE.offset] |= 1 << i;
        self.lines[i] = line;
    }

    /// Says that line `i` is there, zeroing it if it was not.
    #[inline]
    pub fn make_present(&mut self, i: usize) -> &mut Line {
        let presence = &mut self.lines[0].0[layout::PRESENCE.offset];
        if i != 0 && *presence >> i & 1 == 0 {
            *presence |= 1 << i;
            self.lines[i] = Line::ZERO;
        }
        &mut self.lines[i]
    }

    /// The bytes of a field; zeros if its line is absent.
    #[inline]
    pub fn get(&self, span: Span) -> &[u8] {
        let at = span.offset % LINE_SIZE;
        &self.line(span.line()).0[at..at + span.size]
    }

    /// Sets a field, making its line present. `value` is as long as the field.
    #[inline]
    pub fn set(&mut self, span: Span, value: &[u8]) {
        let at = span.offset % LINE_SIZE;
        self.make_present(span.line()).0[at..at + span.size].copy_from_slice(value);
    }

    /// A field of at most eight bytes as a number.
    #[inline]
    pub fn number(&self, span: Span) -> u64 {
        self.get(span).iter().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    /// The datapath port it came in by.
    #[inline]
    pub fn in_port(&self) -> u32 {
        u32::from_be_bytes(*self.lines[0].0.first_chunk().expect("invariant: a line has 64 bytes"))
    }

    /// Its recirculation id.
    #[inline]
    pub fn recirc_id(&self) -> u32 {
        self.number(layout::RECIRC_ID) as u32
    }
}

/// Two keys are equal if all their fields are. An absent line equals a line of zeros.
impl PartialEq for PacketKey {
    fn eq(&self, other: &Self) -> bool {
        let presence = |key: &Self| key.lines[0].0[layout::PRESENCE.offset];
        let mut b = other.lines[0];
        b.0[layout::PRESENCE.offset] = presence(self);
        // Most keys have few lines; what neither has is not read.
        let further = presence(self) | presence(other);
        self.lines[0] == b && (1..PACKET_LINES).filter(|i| further >> i & 1 != 0).all(|i| self.line(i) == other.line(i))
    }
}

impl Eq for PacketKey {}

impl std::hash::Hash for PacketKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let mut first = self.lines[0];
        first.0[layout::PRESENCE.offset] = 0;
        first.hash(state);
        (1..PACKET_LINES).for_each(|i| self.line(i).hash(state));
    }
}

impl Default for PacketKey {
    fn default() -> Self {
        Self::ZERO
    }
}

impl std::fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..PACKET_LINES).map(|i| self.line(i))).finish()
    }
}

impl FlowKey {
    /// No bit set.
    pub const ZERO: FlowKey = FlowKey { lines: [Line::ZERO; FLOW_LINES], tun_metadata: TunMetadata::NONE };

    /// Every bit of the lines set.
    pub const ONES: FlowKey = FlowKey { lines: [Line([0xff; LINE_SIZE]); FLOW_LINES], tun_metadata: TunMetadata::NONE };

    /// The table key of a packet: the lines that it shares, registers and metadata zero, without a tunnel's options.
    pub fn of_packet(key: &PacketKey) -> Self {
        let mut out = FlowKey::ZERO;
        (0..SHARED_LINES).for_each(|i| out.lines[i] = *key.line(i));
        out.lines[0].0[layout::PRESENCE.offset] = 0;
        // What the datapath alone needs.
        out.lines[layout::TUN_FLAGS.line()].0[layout::TUN_FLAGS.offset % LINE_SIZE] &=
            !((tunnel_flags::OPTIONS >> 8) as u8);
        for (wide, narrow) in TUNNEL_ADDRESSES {
            if let Some(address) = out.get(wide).strip_prefix(&IPV4_MAPPED) {
                let address: [u8; 4] = address.try_into().expect("invariant: four bytes follow twelve of sixteen");
                out.set(narrow, &address);
                out.get_mut(wide).fill(0);
            }
        }
        if out.number(layout::TUN_PAYLOAD) == u64::from(layout::PAYLOAD_BARE) {
            out.set_bare_type(Some(out.number(layout::DL_TYPE) as u16));
        }
        out
    }

    /// The part the datapath knows, as a key with every non-zero line present. A tunnel's options are no part of it.
    pub fn packet_part(&self) -> PacketKey {
        let mut out = PacketKey::ZERO;
        self.copy_packet_lines(&mut out, IPV4_MAPPED);
        out
    }

    /// The part the datapath knows, as a mask with every non-zero line present. A tunnel's options are no part of it:
    /// see [`crate::geneve::OptionMap::mask`].
    pub fn packet_mask(&self) -> PacketKey {
        let mut out = PacketKey::ZERO;
        self.copy_packet_mask(&mut out);
        out
    }

    /// The same into a key that is there. Only lines that become present are written.
    pub fn copy_packet_mask(&self, to: &mut PacketKey) {
        self.copy_packet_lines(to, [0xff; 12]);
    }

    /// Copies the lines of a packet, in which a tunnel's IPv4 addresses stand behind `prefix` in place of those of IPv6.
    fn copy_packet_lines(&self, to: &mut PacketKey, prefix: [u8; 12]) {
        to.lines[0] = self.lines[0];
        to.lines[0].0[layout::PRESENCE.offset] = 0;
        (1..SHARED_LINES).filter(|&i| !self.lines[i].is_zero()).for_each(|i| to.put_line(i, self.lines[i]));
        if TUNNEL_ADDRESSES.iter().any(|(_, narrow)| self.number(*narrow) != 0) {
            for (wide, narrow) in TUNNEL_ADDRESSES {
                let line = to.make_present(wide.line());
                let to = &mut line.0[wide.offset % LINE_SIZE..][..wide.size];
                to[..12].copy_from_slice(&prefix);
                to[12..].copy_from_slice(self.get(narrow));
            }
        }
    }

    /// Whether the packet came by a tunnel or is to leave by one: it has a destination there.
    pub fn has_tunnel(&self) -> bool {
        [layout::TUN_IPV4_DST, layout::TUN_IPV6_DST].iter().any(|span| self.get(*span).iter().any(|b| *b != 0))
    }

    /// The Ethernet type of a packet that has no Ethernet header; `None`: it has one. Source: OpenFlow 1.5, 7.2.3.11
    /// (name space 1 of packet types).
    pub fn bare_type(&self) -> Option<u16> {
        let packet_type = self.number(layout::PACKET_TYPE);
        (packet_type >> 16 == 1).then_some(packet_type as u16)
    }

    /// Makes the packet one that has no Ethernet header, or one that has.
    pub fn set_bare_type(&mut self, ethertype: Option<u16>) {
        self.set_number(layout::PACKET_TYPE, ethertype.map_or(0, |ethertype| 1 << 16 | u64::from(ethertype)));
    }

    /// Bit `i`: word `i` of the lines, eight bytes each, has a bit that is set. As [`Span::words`].
    pub fn words_set(&self) -> u64 {
        let words = self.lines.iter().flat_map(Line::words).enumerate();
        words.fold(0, |set, (i, word)| set | u64::from(word != 0) << i)
    }

    /// The bytes of a field.
    #[inline]
    pub fn get(&self, span: Span) -> &[u8] {
        let at = span.offset % LINE_SIZE;
        &self.lines[span.line()].0[at..at + span.size]
    }

    /// The bytes of a field, to be changed.
    #[inline]
    pub fn get_mut(&mut self, span: Span) -> &mut [u8] {
        let at = span.offset % LINE_SIZE;
        &mut self.lines[span.line()].0[at..at + span.size]
    }

    /// Sets a field. `value` is as long as the field.
    #[inline]
    pub fn set(&mut self, span: Span, value: &[u8]) {
        self.get_mut(span).copy_from_slice(value);
    }

    /// A field of at most eight bytes as a number.
    #[inline]
    pub fn number(&self, span: Span) -> u64 {
        // Translations do this all the time, with spans known only then: the usual sizes are one load.
        match *self.get(span) {
            [a] => a.into(),
            [a, b] => u16::from_be_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_be_bytes([a, b, c, d]).into(),
            [a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            ref bytes => bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)),
        }
    }

    /// Sets a field of at most eight bytes to a number, whose high bits that do not fit are cut.
    ///
    /// Always inlined: nearly every span is a constant, which decides the match.
    #[inline(always)]
    pub fn set_number(&mut self, span: Span, value: u64) {
        let (bytes, to) = (value.to_be_bytes(), self.get_mut(span));
        match to.len() {
            1 => to.copy_from_slice(&bytes[7..]),
            2 => to.copy_from_slice(&bytes[6..]),
            4 => to.copy_from_slice(&bytes[4..]),
            8 => to.copy_from_slice(&bytes),
            n => to.copy_from_slice(&bytes[8 - n..]),
        }
    }

    /// Sets all bits of a field.
    #[inline]
    pub fn set_ones(&mut self, span: Span) {
        match self.get_mut(span) {
            [a] => *a = 0xff,
            [a, b] => [*a, *b] = [0xff; 2],
            [a, b, c, d] => [*a, *b, *c, *d] = [0xff; 4],
            bytes => bytes.fill(0xff),
        }
    }

    /// Whether `self` under `mask` equals `masked`, whose bits outside the mask are zero.
    pub fn matches(&self, mask: &FlowKey, masked: &FlowKey) -> bool {
        self.lines.iter().zip(&mask.lines).zip(&masked.lines).all(|((key, mask), want)| key.and(mask) == *want)
            && self.tun_metadata.and(&mask.tun_metadata) == masked.tun_metadata
    }

    /// The bits that both have.
    pub fn and(&self, mask: &FlowKey) -> FlowKey {
        FlowKey {
            lines: std::array::from_fn(|i| self.lines[i].and(&mask.lines[i])),
            tun_metadata: self.tun_metadata.and(&mask.tun_metadata),
        }
    }

    /// Takes away the bits of `other`.
    pub fn and_not(&mut self, other: &FlowKey) {
        for (to, m) in self.lines.iter_mut().zip(&other.lines) {
            to.0.iter_mut().zip(m.0).for_each(|(to, m)| *to &= !m);
        }
        self.tun_metadata.and_not(&other.tun_metadata);
    }

    /// Adds the bits of `other`.
    pub fn or_with(&mut self, other: &FlowKey) {
        self.lines.iter_mut().zip(&other.lines).for_each(|(to, m)| *to = to.or(m));
        self.tun_metadata.or_with(&other.tun_metadata);
    }
}

impl Clone for FlowKey {
    /// The options first: then the lines go where they stay, where they were copied twice with the derived order.
    #[inline]
    fn clone(&self) -> Self {
        let tun_metadata = self.tun_metadata.clone();
        FlowKey { lines: self.lines, tun_metadata }
    }
}

impl Default for FlowKey {
    fn default() -> Self {
        Self::ZERO
    }
}

impl std::fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lines).entry(&self.tun_metadata).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_line_reads_as_zero_whatever_it_holds() {
        let mut key = PacketKey::ZERO;
        key.lines[1] = Line([0xff; 64]);
        assert!(key.line(1).is_zero());
        assert_eq!(key, PacketKey::ZERO);
        key.set(layout::IPV6_LABEL, &[0, 0, 0, 7]);
        assert_eq!(key.number(layout::IPV6_LABEL), 7);
        assert_eq!(key.get(layout::IPV6_SRC), [0; 16]);
    }

    #[test]
    fn words_that_are_set_are_those_of_the_spans_that_are() {
        assert_eq!((FlowKey::ZERO.words_set(), FlowKey::ONES.words_set()), (0, (1 << (8 * FLOW_LINES)) - 1));
        for (name, span) in layout::SPANS.iter().filter(|(_, span)| span.offset + span.size <= layout::FLOW_KEY_SIZE) {
            let words: u64 = span.range().map(|at| 1 << (at / 8)).fold(0, |set, word| set | word);
            assert_eq!(span.words(), words, "{name}");
            for at in span.range() {
                let mut key = FlowKey::ZERO;
                key.lines[at / LINE_SIZE].0[at % LINE_SIZE] = 0x10;
                assert_eq!(key.words_set(), 1 << (at / 8), "byte {at} of {name}");
            }
        }
    }

    #[test]
    fn a_table_key_keeps_what_the_packet_key_has() {
        let mut key = PacketKey::ZERO;
        key.set(layout::IN_PORT, &[0, 0, 0, 3]);
        key.set(layout::ND_TARGET, &[9; 16]);
        let table = FlowKey::of_packet(&key);
        assert_eq!(table.number(layout::IN_PORT), 3);
        assert_eq!(table.get(layout::ND_TARGET), [9; 16]);
        assert_eq!(table.packet_part(), key);
    }

    #[test]
    fn addresses_of_an_ipv4_tunnel_cross_to_the_datapath_and_back() {
        let mut table = FlowKey::ZERO;
        table.set(layout::TUN_IPV4_DST, &[1, 2, 3, 4]);
        let key = table.packet_part();
        assert_eq!(key.get(layout::TUN_IPV6_DST), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4]);
        assert_eq!(key.get(layout::TUN_IPV6_SRC)[10..], [0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(FlowKey::of_packet(&key), table);
        let mut mask = FlowKey::ZERO;
        mask.set(layout::TUN_IPV4_DST, &[0xff, 0, 0, 0]);
        assert_eq!(mask.packet_mask().get(layout::TUN_IPV6_DST)[11..], [0xff, 0xff, 0, 0, 0]);
        let mut other = FlowKey::ZERO;
        other.set(layout::TUN_IPV6_DST, &[0xfe; 16]);
        assert_eq!(FlowKey::of_packet(&other.packet_part()), other);
    }

    #[test]
    fn numbers_are_big_endian() {
        let mut key = FlowKey::ZERO;
        key.set_number(layout::DL_TYPE, 0x0800);
        assert_eq!(key.get(layout::DL_TYPE), [8, 0]);
        assert_eq!(key.number(layout::DL_TYPE), 0x0800);
    }
}
