//! Checksums that a local sender left undone, without any indication.
//!
//! XDP delivers a frame's bytes and no offload information. In a checksum that a local stack left to the device, there
//! is the pseudo header's sum. A frame with exactly that sum is completed. If its checksum was nevertheless correct
//! (one in 65,536), completing it gives the same value; a corrupted frame becomes correct equally rarely.

use sluice_packet::headers::ip_proto;
use sluice_packet::{Layers, checksum};

/// Completes a TCP or UDP checksum that holds the pseudo header's sum.
pub(super) fn complete(frame: &mut [u8]) {
    if let Some((l4, end, at)) = unfinished(frame) {
        let sum = checksum::finish(checksum::sum(&frame[l4..end]));
        // RFC 768: a computed 0 is sent as all ones. For TCP both mean the same.
        let sum = if sum == 0 { 0xffff } else { sum };
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Where the L4 header begins, where the packet ends, and where its checksum is, if it is undone.
fn unfinished(frame: &[u8]) -> Option<(usize, usize, usize)> {
    let layers = Layers::of(frame)?;
    let ip = layers.ip?;
    let (proto, l4) = layers.l4()?;
    if ip.rerouted || ip.payload?.frag != 0 {
        return None;
    }
    let at = match proto {
        ip_proto::TCP => l4 + 16,
        ip_proto::UDP => l4 + 6,
        _ => return None,
    };
    let [high, low] = *frame.get(at..at + 2)?.first_chunk()?;
    if at + 2 > ip.end {
        return None;
    }
    let addresses = if ip.v6 { layers.l3 + 8..layers.l3 + 40 } else { layers.l3 + 12..layers.l3 + 20 };
    let pseudo = checksum::sum(&frame[addresses]) + u64::from(proto) + (ip.end - l4) as u64;
    (u16::from_be_bytes([high, low]) == !checksum::finish(pseudo)).then_some((l4, ip.end, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame with a partial checksum, and where the checksum is.
    fn frame(v6: bool, proto: u8, payload: &[u8], padding: usize) -> (Vec<u8>, usize) {
        let mut frame = vec![2; 12];
        let l4_size = if proto == ip_proto::TCP { 20 } else { 8 } + payload.len();
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, l4_size as u8, proto, 64]);
            frame.extend([0xfe; 32]);
        } else {
            frame.extend([8, 0, 0x45, 0, 0, 20 + l4_size as u8, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let l4 = frame.len();
        frame.extend([0, 80, 1, 0]);
        match proto {
            ip_proto::TCP => frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]),
            _ => frame.extend([0, l4_size as u8, 0, 0]),
        }
        frame.extend(payload);
        let addresses = if v6 { l4 - 32..l4 } else { l4 - 8..l4 };
        let pseudo = !checksum::finish(checksum::sum(&frame[addresses]) + u64::from(proto) + l4_size as u64);
        let at = l4 + if proto == ip_proto::TCP { 16 } else { 6 };
        frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame.extend(vec![0xee; padding]);
        (frame, at)
    }

    proptest! {
        /// A partial checksum is completed once; a correct one stays.
        #[test]
        fn partial_becomes_right(v6: bool, is_tcp: bool, payload in prop::collection::vec(any::<u8>(), 0..100), padding in 0usize..20) {
            let proto = if is_tcp { ip_proto::TCP } else { ip_proto::UDP };
            let (mut bytes, at) = frame(v6, proto, &payload, padding);
            complete(&mut bytes);
            let end = bytes.len() - padding;
            let l4 = at - if is_tcp { 16 } else { 6 };
            let addresses = if v6 { l4 - 32..l4 } else { l4 - 8..l4 };
            let sum = checksum::sum(&bytes[addresses]) + u64::from(proto) + (end - l4) as u64 + checksum::sum(&bytes[l4..end]);
            prop_assert_eq!(checksum::finish(sum), 0);
            let right = bytes.clone();
            complete(&mut bytes);
            prop_assert_eq!(bytes, right);
        }

        /// A packet too short for the checksum has none, whatever padding follows.
        #[test]
        fn padding_is_no_checksum(len in 0u8..18) {
            let (mut bytes, at) = frame(false, ip_proto::TCP, &[], 0);
            let l4 = at - 16;
            bytes[17] = 20 + len;
            let pseudo = !checksum::finish(checksum::sum(&bytes[l4 - 8..l4]) + u64::from(ip_proto::TCP) + u64::from(len));
            bytes[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            let before = bytes.clone();
            complete(&mut bytes);
            prop_assert_eq!(bytes, before);
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..80), v6: bool, cut in 0usize..80) {
            complete(&mut bytes);
            let (mut bytes, _) = frame(v6, ip_proto::TCP, &[1, 2, 3], 0);
            bytes.truncate(cut);
            complete(&mut bytes);
        }
    }
}
