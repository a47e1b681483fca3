//! What tunnels need of the rest of the switch: devices, their addresses, routes, and questions for neighbours.

use super::Switch;
use crate::kernel_routes::MAPPED_BITS;
use sluice_flow::{FieldId, Mac, Match, Metadata, OfPort, PacketKey, extract};
use sluice_ofp::OfAction;
use sluice_ofproto::{DeviceAddresses, NeighbourRequest, PacketOutRequest};
use std::collections::{BTreeMap, BTreeSet};
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

impl Switch {
    /// Tells the tables which addresses devices have and which routes the kernel has: to the addresses of ports come the
    /// packets of tunnels, and from them they leave.
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
        let mut routes = self.kernel_routes.lock().read().to_vec();
        let mut addresses = kernel_addresses();
        // The kernel knows nothing of a dummy's addresses.
        routes.retain(|route| !dummies.contains_key(&route.device));
        addresses.extend(dummies.clone());
        let macs = self.port_device_macs();
        // A device that is no port has addresses for routes only: no header gets its Ethernet address.
        let names = addresses.keys().chain(macs.keys()).collect::<BTreeSet<_>>();
        let device = |name: &String| DeviceAddresses {
            mac: macs.get(name).copied().unwrap_or(Mac([0; 6])),
            addresses: addresses.get(name).cloned().unwrap_or_default(),
        };
        let devices: BTreeMap<_, _> = names.into_iter().map(|name| (name.clone(), device(name))).collect();
        for name in dummies.keys() {
            routes.extend(devices.get(name).into_iter().flat_map(|device| device.routes(name)));
        }
        self.ofproto.set_devices(devices, routes);
    }

    /// The Ethernet addresses of the devices of ports.
    fn port_device_macs(&self) -> BTreeMap<String, Mac> {
        let infos = self.datapath.port_infos();
        let setup = self.setup();
        let of_port = |(name, entry): (&String, &crate::ports::PortEntry)| {
            Some((name.clone(), Mac(infos.get(&entry.number?)?.mac)))
        };
        setup.assembly.ports().iter().filter_map(of_port).collect()
    }

    /// Has the routes of the kernel not be used: tunnels go by those of users and of dummy devices.
    pub fn disable_kernel_routes(&self) {
        self.kernel_routes.lock().disable();
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
