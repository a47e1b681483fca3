//! What becomes of ports by themselves: devices that can be opened at last, links, MTUs.

use crate::assembly::Assembly;
use crate::desired::{ETHERNET_MTU, Port};
use crate::error::Error;
use sluice_action::PortNo;
use sluice_port::LinkChanges;
use std::collections::BTreeMap;

impl Assembly {
    /// Tries again to open the ports that could not be, if it is time.
    pub fn retry_ports(&mut self) {
        let due = self.ports.values().filter(|entry| entry.is_due());
        let due: Vec<_> = due.filter_map(|entry| Some((entry.number?, entry.desired.clone()))).collect();
        for (number, port) in due {
            let opened = self.open_port(number, &port);
            let Some(entry) = self.ports.get_mut(&port.name) else { continue };
            match opened {
                Ok(()) => {
                    tracing::info!("bridge {}: port {} could be opened now", entry.bridge, port.name);
                    entry.closed = None;
                }
                Err(error) => {
                    if entry.error() != Some(&error.to_string()) {
                        tracing::error!("{error}");
                    }
                    entry.failed(&error);
                }
            }
        }
    }

    /// Tells the tables of links that went up or down; whether any did.
    pub fn watch_links(&mut self) -> bool {
        let links = self.datapath().links();
        self.tell_links(&links)
    }

    /// The same for the ports of devices that changed.
    pub fn follow_links(&mut self, changes: &LinkChanges) -> bool {
        let links = self.datapath().changed_links(changes);
        self.tell_links(&links)
    }

    fn tell_links(&mut self, links: &BTreeMap<PortNo, bool>) -> bool {
        let ofproto = self.ofproto().clone();
        let mut changed = Vec::new();
        for (name, entry) in &mut self.ports {
            let is_up = entry.number.and_then(|number| links.get(&number).copied());
            let Some(is_up) = is_up.filter(|is_up| *is_up != entry.is_up) else { continue };
            entry.is_up = is_up;
            changed.extend(entry.number);
            tracing::info!("bridge {}: port {name} is {}", entry.bridge, if is_up { "up" } else { "down" });
            if let Err(error) = ofproto.set_port(&entry.bridge, name, |port| port.up = is_up) {
                tracing::warn!("bridge {}: port {name}: {error}", entry.bridge);
            }
        }
        let has_changed = !changed.is_empty();
        self.follow_qos(changed);
        has_changed
    }

    /// Gives internal ports the smallest MTU of their bridge's other ports, and opens ports again whose device's user has
    /// changed its MTU.
    pub fn follow_mtus(&mut self) {
        let open: Vec<_> = self.ports.values().filter_map(|entry| Some((entry, entry.open_number()?))).collect();
        let numbers: Vec<_> = open.iter().map(|(_, number)| *number).collect();
        let devices = self.datapath().device_status(&numbers);
        let infos = self.datapath().port_infos();
        let (mut smallest, mut to_reopen) = (BTreeMap::new(), Vec::new());
        for ((entry, number), device) in open.iter().zip(devices).filter(|((entry, _), _)| !entry.desired.follows_mtu())
        {
            let (Some(device), Some(info)) = (device, infos.get(number)) else { continue };
            // The device may just have gone; then it is watched elsewhere.
            let keeps_mtu = entry.desired.mtu.is_none() && entry.desired.kind == "system";
            if keeps_mtu && device.mtu != info.mtu && device.ifindex != 0 && device.mtu != 0 {
                to_reopen.push((*number, entry.desired.clone()));
            }
            let least = smallest.entry(entry.bridge.as_str()).or_insert(device.mtu);
            *least = device.mtu.min(*least);
        }
        for (entry, number) in open.iter().filter(|(entry, _)| entry.desired.follows_mtu()) {
            let mtu = smallest.get(entry.bridge.as_str()).copied().unwrap_or(ETHERNET_MTU);
            if infos.get(number).is_some_and(|info| info.mtu == mtu) {
                continue;
            }
            match self.datapath().set_mtu(*number, mtu, &mut self.pools().lock()) {
                Ok(()) => tracing::debug!("port {}: MTU {mtu}", entry.desired.name),
                Err(error) => tracing::debug!("port {}: MTU {mtu}: {error}", entry.desired.name),
            }
        }
        to_reopen.iter().for_each(|(number, port)| self.reopen(port, *number));
    }

    /// Closes a port's device and opens it again.
    fn reopen(&mut self, port: &Port, number: PortNo) {
        let closed = self.datapath().stop_receiving(number).and_then(|()| self.datapath().del_port(number));
        let opened = closed.map_err(Error::from).and_then(|_| self.open_port(number, port));
        if let Err(error) = opened {
            tracing::info!("{error}");
            let _ = self.port_failed(&port.name, &error);
        }
    }
}
