//! The plain twins of both formats: a chain at a time, every word through `vm-memory`, which checks each address.

use super::{Broken, Buffer, CHAIN_MAX, DESC_INDIRECT, DESC_NEXT, DESC_WRITE};
use crate::vhost_user::testing::{LAYOUT, SIZE, TestGuest};
use vm_memory::{Bytes, GuestAddress};

type Result<T> = std::result::Result<T, Broken>;

/// A chain's first descriptor and its buffers.
pub type PlainChain = (u16, Vec<Buffer>);

fn load<T: vm_memory::ByteValued>(guest: &TestGuest, at: u64) -> Result<T> {
    guest.plain.read_obj(GuestAddress(at)).map_err(|_| Broken::Address)
}

/// Chains that wait behind entry `next`.
pub fn waiting(guest: &TestGuest, next: u16) -> Result<u16> {
    let waiting = load::<u16>(guest, LAYOUT.available + 2)?.wrapping_sub(next);
    if waiting > SIZE { Err(Broken::Index) } else { Ok(waiting) }
}

/// The chain at an entry of the available ring.
pub fn chain(guest: &TestGuest, entry: u16, write: bool, tables: bool) -> Result<PlainChain> {
    let head = load::<u16>(guest, LAYOUT.available + 4 + 2 * u64::from(entry % SIZE))?;
    let mut buffers = Vec::new();
    follow(guest, &mut buffers, Walk { table: LAYOUT.descriptors, len: SIZE.into(), head, write, tables })?;
    Ok((head, buffers))
}

/// The chain at a place of a packed ring (an index, and in bit 15 the wrap counter), and how many descriptors it takes.
/// `None` if none is available there.
pub fn packed_chain(guest: &TestGuest, place: u16, write: bool, tables: bool) -> Result<Option<(PlainChain, u16)>> {
    let (mut at, wrap) = (place & 0x7fff, place & 0x8000 != 0);
    let mut buffers = Vec::new();
    for n in 1..=CHAIN_MAX.min(SIZE.into()) as u16 {
        let entry = LAYOUT.descriptors + 16 * u64::from(at);
        let (address, len): (u64, u32) = (load(guest, entry)?, load(guest, entry + 8)?);
        let (id, flags): (u16, u16) = (load(guest, entry + 12)?, load(guest, entry + 14)?);
        if n == 1 && ((flags & 0x80 != 0) != wrap || (flags & 0x8000 != 0) == wrap) {
            return Ok(None);
        }
        let has_next = flags & DESC_NEXT != 0;
        if flags & DESC_INDIRECT != 0 {
            if !tables || has_next || len == 0 || !len.is_multiple_of(16) {
                return Err(Broken::Table);
            }
            for at in 0..len / 16 {
                if at as usize == CHAIN_MAX {
                    return Err(Broken::Endless);
                }
                // Its address wraps as the table's does.
                let entry = address.wrapping_add(16 * u64::from(at));
                let mut raw = [0; 16];
                guest.plain.read_slice(&mut raw, GuestAddress(entry)).map_err(|_| Broken::Address)?;
                let [low, high] = [0, 8].map(|at| u64::from_le_bytes(raw[at..at + 8].try_into().unwrap()));
                buffers.push(buffer(low, high as u32, (high >> 48) as u16, write)?);
            }
        } else {
            buffers.push(buffer(address, len, flags, write)?);
        }
        if !has_next {
            return Ok(Some(((id, buffers), n)));
        }
        at = (at + 1) % SIZE;
    }
    Err(Broken::Endless)
}

/// A descriptor's buffer.
fn buffer(address: u64, len: u32, flags: u16, write: bool) -> Result<Buffer> {
    if (flags & DESC_WRITE != 0) != write {
        return Err(Broken::Direction);
    }
    if len == 0 { Err(Broken::Empty) } else { Ok(Buffer { address, len: len.min(super::BUFFER_MAX) }) }
}

/// A way through a table.
struct Walk {
    table: u64,
    len: u32,
    head: u16,
    write: bool,
    tables: bool,
}

fn follow(guest: &TestGuest, buffers: &mut Vec<Buffer>, walk: Walk) -> Result<()> {
    let mut at = walk.head;
    for _ in 0..CHAIN_MAX {
        if u32::from(at) >= walk.len {
            return Err(Broken::Index);
        }
        let place = walk.table.wrapping_add(16 * u64::from(at));
        let mut raw = [0; 16];
        guest.plain.read_slice(&mut raw, GuestAddress(place)).map_err(|_| Broken::Address)?;
        let number =
            |from: usize, to: usize| raw[from..to].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let (address, len, flags, next) = (number(0, 8), number(8, 12) as u32, number(12, 14) as u16, number(14, 16));
        let has_next = flags & DESC_NEXT != 0;
        if flags & DESC_INDIRECT != 0 {
            if !walk.tables || has_next || len == 0 || !len.is_multiple_of(16) {
                return Err(Broken::Table);
            }
            let inner = Walk { table: address, len: len / 16, head: 0, write: walk.write, tables: false };
            follow(guest, buffers, inner)?;
        } else {
            buffers.push(buffer(address, len, flags, walk.write)?);
        }
        if !has_next {
            return Ok(());
        }
        at = next as u16;
    }
    Err(Broken::Endless)
}
