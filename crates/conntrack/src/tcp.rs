//! TCP: the state of both ends, and whether a segment fits into what each may send.
//!
//! The window algorithm is van Rooij's ("Real stateful TCP packet filtering in IP Filter"), as pf and Open vSwitch have
//! it: for each end the highest sequence number it sent (`sent`), the highest it may send (`limit`, what the other end
//! acknowledged plus its window), and the largest window it offered. A segment must end below `limit`, begin no more
//! than a window before `sent`, and acknowledge something near what the other end sent.
//!
//! A connection that is picked up in the middle knows no window scale; then the largest one is assumed.

use crate::states::CtUpdate;
use crate::timeouts::Timeout;
use sluice_packet::headers::TCP_SIZE;

/// ConnState of one end. The order matters: later is further on. Names are Open vSwitch's.
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

/// How far an acknowledgement may be off: the largest unscaled window and a segment. Source: OVS, MAXACKWINDOW.
const ACK_SLACK: u32 = 0xffff + 1500;
/// The largest window scale. Source: RFC 7323, 2.3.
const SCALE_MAX: u8 = 14;

/// What the tracker reads of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    /// Bytes of payload.
    len: u32,
    /// The window scale option, if there.
    scale: Option<u8>,
}

/// What is known of an end's window scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    /// It sent no option, or nothing yet.
    #[default]
    None,
    /// Its SYN said so.
    Known(u8),
    /// Its SYN was not seen.
    Unknown,
}

/// One end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peer {
    /// One past the highest sequence number it sent.
    sent: u32,
    /// One past the highest it may send.
    limit: u32,
    /// The largest window it offered, before scaling.
    window: u16,
    pub scale: Scale,
    pub state: TcpState,
}

/// Both ends: the one that began the connection first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tcp {
    pub peers: [Peer; 2],
}

/// `a` is at or after `b` in sequence space.
fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

impl Segment {
    /// Reads a TCP header (whole, as extraction made sure) and counts the bytes behind it.
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

    /// Whether no sound stack would send these flags together.
    fn is_nonsense(&self) -> bool {
        let bad_syn = self.has(flag::SYN) && self.has(flag::RST | flag::FIN);
        let nothing = !self.has(flag::SYN | flag::ACK | flag::RST);
        bad_syn || nothing || !self.has(flag::ACK) && self.has(flag::FIN | flag::PSH | flag::URG)
    }

    /// Whether a connection may begin with it: a SYN, or anything of one already on; not half of a handshake.
    pub fn may_begin(&self) -> bool {
        !(self.is_nonsense() || self.has(flag::SYN) && self.has(flag::ACK))
    }

    /// One past the last sequence number it uses; SYN and FIN use one each.
    fn end(&self) -> u32 {
        let control = u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN));
        self.seq.wrapping_add(self.len).wrapping_add(control)
    }
}

/// The window scale among the options. As in Open vSwitch, lengths are believed even where they are too small, and an
/// option cut short at the end is not read.
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

/// `window` in units of the scale, rounded up: the window of a SYN is not scaled, that of others is.
fn scaled_down(window: u16, scale: u8) -> u16 {
    u32::from(window).div_ceil(1 << scale) as u16
}

impl Scale {
    pub fn bits(self) -> u8 {
        if let Scale::Known(bits) = self { bits } else { 0 }
    }
}

impl Tcp {
    /// The connection that `segment` begins.
    pub fn begin(segment: &Segment) -> Tcp {
        let (scale, other) = match segment.has(flag::SYN) {
            true => (segment.scale.map_or(Scale::None, Scale::Known), Scale::None),
            false => (Scale::Unknown, Scale::Unknown),
        };
        let sender = Peer {
            sent: segment.seq,
            limit: segment.end().wrapping_add(1),
            window: scaled_down(segment.window.max(1), scale.bits()),
            scale,
            state: TcpState::SynSent,
        };
        let receiver = Peer { limit: 1, window: 1, scale: other, ..Peer::default() };
        Tcp { peers: [sender, receiver] }
    }

    /// Takes a segment of the connection. With `check` false, sequence numbers are followed but not judged.
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
        let mut view = View::of(segment, src, dst);
        if src.state < TcpState::SynSent {
            view.meet(segment, src, dst);
        }
        view.complete(segment, src, dst);
        if !check || view.fits(segment, src, dst) {
            view.follow(src, dst);
            advance(segment, src, dst);
            CtUpdate::Valid(Some(timeout(src.state, dst.state)))
        } else if view.nearly_fits(src, dst) {
            // An end whose other side was not seen, or a straggler after the close. It does not prolong the
            // connection, so that a flood of such segments cannot keep it.
            view.follow(src, dst);
            close(segment, src, dst);
            CtUpdate::Valid(None)
        } else {
            CtUpdate::Invalid
        }
    }
}

/// A segment as this connection sees it.
struct View {
    seq: u32,
    end: u32,
    ack: u32,
    window: u16,
    /// Shifts of the sender's and the receiver's window.
    shifts: (u8, u8),
    /// The sender is met in the midst of a connection: what it acknowledges is not judged.
    is_lenient: bool,
}

impl View {
    fn of(segment: &Segment, src: &Peer, dst: &Peer) -> View {
        let shifts = match (src.scale, dst.scale) {
            _ if segment.has(flag::SYN) => (0, 0),
            (Scale::Known(src), Scale::Known(dst)) => (src, dst),
            (Scale::Unknown, Scale::Unknown) => (SCALE_MAX, SCALE_MAX),
            _ => (0, 0),
        };
        let (seq, end, ack) = (segment.seq, segment.end(), segment.ack);
        View { seq, end, ack, window: segment.window, shifts, is_lenient: false }
    }

    /// The first segment of this end.
    fn meet(&mut self, segment: &Segment, src: &mut Peer, dst: &mut Peer) {
        if segment.has(flag::SYN)
            && let Scale::Known(other) = dst.scale
        {
            match segment.scale {
                Some(own) => {
                    src.scale = Scale::Known(own);
                    self.window = scaled_down(self.window, own);
                    self.shifts = (own, other);
                }
                None => {
                    // Scaling needs both: the other end does not scale either.
                    src.scale = Scale::None;
                    dst.window = (u32::from(dst.window) << other) as u16;
                    dst.scale = Scale::None;
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

    /// Fills in what the segment does not say.
    fn complete(&mut self, segment: &Segment, src: &Peer, dst: &Peer) {
        let is_reset = segment.has(flag::RST);
        if !segment.has(flag::ACK) || self.ack == 0 && is_reset {
            self.ack = dst.sent;
        }
        if self.seq == self.end {
            // Without data, its sequence number says little.
            (self.seq, self.end) = (src.sent, src.sent);
        }
    }

    /// Whether it lies in both windows; a reset must be at the very edge.
    fn fits(&self, segment: &Segment, src: &Peer, dst: &Peer) -> bool {
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

    /// Whether it is near, and the connection at a stage where more is not to be asked.
    fn nearly_fits(&self, src: &Peer, dst: &Peer) -> bool {
        let is_loose =
            dst.state < TcpState::SynSent || dst.state >= TcpState::FinWait2 || src.state >= TcpState::FinWait2;
        is_loose
            && at_or_after(src.limit.wrapping_add(ACK_SLACK), self.end)
            && at_or_after(self.seq, src.sent.wrapping_sub(ACK_SLACK))
    }

    /// Moves the windows.
    fn follow(&self, src: &mut Peer, dst: &mut Peer) {
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

/// What the flags of a fitting segment do to the states.
fn advance(segment: &Segment, src: &mut Peer, dst: &mut Peer) {
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

/// What those of a nearly fitting one do.
fn close(segment: &Segment, src: &mut Peer, dst: &mut Peer) {
    if segment.has(flag::FIN) && src.state < TcpState::Closing {
        src.state = TcpState::Closing;
    }
    if segment.has(flag::RST) {
        (src.state, dst.state) = (TcpState::TimeWait, TcpState::TimeWait);
    }
}

/// How long the connection lives without a further segment.
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
