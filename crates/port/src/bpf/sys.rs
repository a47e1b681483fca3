//! A safe interface to bpf(2), for the programs that ports need, which are assembled here: five instructions that redirect
//! what a device receives to AF_XDP sockets, and a filter for packet sockets.
//!
//! Source: Linux, include/uapi/linux/bpf.h; instruction encoding from Documentation/bpf/standardization.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands of bpf(2).
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// The program supports multi-buffer packets, without which large MTUs are refused.
const PROG_HAS_FRAGS: u32 = 1 << 5;
/// The helper `bpf_redirect_map`.
const REDIRECT_MAP: u32 = 51;
/// The verdict for a packet on a queue without a socket: pass it to the kernel's stack.
const XDP_PASS: u32 = 2;
/// The offset of the receive queue's index in `struct xdp_md`.
const RX_QUEUE_INDEX_AT: u16 = 16;

/// Offsets in `struct __sk_buff`.
const PROTOCOL_AT: u16 = 16;
const GSO_SIZE_AT: u16 = 176;
/// Where a load from the packet finds its network header. Source: Linux, include/uapi/linux/filter.h, SKF_NET_OFF.
const NETWORK: u32 = -0x10_0000_i32 as u32;
const PROTO_TCP: u32 = 6;
const PROTO_UDP: u32 = 17;
/// IPv6's extension headers that TCP may stand behind: hop-by-hop options, routing, destination options.
const EXTENSIONS: [u32; 3] = [0, 43, 60];
/// Instructions of the filter for packet sockets.
const LARGE_FILTER: usize = 18;

/// Bytes of an attribute block: more than any command here needs. The kernel requires unknown bytes to be zero.
const ATTRIBUTES: usize = 128;

/// A command's attributes: words at their offsets, zeros elsewhere.
struct Attributes([u64; ATTRIBUTES / 8]);

impl Attributes {
    fn new(words: &[(usize, u32)], pointers: &[(usize, u64)]) -> Self {
        let mut all = Attributes([0; ATTRIBUTES / 8]);
        words.iter().for_each(|(at, word)| all.0[at / 8] |= u64::from(*word) << (8 * (at % 8)));
        pointers.iter().for_each(|(at, value)| all.0[at / 8] = *value);
        all
    }

    /// Runs a command. Memory that attributes point to must live as long as the command requires.
    fn run(&mut self, command: libc::c_long) -> io::Result<libc::c_long> {
        // SAFETY: the block is complete and writable. Pointers in it are to locals of the functions below, which
        // outlive the call and have the sizes given beside them.
        match unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), ATTRIBUTES) } {
            -1 => Err(io::Error::last_os_error()),
            done => Ok(done),
        }
    }

    fn run_for_fd(&mut self, command: libc::c_long) -> io::Result<OwnedFd> {
        let fd = self.run(command)?;
        // SAFETY: the three commands used with this function return a new descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
    }
}

/// An instruction: opcode, registers (source in the upper half), offset, immediate value.
fn instruction(opcode: u8, registers: u8, offset: u16, immediate: u32) -> u64 {
    u64::from(immediate) << 32 | u64::from(offset) << 16 | u64::from(registers) << 8 | u64::from(opcode)
}

/// The map of sockets that packets are redirected to, by the device's receive queue.
#[derive(Debug)]
pub(crate) struct SocketMap(OwnedFd);

/// A program attached to a device; detached on drop.
#[derive(Debug)]
pub(crate) struct Attached {
    _link: OwnedFd,
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In the driver, before the kernel makes a socket buffer.
    Native,
    /// After the driver; works for every device.
    Generic,
}

impl SocketMap {
    /// An empty map for `queues` queues.
    pub(crate) fn new(queues: u32) -> io::Result<Self> {
        // Type, key size, value size, entries.
        let words = [(0, MAP_TYPE_XSKMAP), (4, 4), (8, 4), (12, queues)];
        Ok(SocketMap(Attributes::new(&words, &[]).run_for_fd(MAP_CREATE)?))
    }

    /// Redirects packets of `queue` to a socket.
    pub(crate) fn insert(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let (key, value) = (queue, socket.as_raw_fd());
        let pointers = [(8, address(&key)), (16, address(&value))];
        Attributes::new(&[(0, self.0.as_raw_fd() as u32)], &pointers).run(MAP_UPDATE_ELEM).map(|_| ())
    }

    /// Attaches the program that redirects packets to these sockets.
    pub(crate) fn attach(&self, device: u32, mode: Mode) -> io::Result<Attached> {
        let program = self.load()?;
        let mode = match mode {
            Mode::Generic => 2,
            Mode::Native => 4,
        };
        let words = [(0, program.as_raw_fd() as u32), (4, device), (8, ATTACH_TYPE_XDP), (12, mode)];
        Ok(Attached { _link: Attributes::new(&words, &[]).run_for_fd(LINK_CREATE)? })
    }

    /// `return redirect_map(sockets, context->rx_queue_index, PASS)`.
    fn load(&self) -> io::Result<OwnedFd> {
        let map = self.0.as_raw_fd() as u32;
        let code = [
            instruction(0x61, 0x12, RX_QUEUE_INDEX_AT, 0), // r2 = *(u32 *) (r1 + 16)
            instruction(0x18, 0x11, 0, map),               // r1 = the map, by descriptor
            0,                                             // (second half)
            instruction(0xb7, 0x03, 0, XDP_PASS),          // r3 = PASS
            instruction(0x85, 0x00, 0, REDIRECT_MAP),      // r0 = redirect_map(r1, r2, r3)
            instruction(0x95, 0x00, 0, 0),                 // exit
        ];
        let license = c"Apache-2.0";
        let words = [(0, PROG_TYPE_XDP), (4, code.len() as u32), (44, PROG_HAS_FRAGS), (68, ATTACH_TYPE_XDP)];
        let pointers = [(8, address(&code)), (16, license.as_ptr().expose_provenance() as u64)];
        Attributes::new(&words, &pointers).run_for_fd(PROG_LOAD)
    }
}

/// Loads a filter for packet sockets that lets in what a virtio-net header can describe: packets that are not large, and
/// large ones of TCP, or of UDP if `takes_udp`. Of large packets behind VLAN tags, or behind extension headers of IPv6, it
/// lets in all.
pub(crate) fn load_large_filter(takes_udp: bool) -> io::Result<OwnedFd> {
    let code = large_filter(takes_udp);
    let license = c"Apache-2.0";
    let words = [(0, PROG_TYPE_SOCKET_FILTER), (4, code.len() as u32)];
    let pointers = [(8, address(&code)), (16, license.as_ptr().expose_provenance() as u64)];
    Attributes::new(&words, &pointers).run_for_fd(PROG_LOAD)
}

/// The filter's instructions. A jump's offset counts from the instruction behind it.
fn large_filter(takes_udp: bool) -> [u64; LARGE_FILTER] {
    let (ipv4, ipv6) = (u32::from(0x0800_u16.to_be()), u32::from(0x86dd_u16.to_be()));
    let udp = if takes_udp { PROTO_UDP } else { PROTO_TCP };
    [
        instruction(0xbf, 0x16, 0, 0),               //  0: r6 = r1, which loads from packets want
        instruction(0x61, 0x60, GSO_SIZE_AT, 0),     //  1: r0 = context->gso_size
        instruction(0x15, 0x00, 13, 0),              //  2: if r0 == 0 goto 16
        instruction(0x61, 0x67, PROTOCOL_AT, 0),     //  3: r7 = context->protocol
        instruction(0x15, 0x07, 5, ipv4),            //  4: if r7 == IPv4 goto 10
        instruction(0x55, 0x07, 10, ipv6),           //  5: if r7 != IPv6 goto 16
        instruction(0x30, 0x00, 0, NETWORK + 6),     //  6: r0 = next header
        instruction(0x15, 0x00, 8, EXTENSIONS[0]),   //  7: if r0 == hop-by-hop options goto 16
        instruction(0x15, 0x00, 7, EXTENSIONS[1]),   //  8: if r0 == routing goto 16
        instruction(0x05, 0x00, 1, 0),               //  9: goto 11
        instruction(0x30, 0x00, 0, NETWORK + 9),     // 10: r0 = protocol
        instruction(0x15, 0x00, 4, PROTO_TCP),       // 11: if r0 == TCP goto 16
        instruction(0x15, 0x00, 3, udp),             // 12: if r0 == UDP goto 16
        instruction(0x15, 0x00, 2, EXTENSIONS[2]),   // 13: if r0 == destination options goto 16
        instruction(0xb7, 0x00, 0, 0),               // 14: r0 = nothing of it
        instruction(0x95, 0x00, 0, 0),               // 15: exit
        instruction(0xb7, 0x00, 0, i32::MAX as u32), // 16: r0 = all of it
        instruction(0x95, 0x00, 0, 0),               // 17: exit
    ]
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}
