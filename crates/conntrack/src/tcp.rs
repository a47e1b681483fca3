//! TCP: the state of both ends, and whether a segment fits the windows.
//!
//! The window algorithm is van Rooij's ("Real stateful TCP packet filtering in IP Filter"), as in pf and Open vSwitch.
//! For each end it keeps the highest sequence number sent (`sent`), the highest that may be sent (`limit`: what the
//! other end acknowledged plus its window), and the largest window offered. A segment must end below `limit`, begin at
//! most one window before `sent`, and acknowledge a number near what the other end has sent.
//!
//! For a connection that is picked up in the middle the window scale is unknown; the largest scale is assumed.

use crate::states::CtUpdate;
use crate::timeouts::Timeout;
use sluice_packet::headers::TCP_SIZE;

/// The state of one end, ordered by progress. Names are Open vSwitch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are TCP's")]
pub enum TcpState {
    #[default]
    Closed,
    Listen,
    SynSent,
    SynRecv,
    Established,
    CloseWait,
    FinWait1,
    Closing,
    LastAck,
    FinWait2,
    TimeWait,
}

/// Flags of a TCP header.
mod flag {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
}

/// How far an acknowledgement may be off: the largest unscaled window plus a segment. Source: OVS, MAXACKWINDOW.
const ACK_SLACK: u32 = 0xffff + 1500;
/// The largest window scale. Source: RFC 7323, 2.3.
const SCALE_MAX: u8 = 14;

/// The fields of a segment that the tracker uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    /// Bytes of payload.
    len: u32,
    /// The window scale option, if present.
    scale: Option<u8>,
}

/// What is known about an end's window scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WindowScale {
    /// It sent no option, or no segment yet.
    #[default]
    None,
    /// Its SYN had the option.
    Known(u8),
    /// Its SYN was not seen.
    Unknown,
}

/// One end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpPeer {
    /// One past the highest sequence number it sent.
    sent: u32,
    /// One past the highest it may send.
    limit: u32,
    /// The largest window it offered, before scaling.
    window: u16,
    pub scale: WindowScale,
    pub state: TcpState,
}

/// Both ends; the one that began the connection is first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tcp {
    pub peers: [TcpPeer; 2],
}

/// `a` is at or after `b` in sequence space.
fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

impl Segment {
    /// Reads a TCP header, which extraction has checked to be complete, and counts the bytes behind it.
    pub fn of(l4: &[u8]) -> Option<Segment> {
        let header = l4.first_chunk::<TCP_SIZE>()?;
        let size = usize::from(header[12] >> 4) * 4;
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Some(Segment {
            flags: header[13],
            seq: word(4),
            ack: word(8),
            window: u16::from_be_bytes([header[14], header[15]]),
            len: l4.len().checked_sub(size)? as u32,
            scale: scale_option(l4.get(TCP_SIZE..size)?),
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether no correct stack sends these flags together.
    fn is_nonsense(&self) -> bool {
        let bad_syn = self.has(flag::SYN) && self.has(flag::RST | flag::FIN);
        let nothing = !self.has(flag::SYN | flag::ACK | flag::RST);
        bad_syn || nothing || !self.has(flag::ACK) && self.has(flag::FIN | flag::PSH | flag::URG)
    }

    /// Whether it may begin a connection: a SYN, or a segment of an established connection, but not half of a
    /// handshake.
    pub fn may_begin(&self) -> bool {
        !(self.is_nonsense() || self.has(flag::SYN) && self.has(flag::ACK))
    }

    /// One past the last sequence number it uses; SYN and FIN use one each.
    fn end(&self) -> u32 {
        let control = u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN));
        self.seq.wrapping_add(self.len).wrapping_add(control)
    }
}

/// The window scale option. As in Open vSwitch, option lengths are used even where they are too small, and an option
/// that is cut off at the end is not read.
fn scale_option(mut options: &[u8]) -> Option<u8> {
    let mut scale = None;
    while options.len() >= 3 {
        let step = match options[0] {
            0 => return scale,
            1 => 1,
            kind => {
                if kind == 3 {
                    scale = Some(options[2].min(SCALE_MAX));
                }
                usize::from(options[1]).max(2)
            }
        };
        options = options.get(step..).unwrap_or(&[]);
    }
    scale
}

/// `window` in units of the scale, rounded up. The window of a SYN is not scaled, others are.
fn scaled_down(window: u16, scale: u8) -> u16 {
    u32::from(window).div_ceil(1 << scale) as u16
}

impl WindowScale {
    pub fn bits(self) -> u8 {
        if let WindowScale::Known(bits) = self { bits } else { 0 }
    }
}

impl Tcp {
    /// The connection that `segment` begins.
    pub fn begin(segment: &Segment) -> Tcp {
        let (scale, other) = match segment.has(flag::SYN) {
            true => (segment.scale.map_or(WindowScale::None, WindowScale::Known), WindowScale::None),
            false => (WindowScale::Unknown, WindowScale::Unknown),
        };
        let sender = TcpPeer {
            sent: segment.seq,
            limit: segment.end().wrapping_add(1),
            window: scaled_down(segment.window.max(1), scale.bits()),
            scale,
            state: TcpState::SynSent,
        };
        let receiver = TcpPeer { limit: 1, window: 1, scale: other, ..TcpPeer::default() };
        Tcp { peers: [sender, receiver] }
    }

    /// Moves on for a segment of the connection. Without `check`, sequence numbers are followed but not checked.
    pub fn update(&mut self, segment: &Segment, reply: bool, check: bool) -> CtUpdate {
        if segment.is_nonsense() {
            return CtUpdate::Invalid;
        }
        let [first, second] = &mut self.peers;
        let (src, dst) = if reply { (second, first) } else { (first, second) };
        if segment.has(flag::SYN) && !segment.has(flag::ACK) {
            if dst.state >= TcpState::FinWait2 && src.state >= TcpState::FinWait2 {
                (src.state, dst.state) = (TcpState::Closed, TcpState::Closed);
                return CtUpdate::New;
            } else if src.state <= TcpState::SynSent {
                src.state = TcpState::SynSent;
                return CtUpdate::ValidNew(Timeout::TcpFirstPacket);
            }
        }
        let mut view = SegmentView::of(segment, src, dst);
        if src.state < TcpState::SynSent {
            view.meet(segment, src, dst);
        }
        view.complete(segment, src, dst);
        if !check || view.fits(segment, src, dst) {
            view.follow(src, dst);
            advance(segment, src, dst);
            CtUpdate::Valid(Some(timeout(src.state, dst.state)))
        } else if view.nearly_fits(src, dst) {
            // The other end has not been seen, or this is a late segment after the close. It does not extend the
            // connection's life, so that a flood of such segments cannot keep the connection.
            view.follow(src, dst);
            close(segment, src, dst);
            CtUpdate::Valid(None)
        } else {
            CtUpdate::Invalid
        }
    }
}

/// A segment in terms of this connection.
struct SegmentView {
    seq: u32,
    end: u32,
    ack: u32,
    window: u16,
    /// Window shifts of the sender and the receiver.
    shifts: (u8, u8),
    /// The sender is picked up in the middle of a connection: its acknowledgement is not checked.
    is_lenient: bool,
}

impl SegmentView {
    fn of(segment: &Segment, src: &TcpPeer, dst: &TcpPeer) -> SegmentView {
        let shifts = match (src.scale, dst.scale) {
            _ if segment.has(flag::SYN) => (0, 0),
            (WindowScale::Known(src), WindowScale::Known(dst)) => (src, dst),
            (WindowScale::Unknown, WindowScale::Unknown) => (SCALE_MAX, SCALE_MAX),
            _ => (0, 0),
        };
        let (seq, end, ack) = (segment.seq, segment.end(), segment.ack);
        SegmentView { seq, end, ack, window: segment.window, shifts, is_lenient: false }
    }

    /// Handles the first segment of this end.
    fn meet(&mut self, segment: &Segment, src: &mut TcpPeer, dst: &mut TcpPeer) {
        if segment.has(flag::SYN)
            && let WindowScale::Known(other) = dst.scale
        {
            match segment.scale {
                Some(own) => {
                    src.scale = WindowScale::Known(own);
                    self.window = scaled_down(self.window, own);
                    self.shifts = (own, other);
                }
                None => {
                    // Scaling needs both ends, so the other end does not scale either.
                    src.scale = WindowScale::None;
                    dst.window = (u32::from(dst.window) << other) as u16;
                    dst.scale = WindowScale::None;
                }
            }
        }
        src.sent = self.seq;
        src.state = TcpState::SynSent;
        let limit = self.end.wrapping_add((u32::from(dst.window) << self.shifts.1).max(1));
        if src.limit == 1 || at_or_after(limit, src.limit) {
            src.limit = limit;
            self.is_lenient = true;
        }
        src.window = src.window.max(self.window);
    }

    /// Fills in what the segment does not contain.
    fn complete(&mut self, segment: &Segment, src: &TcpPeer, dst: &TcpPeer) {
        let is_reset = segment.has(flag::RST);
        if !segment.has(flag::ACK) || self.ack == 0 && is_reset {
            self.ack = dst.sent;
        }
        if self.seq == self.end {
            // Without data its sequence number means little.
            (self.seq, self.end) = (src.sent, src.sent);
        }
    }

    /// Whether it is inside both windows; a reset must be exactly at the edge.
    fn fits(&self, segment: &Segment, src: &TcpPeer, dst: &TcpPeer) -> bool {
        let skew = if self.is_lenient { 0 } else { dst.sent.wrapping_sub(self.ack) as i32 };
        let window = u32::from(dst.window) << self.shifts.1;
        // At most 67035 * 2^14, which is below 2^31.
        let forward = (ACK_SLACK << self.shifts.0) as i32;
        let is_at_edge = segment.seq.wrapping_sub(src.sent).wrapping_add(1) <= 2;
        at_or_after(src.limit, self.end)
            && at_or_after(self.seq, src.sent.wrapping_sub(window))
            && (-(ACK_SLACK as i32)..=forward).contains(&skew)
            && (!segment.has(flag::RST) || is_at_edge)
    }

    /// Whether it is near the window, at a stage of the connection where no more is required.
    fn nearly_fits(&self, src: &TcpPeer, dst: &TcpPeer) -> bool {
        let is_loose =
            dst.state < TcpState::SynSent || dst.state >= TcpState::FinWait2 || src.state >= TcpState::FinWait2;
        is_loose
            && at_or_after(src.limit.wrapping_add(ACK_SLACK), self.end)
            && at_or_after(self.seq, src.sent.wrapping_sub(ACK_SLACK))
    }

    /// Moves the windows.
    fn follow(&self, src: &mut TcpPeer, dst: &mut TcpPeer) {
        src.window = src.window.max(self.window);
        if !at_or_after(src.sent, self.end) {
            src.sent = self.end;
        }
        let window = u32::from(self.window) << self.shifts.0;
        if at_or_after(self.ack.wrapping_add(window), dst.limit) {
            dst.limit = self.ack.wrapping_add(window.max(1));
        }
    }
}

/// Changes the states by the flags of a segment that fits.
fn advance(segment: &Segment, src: &mut TcpPeer, dst: &mut TcpPeer) {
    if segment.has(flag::FIN) && src.state < TcpState::Closing {
        src.state = TcpState::Closing;
    }
    if segment.has(flag::ACK) {
        match dst.state {
            TcpState::SynSent => dst.state = TcpState::Established,
            TcpState::Closing => dst.state = TcpState::FinWait2,
            _ => {}
        }
    }
    if segment.has(flag::RST) {
        (src.state, dst.state) = (TcpState::TimeWait, TcpState::TimeWait);
    }
}

/// Changes the states by the flags of a segment that nearly fits.
fn close(segment: &Segment, src: &mut TcpPeer, dst: &mut TcpPeer) {
    if segment.has(flag::FIN) && src.state < TcpState::Closing {
        src.state = TcpState::Closing;
    }
    if segment.has(flag::RST) {
        (src.state, dst.state) = (TcpState::TimeWait, TcpState::TimeWait);
    }
}

/// The timeout of the connection without a further segment.
fn timeout(a: TcpState, b: TcpState) -> Timeout {
    let (less, more) = (a.min(b), a.max(b));
    if less >= TcpState::FinWait2 {
        Timeout::TcpClosed
    } else if less >= TcpState::Closing {
        Timeout::TcpFinWait
    } else if less < TcpState::Established {
        Timeout::TcpOpening
    } else if more >= TcpState::Closing {
        Timeout::TcpClosing
    } else {
        Timeout::TcpEstablished
    }
}
