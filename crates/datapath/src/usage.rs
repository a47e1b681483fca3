//! How much of what the datapath bounds is in use.

use crate::capture::CAPTURES_MAX;
use crate::datapath::Datapath;
use crate::session_packets::SessionProtocol;
use sluice_fate::Limit;

impl Datapath {
    /// How much of a resource is in use, and its bound; `None` if it is not of the datapath. Where ports, bridges or PMDs
    /// have a bound each, it is the one that is nearest to it.
    pub fn limit_usage(&self, limit: Limit) -> Option<(usize, usize)> {
        let factory = self.factory();
        Some(match limit {
            Limit::DeletionNotices => self.deletion_notices(),
            Limit::Masks => factory.table.mask_usage(),
            Limit::PacketIns => factory.punts.usage(),
            Limit::SessionPackets => {
                let [a, b] = SessionProtocol::ALL.map(|protocol| factory.punts.sessions(protocol).usage());
                a.max(b)
            }
            Limit::SFlowSamples => factory.punts.samples.usage(),
            Limit::Captures => (self.captures(), CAPTURES_MAX),
            Limit::CapturedPackets => self.captured_usage(),
            Limit::Fragments => {
                let status = self.fragments().status();
                (status.held, status.held_max)
            }
            Limit::Expectations => self.conntrack().expectation_usage(),
            Limit::CtConnections => {
                let conntrack = self.conntrack();
                (conntrack.connections() as usize, conntrack.connections_max() as usize)
            }
            _ => return None,
        })
    }
}
