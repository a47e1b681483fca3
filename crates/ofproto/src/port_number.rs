//! Ports that get other numbers in the datapath.

use crate::bridges::position;
use crate::depends::Changes;
use crate::error::Error;
use crate::ofproto::Ofproto;
use crate::port::Attach;
use crate::ports::port_number;
use sluice_action::PortNo;

impl Ofproto {
    /// Gives a port of the datapath another number there.
    ///
    /// # Errors
    /// If there is no such port, or it is none of the datapath.
    pub fn renumber_port(&self, bridge: &str, name: &str, number: PortNo) -> Result<(), Error> {
        let mut writer = self.writer();
        self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let ofport = port_number(&state.bridges[at], name)?;
            let id = state.bridges[at].id;
            let port = state.bridges[at].ports.get_mut(&ofport).expect("invariant: the number was just found");
            let Attach::Datapath(before) = port.attach else {
                return Err(Error::NoPort { bridge: bridge.to_owned(), port: name.to_owned() });
            };
            port.attach = Attach::Datapath(number);
            state.by_datapath.remove(&before.0);
            state.by_datapath.insert(number.0, (id, ofport));
            state.bridges[at].refresh_bonds();
            Ok(())
        })?;
        // Megaflows match the number.
        self.announce(&Changes::everything());
        Ok(())
    }
}
