//! The ports that have BFD sessions.

use crate::ofproto::Ofproto;
use crate::port::PortConfig;

/// A port with a BFD session.
#[derive(Clone, Debug)]
pub struct BfdPort {
    /// The number of its bridge, as [`sluice_action::Action::Bfd`] has it.
    pub bridge_id: u32,
    /// That bridge.
    pub bridge: String,
    /// The port.
    pub port: PortConfig,
}

impl Ofproto {
    /// The ports that have BFD sessions.
    pub fn bfd_ports(&self) -> Vec<BfdPort> {
        let state = self.state();
        let ports = state.bridges.iter().flat_map(|bridge| bridge.ports.values().map(move |port| (bridge, port)));
        let with_session = ports.filter(|(_, port)| port.bfd.is_some());
        let found = with_session.map(|(bridge, port)| BfdPort {
            bridge_id: bridge.id.0,
            bridge: bridge.name().to_owned(),
            port: port.clone(),
        });
        found.collect()
    }
}
