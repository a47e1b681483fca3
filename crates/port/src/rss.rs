//! Receive side scaling: the hash by which a NIC spreads flows over its queues.

use sluice_packet::headers::ip_proto;

/// The default key of NICs. Source: Microsoft, "Verifying the RSS hash calculation".
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// The Toeplitz hash of a frame: of its IP addresses, and of its ports if it is TCP, UDP or SCTP and no fragment. 0 for
/// all other frames.
///
/// The key is public, so a sender can choose the hash: use it to spread load, and for nothing else.
pub fn rss_hash(frame: &[u8]) -> u32 {
    let mut input = [0; 36];
    match input_of(frame, &mut input) {
        Some(len) => toeplitz(&input[..len]),
        None => 0,
    }
}

/// The queue, of `queues`, for a frame with that hash.
pub fn rss_queue(hash: u32, queues: usize) -> usize {
    // As in NICs whose indirection table's 128 entries are filled in turn. Source: DPDK, RTE_ETH_RSS_RETA_SIZE_128.
    (hash & 127) as usize % queues
}

fn toeplitz(input: &[u8]) -> u32 {
    let mut window = u64::from_be_bytes(*KEY.first_chunk().expect("invariant: 40 bytes"));
    let mut hash = 0;
    for (i, byte) in input.iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= (window >> 32) as u32;
            }
            window <<= 1;
        }
        window |= u64::from(KEY.get(i + 8).copied().unwrap_or(0));
    }
    hash
}

/// Writes the hashed part of a frame into `input`. Returns its length.
fn input_of(frame: &[u8], input: &mut [u8; 36]) -> Option<usize> {
    let mut at = 12;
    let mut ethertype = frame.get(at..at + 2)?;
    for _ in 0..2 {
        if matches!(ethertype, [0x81, 0x00] | [0x88, 0xa8]) {
            at += 4;
            ethertype = frame.get(at..at + 2)?;
        }
    }
    let packet = frame.get(at + 2..)?;
    let (addresses, protocol, l4) = match ethertype {
        [0x08, 0x00] => {
            let header = packet.get(..20)?;
            let is_fragment = (u16::from_be_bytes([header[6], header[7]]) & 0x3fff) != 0;
            let l4 = packet.get(usize::from(header[0] & 15) * 4..).filter(|_| !is_fragment);
            (&header[12..20], header[9], l4)
        }
        [0x86, 0xdd] => {
            let header = packet.get(..40)?;
            (&header[8..40], header[6], packet.get(40..))
        }
        _ => return None,
    };
    let ports = l4
        .and_then(|l4| l4.get(..4))
        .filter(|_| matches!(protocol, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP))
        .unwrap_or(&[]);
    input[..addresses.len()].copy_from_slice(addresses);
    input[addresses.len()..addresses.len() + ports.len()].copy_from_slice(ports);
    Some(addresses.len() + ports.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 frame.
    fn ipv4(src: [u8; 4], dst: [u8; 4], protocol: u8, ports: [u16; 2], tags: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        frame.extend([8, 0, 0x45, 0, 0, 24, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend(src.iter().chain(&dst));
        ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
        frame
    }

    /// Source of the numbers: Microsoft, "Verifying the RSS hash calculation".
    #[test]
    fn the_published_vectors() {
        for (dst, dport, src, sport, with_ports, without) in [
            ([161, 142, 100, 80], 1766, [66, 9, 149, 187], 2794, 0x51cc_c178, 0x323e_8fc2),
            ([65, 69, 140, 83], 4739, [199, 92, 111, 2], 14_230, 0xc626_b0ea, 0xd718_262a),
            ([12, 22, 207, 184], 38_024, [24, 19, 198, 95], 12_898, 0x5c2b_394a, 0xd2d0_a5de),
        ] {
            for tags in 0..3 {
                assert_eq!(rss_hash(&ipv4(src, dst, 6, [sport, dport], tags)), with_ports);
                assert_eq!(rss_hash(&ipv4(src, dst, 1, [sport, dport], tags)), without);
            }
            let mut fragment = ipv4(src, dst, 17, [sport, dport], 0);
            fragment[20] = 0x20;
            assert_eq!(rss_hash(&fragment), without);
        }
        let mut v6 = vec![0; 12];
        v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 4, 6, 64]);
        v6.extend("3ffe:2501:200:1fff::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
        v6.extend("3ffe:2501:200:3::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        v6.extend(2794u16.to_be_bytes().into_iter().chain(1766u16.to_be_bytes()));
        assert_eq!(rss_hash(&v6), 0x4020_7d3d);
    }

    #[test]
    fn a_cut_frame_is_hashed_by_what_it_has() {
        let whole = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, [9, 10], 1);
        for len in 0..whole.len() {
            let hash = rss_hash(&whole[..len]);
            assert_eq!(hash != 0, len >= 38, "{len}");
        }
        assert!((0..1000).all(|hash| rss_queue(hash, 3) < 3));
    }
}
