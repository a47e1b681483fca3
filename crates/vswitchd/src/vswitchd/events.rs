//! Events of the database session: logged in Open vSwitch's words, and what follows from them.

use super::{Vswitchd, Writing};
use sluice_ovsdb::{DisconnectReason, Event, LockState};

impl Vswitchd {
    pub(super) fn handle_events(&mut self, now_ms: u64) {
        while let Some(event) = self.client.session_mut().next_event() {
            log(&event);
            match event {
                Event::Synced => self.was_synced = true,
                Event::Finished(id, status) => {
                    if self.writing == Writing::UnderWay(id) {
                        self.written(&status);
                    }
                    self.status.finished(id, &status, now_ms);
                    self.statistics.finished(id, &status, now_ms);
                }
                _ => {}
            }
        }
    }
}

/// Source: Open vSwitch lib/reconnect.c, vswitchd/bridge.c.
fn log(event: &Event) {
    match event {
        Event::Connecting(_) | Event::Connected(_) => tracing::info!(target: "reconnect", "{event}"),
        Event::Disconnected {
            reason: DisconnectReason::ConnectFailed(_) | DisconnectReason::ConnectTimeout, ..
        } => {
            tracing::info!(target: "reconnect", "{event}");
        }
        Event::Disconnected { reason: DisconnectReason::Silence { .. }, .. } => {
            tracing::error!(target: "reconnect", "{event}");
        }
        Event::Disconnected { .. } => tracing::info!(target: "reconnect", "{event}"),
        Event::Lock(LockState::Contended) => tracing::error!(
            target: "bridge",
            "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away",
            std::process::id()
        ),
        Event::Lacking(_) => tracing::info!(target: "ovsdb_idl", "{event}"),
        Event::Lock(_) | Event::Synced | Event::MonitorCanceled | Event::Finished(..) => {
            tracing::debug!(target: "ovsdb_idl", "{event}");
        }
    }
}
