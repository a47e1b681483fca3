//! What tunnels need of the rest of the switch: the addresses of its devices, and questions for neighbours.

use super::Switch;
use sluice_flow::{FieldId, Mac, Match, Metadata, OfPort, PacketKey, extract};
use sluice_ofp::OfAction;
use sluice_ofproto::{DeviceAddresses, NeighbourRequest, PacketOutRequest};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// The addresses of the kernel's devices, by device. Those of links reach no other end of a tunnel.
fn kernel_addresses() -> BTreeMap<String, Vec<(Ipv6Addr, u8)>> {
    let all = sluice_port::device_addresses().unwrap_or_else(|error| {
        tracing::debug!("addresses of devices: {error}");
        BTreeMap::new()
    });
    let mapped = |(address, prefix): (IpAddr, u8)| match address {
        IpAddr::V4(address) => Some((address.to_ipv6_mapped(), prefix + MAPPED_BITS)),
        IpAddr::V6(address) => (!address.is_unicast_link_local()).then_some((address, prefix)),
    };
    let of_device = |(name, addresses): (String, Vec<_>)| (name, addresses.into_iter().filter_map(mapped).collect());
    all.into_iter().map(of_device).collect()
}

/// Bits in front of the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED_BITS: u8 = 96;

impl Switch {
    /// Tells the tables which addresses the devices of ports have: to these come the packets of tunnels, and from them
    /// they leave.
    pub fn refresh_devices(&self) {
        let dummies: BTreeMap<String, Vec<(Ipv6Addr, u8)>> = self
            .datapath
            .dummies()
            .into_iter()
            .map(|device| {
                let v4 = device.ipv4().map(|(own, prefix)| (own.to_ipv6_mapped(), prefix + MAPPED_BITS));
                (device.name().to_owned(), v4.into_iter().chain(device.ipv6()).collect())
            })
            .collect();
        let kernel = kernel_addresses();
        let infos = self.datapath.port_infos();
        let setup = self.setup();
        let devices = setup.assembly.ports().iter().filter_map(|(name, entry)| {
            let mac = Mac(infos.get(&entry.number?)?.mac);
            let addresses = dummies.get(name).or_else(|| kernel.get(name)).cloned().unwrap_or_default();
            Some((name.clone(), DeviceAddresses { mac, addresses }))
        });
        let devices = devices.collect();
        drop(setup);
        self.ofproto.set_devices(devices);
    }

    /// Sends the questions for neighbours that wait to be sent; whether there were any.
    pub(super) fn send_neighbour_requests(&self) -> bool {
        let requests = self.ofproto.take_neighbour_requests();
        requests.iter().for_each(|request| self.send_neighbour_request(request));
        !requests.is_empty()
    }

    /// Sends a question by the tables of its bridge, as if the device that asks had sent it.
    fn send_neighbour_request(&self, request: &NeighbourRequest) {
        let bytes = sluice_tunnel::solicit(request.mac.0, request.src, request.target);
        let mut key = PacketKey::ZERO;
        let read = extract(&bytes, &Metadata::of_port(0), &mut key);
        debug_assert!(read.is_ok(), "invariant: it begins with Ethernet");
        let Some(port) = self.port_names(&request.bridge).port(&request.device) else { return };
        let mut metadata = Match::ANY;
        metadata.set_masked(FieldId::InPort, port.0.into(), 0xffff);
        let actions = vec![OfAction::Output { port: OfPort::TABLE, max_len: 0 }];
        let packet = PacketOutRequest::new(&key, &metadata, actions, bytes.len() as u64);
        let sent = self.ofproto.packet_out(&request.bridge, &packet, self.now_ms());
        let pool = self.setup().assembly.pool(bytes.len());
        if let (Ok(translated), Ok(pool)) = (sent, pool) {
            let (known, actions) = (translated.known, translated.actions);
            self.datapath.execute(sluice_datapath::PacketOut { known, bytes, actions, pool, charge: None });
        }
    }
}
