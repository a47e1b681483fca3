//! Checksums: the Internet checksum (RFC 1071), its incremental update (RFC 1624), and SCTP's CRC32c.

use sluice_simd::{Isa, words};

/// The ones' complement sum of bytes as big-endian 16-bit words, to be folded and complemented by [`finish`].
///
/// An odd last byte counts as the high half of a word, so only the last of several byte ranges may be odd.
pub fn sum(bytes: &[u8]) -> u64 {
    fold(native_sum(bytes)).to_be().into()
}

/// The same sum with the bytes of each word in the machine's order, which costs less. It is zero, folded, when [`sum`] is:
/// a ones' complement sum is right in either order. Sums in one order are added up with sums in the same.
#[inline]
pub fn native_sum(bytes: &[u8]) -> u64 {
    native_sum_by(Isa::SCALAR, bytes)
}

/// [`native_sum`] by an instruction set, which long packets gain from.
#[inline]
pub fn native_sum_by(isa: Isa, bytes: &[u8]) -> u64 {
    words::sum(isa, bytes)
}

/// Turns a sum into the checksum field's value.
#[inline]
pub fn finish(sum: u64) -> u16 {
    !fold(sum)
}

/// The checksum of `bytes`; 0 if they contain their own correct checksum.
pub fn internet(bytes: &[u8]) -> u16 {
    finish(sum(bytes))
}

/// The sum of an IPv4 pseudo header: addresses, protocol, and the size of the L4 header and its payload.
pub fn pseudo_v4(src: [u8; 4], dst: [u8; 4], proto: u8, size: u16) -> u64 {
    sum(&src) + sum(&dst) + u64::from(proto) + u64::from(size)
}

/// The sum of an IPv6 pseudo header. `dst` is the final destination if a routing header names one.
pub fn pseudo_v6(src: [u8; 16], dst: [u8; 16], proto: u8, size: u32) -> u64 {
    sum(&src) + sum(&dst) + u64::from(proto) + u64::from(size)
}

/// The checksum after the bytes that it covers changed from `old` to `new`, which have the same even length and an even
/// offset.
///
/// A wrong checksum stays wrong by the same difference. Source: RFC 1624, equation 3.
#[inline]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    apply(checksum, change(old, new))
}

/// The change of a sum when bytes change from `old` to `new`, for [`apply`]. Conditions as for [`update`].
#[inline]
pub fn change(old: &[u8], new: &[u8]) -> u64 {
    // The complement of a word is 0xffff minus the word.
    let ones = 0xffff * (old.len() as u64 / 2);
    ones - sum_of_words(old) + sum_of_words(new)
}

/// The checksum after a [`change`].
#[inline]
pub fn apply(checksum: u16, change: u64) -> u16 {
    !fold(u64::from(!checksum) + change)
}

/// The same of UDP, whose zero says that the sender computed none: it stays so, and a sum of zero is written as all ones.
#[inline]
pub fn apply_udp(checksum: u16, change: u64) -> u16 {
    match checksum {
        0 => 0,
        _ => Some(apply(checksum, change)).filter(|new| *new != 0).unwrap_or(u16::MAX),
    }
}

/// The sum of a few 16-bit words.
#[inline]
fn sum_of_words(bytes: &[u8]) -> u64 {
    bytes.as_chunks::<2>().0.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum()
}

/// Adds the carries back until none is left: the sum modulo 2^16 - 1, zero only for zero.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32); // At most 2^33 - 2.
    let sum = (sum & 0xffff) + (sum >> 16); // At most 2^17 + 2^16 - 3.
    let sum = (sum & 0xffff) + (sum >> 16); // At most 2^16 + 1.
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// CRC32c of the bytes, as SCTP computes it over its packet with the checksum field zero.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !crc_continue(u32::MAX, bytes)
}

/// The change (XOR) of an SCTP packet's CRC32c when bytes change from `old` to `new` and `behind` unchanged bytes
/// follow.
///
/// CRC is linear: the difference of two checksums is the checksum of the difference, which is zero behind the change.
pub fn crc32c_difference(old: &[u8], new: &[u8], behind: usize) -> u32 {
    let mut crc = 0;
    for (a, b) in old.iter().zip(new) {
        crc = crc_continue(crc, &[a ^ b]);
    }
    const ZEROS: [u8; 64] = [0; 64];
    for _ in 0..behind / ZEROS.len() {
        crc = crc_continue(crc, &ZEROS);
    }
    crc_continue(crc, &ZEROS[..behind % ZEROS.len()])
}

/// The checksum register after `bytes`, eight at a time.
fn crc_continue(mut crc: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word) ^ u64::from(crc);
        crc = (0..8).fold(0, |crc, i| crc ^ CRC_TABLE[7 - i][usize::from((word >> (8 * i)) as u8)]);
    }
    rest.iter().fold(crc, |crc, byte| crc >> 8 ^ CRC_TABLE[0][usize::from(crc as u8 ^ byte)])
}

/// `CRC_TABLE[k][b]`: the register after byte `b` and `k` zero bytes. 8 KiB.
static CRC_TABLE: [[u32; 256]; 8] = {
    /// The Castagnoli polynomial, bits reversed. Source: RFC 9260, appendix A.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[0][i] = crc;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            let before = table[k - 1][i];
            table[k][i] = before >> 8 ^ table[0][(before & 0xff) as usize];
            i += 1;
        }
        k += 1;
    }
    table
};
