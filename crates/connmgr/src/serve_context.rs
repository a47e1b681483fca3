//! What the threads of a listener or a controller have in common.

use crate::conn_mgr::ConnMgr;
use crate::end_signal::EndSignal;
use crate::switch::Switch;
use std::io;
use std::sync::Arc;

/// What the threads of a listener or a controller have in common.
#[derive(Clone)]
pub struct ServeContext {
    /// The connections of their bridge.
    pub conn_mgr: Arc<ConnMgr>,
    /// The switch.
    pub switch: Arc<Switch>,
    /// Asks them to end.
    pub end: Arc<EndSignal>,
    /// OpenFlow versions that the bridge speaks, as bits.
    pub versions: u32,
    /// Whether the listener is the bridge's management socket.
    pub is_management: bool,
}

impl ServeContext {
    /// The same for another listener or controller, which ends by itself.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn for_another(&self) -> io::Result<ServeContext> {
        Ok(ServeContext { end: Arc::new(EndSignal::new()?), ..self.clone() })
    }

    /// The bridge's name.
    pub fn bridge(&self) -> &str {
        &self.conn_mgr.bridge
    }
}
