//! `qos/show`, `qos/show-types`: what ports may send. Source: Open vSwitch vswitchd/bridge.c, `qos_unixctl_show`.

use super::Reply;
use sluice_vswitch::{PortStatus, QueueStatus, Switch, qos_types};
use std::fmt::Write;

/// The QoS of an interface that is in force, with the counters of its queues.
pub fn show(switch: &Switch, args: &[&str]) -> Reply {
    let port = interface(switch, args[0])?;
    let Some(qos) = port.number.filter(|_| port.tunnel.is_none()).and_then(|number| switch.qos(number)) else {
        return Ok(format!("QoS not configured on {}\n", port.name));
    };
    let mut text = format!("QoS: {} {}\n", port.name, qos.kind);
    for (key, value) in &qos.settings {
        let _ = writeln!(text, "{key}: {value}");
    }
    qos.queues.iter().for_each(|(number, queue)| put_queue(*number, queue, &mut text));
    Ok(text)
}

fn put_queue(number: u32, queue: &QueueStatus, text: &mut String) {
    let title = if number == 0 { "Default".to_owned() } else { format!("Queue {number}") };
    let _ = writeln!(text, "\n{title}:");
    for (key, value) in &queue.settings {
        let _ = writeln!(text, "  {key}: {value}");
    }
    let _ = match &queue.counters {
        Ok(n) => {
            writeln!(text, "  tx_packets: {}\n  tx_bytes: {}\n  tx_errors: {}", n.tx_packets, n.tx_bytes, n.tx_errors)
        }
        Err(error) => writeln!(text, "  Failed to get statistics for queue {number}: {error}"),
    };
}

/// The types of QoS that an interface may have.
pub fn show_types(switch: &Switch, args: &[&str]) -> Reply {
    let port = interface(switch, args[0])?;
    let types = port.kind.as_deref().map_or(&[][..], qos_types);
    if types.is_empty() {
        return Ok(format!("No QoS types supported for interface: {}\n", port.name));
    }
    Ok(types.iter().map(|kind| format!("QoS type: {kind}\n")).collect())
}

fn interface(switch: &Switch, name: &str) -> Result<PortStatus, String> {
    let mut ports = switch.port_status().into_values().flatten();
    ports.find(|port| port.name == name).ok_or_else(|| "no such interface".to_owned())
}
