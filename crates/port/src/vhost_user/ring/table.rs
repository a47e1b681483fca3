//! Descriptors of a chain that takes the longer way: several buffers, or a table of its own.

use super::{Access, Broken, Burst, CHAIN_MAX, Chain, DESC_SIZE, Descriptor, Result, View};

/// How the descriptors of a table follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableOrder {
    /// Each names the next, as in a split ring.
    Linked,
    /// Each follows the one before it, up to the table's end, as in a packed ring.
    Consecutive,
}

/// Adds the buffers of descriptors to a burst.
pub struct ChainReader<'a> {
    pub access: Access,
    /// `None` if tables were not negotiated.
    pub tables: Option<TableOrder>,
    pub view: &'a mut View,
    pub burst: &'a mut Burst,
    /// Bytes of the buffers that were added.
    pub len: u32,
}

impl ChainReader<'_> {
    /// Adds the buffer, or the buffers of the table, that a descriptor describes.
    #[inline]
    pub fn push(&mut self, descriptor: Descriptor) -> Result<()> {
        if descriptor.is_table() {
            return self.push_table(descriptor);
        }
        self.push_buffer(descriptor)
    }

    #[inline]
    fn push_buffer(&mut self, descriptor: Descriptor) -> Result<()> {
        let buffer = descriptor.buffer(self.access)?;
        // At most twice `CHAIN_MAX` buffers are added, so the sum is far from overflow.
        self.len += buffer.len;
        self.burst.buffers.push(buffer);
        Ok(())
    }

    fn push_table(&mut self, table: Descriptor) -> Result<()> {
        let len = table.len / DESC_SIZE as u32;
        let order = self.tables.ok_or(Broken::Table)?;
        if len == 0 || table.has_next() || !table.len.is_multiple_of(DESC_SIZE as u32) {
            return Err(Broken::Table);
        }
        let mut at = 0;
        for _ in 0..CHAIN_MAX {
            if at >= len {
                return Err(Broken::Index);
            }
            let descriptor = self.read(table.address.wrapping_add(DESC_SIZE * u64::from(at)), order)?;
            // In consecutive tables only the flag of the direction has a meaning.
            if order == TableOrder::Linked && descriptor.is_table() {
                return Err(Broken::Table);
            }
            self.push_buffer(descriptor)?;
            at = match order {
                TableOrder::Linked if descriptor.has_next() => u32::from(descriptor.next),
                TableOrder::Consecutive if at + 1 < len => at + 1,
                TableOrder::Linked | TableOrder::Consecutive => return Ok(()),
            };
        }
        Err(Broken::Endless)
    }

    /// Adds the chain of the buffers from `first` on, which takes `descriptors` of the ring.
    #[inline]
    pub fn finish(self, id: u16, descriptors: u16, first: usize) {
        let end = self.burst.buffers.len() as u32;
        self.burst.chains.push(Chain { id, descriptors, first: first as u32, end, len: self.len });
    }

    fn read(&mut self, address: u64, order: TableOrder) -> Result<Descriptor> {
        let mut bytes = [0; DESC_SIZE as usize];
        self.view.read(address, &mut bytes)?;
        let [low, high] = [0, 8].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("invariant: 16 bytes")));
        Ok(match order {
            TableOrder::Linked => Descriptor::of(low, high),
            TableOrder::Consecutive => Descriptor::of_packed(low, high),
        })
    }
}
