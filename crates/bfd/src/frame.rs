//! The Ethernet frame that carries a control packet: IPv4 and UDP, RFC 5881 section 4.

use crate::config::Config;
use crate::packet::{ControlPacket, PACKET_LEN};

/// The port that control packets go to.
pub const UDP_PORT: u16 = 3784;

const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;

/// The length of the frame, bytes.
pub const FRAME_LEN: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN + PACKET_LEN;

/// The destination by default. Source: Open vSwitch, `eth_addr_bfd`.
const DST_MAC: [u8; 6] = [0x00, 0x23, 0x20, 0x00, 0x00, 0x01];

/// Precedence "internetwork control".
const TOS: u8 = 0xc0;
const TTL: u8 = 255;
const PROTO_UDP: u8 = 17;

/// Who sends: the port's address and the session's UDP port.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub mac: [u8; 6],
    pub udp_src: u16,
}

/// The frame. UDP has no checksum, as in Open vSwitch: the protocol needs none over IPv4.
pub fn compose(packet: &ControlPacket, config: &Config, sender: Sender) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    frame[..6].copy_from_slice(&config.local_dst_mac.unwrap_or(DST_MAC));
    frame[6..12].copy_from_slice(&config.local_src_mac.unwrap_or(sender.mac));
    frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    let ip = &mut frame[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN];
    (ip[0], ip[1], ip[8], ip[9]) = (0x45, TOS, TTL, PROTO_UDP);
    ip[2..4].copy_from_slice(&((IPV4_LEN + UDP_LEN + PACKET_LEN) as u16).to_be_bytes());
    ip[12..16].copy_from_slice(&config.src_ip.octets());
    ip[16..20].copy_from_slice(&config.dst_ip.octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = &mut frame[ETHERNET_LEN + IPV4_LEN..];
    udp[..2].copy_from_slice(&sender.udp_src.to_be_bytes());
    udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&((UDP_LEN + PACKET_LEN) as u16).to_be_bytes());
    udp[UDP_LEN..].copy_from_slice(&packet.encode());
    frame
}

/// The checksum of an IPv4 header, RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// The time to live and the UDP payload of a received frame, VLAN tags or not. `None` if it is no whole UDP packet.
pub fn read(frame: &[u8]) -> Option<(u8, &[u8])> {
    const TAG_LEN: usize = 4;
    let mut rest = frame.get(12..)?;
    while let [0x81, 0x00, ..] | [0x88, 0xa8, ..] = rest {
        rest = rest.get(TAG_LEN..)?;
    }
    let ip = rest.strip_prefix(&[0x08, 0x00])?;
    let (&first, &ttl, &protocol) = (ip.first()?, ip.get(8)?, ip.get(9)?);
    let header_len = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || header_len < IPV4_LEN || protocol != PROTO_UDP {
        return None;
    }
    let udp = ip.get(header_len..)?;
    let length = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    // What pads a short frame is not payload.
    Some((ttl, udp.get(UDP_LEN..length.min(udp.len()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_sums_to_nothing_and_macs_can_be_chosen() {
        let sender = Sender { mac: [2, 0, 0, 0, 0, 1], udp_src: 49152 };
        let plain = compose(&ControlPacket::outgoing(), &Config::default(), sender);
        assert_eq!(checksum(&plain[14..34]), 0, "with its checksum");
        let payload = ControlPacket::outgoing().encode();
        assert_eq!(read(&plain), Some((TTL, &payload[..])));
        let padded = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..], &[0; 9]].concat();
        assert_eq!(read(&padded), Some((TTL, &payload[..])), "tagged and padded");
        let within = FRAME_LEN - PACKET_LEN;
        (0..within).for_each(|n| assert_eq!(read(&plain[..n]), None, "{n} bytes"));
        let mut lying = plain;
        lying[within - 4..within - 2].copy_from_slice(&[0, 7]);
        assert_eq!(read(&lying), None, "shorter than its header");
        assert_eq!((&plain[..6], &plain[6..12]), (&DST_MAC[..], &sender.mac[..]));
        let chosen = Config { local_src_mac: Some([4; 6]), local_dst_mac: Some([6; 6]), ..Config::default() };
        let frame = compose(&ControlPacket::outgoing(), &chosen, sender);
        assert_eq!((&frame[..6], &frame[6..12]), (&[6; 6][..], &[4; 6][..]));
    }
}
