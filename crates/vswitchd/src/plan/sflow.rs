//! A bridge's sFlow. Source: Open vSwitch vswitchd/bridge.c, `bridge_configure_sflow`.

use crate::records::BridgeRecord;
use sluice_vswitch::SFlow;

/// How a bridge is to be sampled, if it is.
pub(super) fn sflow(bridge: &BridgeRecord) -> Option<SFlow> {
    let record = bridge.sflow.as_ref()?;
    let usual = SFlow::new(record.targets.clone());
    let number = |value: Option<i64>, usual| value.and_then(|n| u32::try_from(n).ok()).unwrap_or(usual);
    let sampled = SFlow {
        sampling: number(record.sampling, usual.sampling),
        polling_s: number(record.polling, usual.polling_s),
        agent: record.agent.clone(),
        control_ip: bridge.controllers.iter().find_map(|controller| controller.local_ip),
        ..usual
    };
    let header_len = number(record.header, sampled.header_len);
    Some(sampled.with_header(header_len))
}
