//! A safe interface to bpf(2), for the one program that an AF_XDP port needs: five instructions, assembled here.
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
pub(in crate::af_xdp) struct SocketMap(OwnedFd);

/// A program attached to a device; detached on drop.
#[derive(Debug)]
pub(in crate::af_xdp) struct Attached {
    _link: OwnedFd,
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::af_xdp) enum Mode {
    /// In the driver, before the kernel makes a socket buffer.
    Native,
    /// After the driver; works for every device.
    Generic,
}

impl SocketMap {
    /// An empty map for `queues` queues.
    pub(in crate::af_xdp) fn new(queues: u32) -> io::Result<Self> {
        // Type, key size, value size, entries.
        let words = [(0, MAP_TYPE_XSKMAP), (4, 4), (8, 4), (12, queues)];
        Ok(SocketMap(Attributes::new(&words, &[]).run_for_fd(MAP_CREATE)?))
    }

    /// Redirects packets of `queue` to a socket.
    pub(in crate::af_xdp) fn insert(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let (key, value) = (queue, socket.as_raw_fd());
        let pointers = [(8, address(&key)), (16, address(&value))];
        Attributes::new(&[(0, self.0.as_raw_fd() as u32)], &pointers).run(MAP_UPDATE_ELEM).map(|_| ())
    }

    /// Attaches the program that redirects packets to these sockets.
    pub(in crate::af_xdp) fn attach(&self, device: u32, mode: Mode) -> io::Result<Attached> {
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

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}
