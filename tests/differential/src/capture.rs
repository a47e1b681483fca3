//! Classic pcap files, independent of the switch's own reader and writer.

use anyhow::{Context, Result, ensure};

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Microseconds.
    pub time_us: u64,
    pub bytes: Vec<u8>,
}

pub const HEADER_SIZE: usize = 24;

/// Writes a little-endian, microsecond, Ethernet capture.
pub fn write(packets: &[Captured]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        out.extend(word.to_le_bytes());
    }
    for packet in packets {
        let length = packet.bytes.len() as u32;
        for word in [(packet.time_us / 1_000_000) as u32, (packet.time_us % 1_000_000) as u32, length, length] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&packet.bytes);
    }
    out
}

/// Reads a whole capture.
pub fn read(bytes: &[u8]) -> Result<Vec<Captured>> {
    ensure!(bytes.len() >= HEADER_SIZE, "a capture of {} bytes has no whole header", bytes.len());
    ensure!(
        bytes[..4] == 0xa1b2_c3d4_u32.to_le_bytes(),
        "not a little-endian microsecond capture: {:02x?}",
        &bytes[..4]
    );
    records(&bytes[HEADER_SIZE..])
}

/// Reads the records that follow a capture's header.
pub fn records(mut bytes: &[u8]) -> Result<Vec<Captured>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        ensure!(bytes.len() >= 16, "a record's header is cut after {} bytes", bytes.len());
        let word = |i: usize| u64::from(u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes")));
        let (time_us, length) = (word(0) * 1_000_000 + word(1), word(2) as usize);
        let packet = bytes.get(16..16 + length).context("a record is cut in the packet")?;
        out.push(Captured { time_us, bytes: packet.to_vec() });
        bytes = &bytes[16 + length..];
    }
    Ok(out)
}
