//! The other ends of patch ports.

use crate::bridges::position;
use crate::depends::Changes;
use crate::error::Error;
use crate::ofproto::Ofproto;
use crate::port::Attach;
use crate::ports::port_number;

impl Ofproto {
    /// Joins a patch port to another one. Nothing else of the port changes.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_peer(&self, bridge: &str, name: &str, peer: &str) -> Result<(), Error> {
        let mut writer = self.writer();
        self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let number = port_number(&state.bridges[at], name)?;
            let port = state.bridges[at].ports.get_mut(&number).expect("invariant: the number was just found");
            if let Attach::Patch(before) = &mut port.attach {
                peer.clone_into(before);
            }
            Ok(())
        })?;
        self.announce(&Changes::everything());
        Ok(())
    }
}
