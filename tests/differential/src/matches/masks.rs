//! Values under masks, and their text.

use crate::rng::Rng;
use crate::values::{ipv4_text, ipv6_text, mac_text};

pub fn ones(bits: u32) -> u128 {
    if bits == 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// A value under an exact or an arbitrary mask, never an empty one.
pub fn masked(value: u128, rng: &mut Rng, bits: u32) -> (u128, u128) {
    let mask = match rng.below(4) {
        0 | 1 => ones(bits),
        2 => rng.wide() & rng.wide() & ones(bits),
        _ => 1 << rng.below(bits as usize),
    };
    let mask = if mask == 0 { 1 } else { mask };
    (value & mask, mask)
}

/// As [`masked`], mostly prefixes.
pub fn address_mask(value: u128, rng: &mut Rng, bits: u32) -> (u128, u128) {
    if rng.chance(15) {
        return masked(value, rng, bits);
    }
    let prefix = match rng.below(5) {
        0 => bits,
        1 => bits / 4,
        2 => bits / 4 * 3,
        _ => 1 + rng.below(bits as usize) as u32,
    };
    let mask = ones(bits) << (bits - prefix) & ones(bits);
    (value & mask, mask)
}

/// OVS reads a mask that begins with a decimal digit as a prefix length, so one that is no prefix begins with `f`.
pub fn ipv6_mask(value: u128, rng: &mut Rng) -> (u128, u128) {
    let (masked, mask) = address_mask(value, rng, 128);
    if mask == u128::MAX << (128 - mask.count_ones()) {
        (masked, mask)
    } else {
        (value & (mask | 0xf << 124), mask | 0xf << 124)
    }
}

pub fn port_mask(value: u16, rng: &mut Rng) -> (u128, u128) {
    let mask = match rng.below(4) {
        0 => 0xffff << rng.below(16) & 0xffff,
        1 => (1 + rng.below(0xffff)) as u128,
        _ => 0xffff,
    };
    (u128::from(value) & mask, mask)
}

pub fn hex(field: &str, value: u128, mask: u128, bits: u32) -> String {
    if mask == ones(bits) { format!("{field}={value:#x}") } else { format!("{field}={value:#x}/{mask:#x}") }
}

pub fn ipv4_term(field: &str, value: u128, mask: u128) -> String {
    let length = mask.count_ones();
    let value = ipv4_text(value as u32);
    if mask == ones(32) {
        format!("{field}={value}")
    } else if mask == (ones(32) << (32 - length) & ones(32)) {
        format!("{field}={value}/{length}")
    } else {
        format!("{field}={value}/{}", ipv4_text(mask as u32))
    }
}

pub fn ipv6_term(field: &str, value: u128, mask: u128) -> String {
    let length = mask.count_ones();
    let value = ipv6_text(value);
    if mask == u128::MAX {
        format!("{field}={value}")
    } else if mask == u128::MAX << (128 - length) {
        format!("{field}={value}/{length}")
    } else {
        format!("{field}={value}/{}", ipv6_text(mask))
    }
}

pub fn mac_term(field: &str, value: u128, mask: u128) -> String {
    if mask == ones(48) {
        format!("{field}={}", mac_text(value as u64))
    } else {
        format!("{field}={}/{}", mac_text(value as u64), mac_text(mask as u64))
    }
}
