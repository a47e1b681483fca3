//! `bridge.port.ingress-policing` and `bridge.port.qos`.

use serde::Deserialize;
use sluice_policer::PolicingRates;
use sluice_vswitch::Invalid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a port may receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct IngressPolicing {
    /// Kilobits a second; 0: no limit.
    pub rate: u32,
    /// The burst of it, kilobits; 0: 8000.
    pub burst: u32,
    /// Thousands of packets a second; 0: no limit.
    pub kpkts_rate: u32,
    /// The burst of it, thousands of packets; 0: 16.
    pub kpkts_burst: u32,
}

/// What a port may send, and by which queues.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Qos {
    /// A type that `qos/show-types` lists for the port.
    #[serde(rename = "type")]
    pub kind: String,
    /// What its type wants to know.
    #[serde(default)]
    pub other_config: BTreeMap<String, toml::Value>,
    /// Its queues, by number.
    #[serde(default)]
    pub queues: BTreeMap<String, Queue>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Queue {
    /// The DSCP with which its packets leave.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// What the type wants to know of it.
    #[serde(default)]
    pub other_config: BTreeMap<String, toml::Value>,
}

impl IngressPolicing {
    pub(super) fn desired(self) -> PolicingRates {
        let IngressPolicing { rate, burst, kpkts_rate, kpkts_burst } = self;
        PolicingRates { kbits: rate, kbits_burst: burst, kpkts: kpkts_rate, kpkts_burst }
    }
}

impl Qos {
    pub(super) fn desired(&self, port_kind: &str) -> Result<Arc<sluice_vswitch::Qos>, Invalid> {
        let types = sluice_vswitch::qos_types(port_kind);
        if !types.contains(&self.kind.as_str()) {
            let expected = match types {
                [] => format!("ports of type {port_kind} have no QoS"),
                types => format!("expected one of {}", types.join(", ")),
            };
            return Err(Invalid::new("qos.type", format!("\"{}\"; {expected}", self.kind)));
        }
        let queues = self.queues.iter().map(|(number, queue)| {
            let key = format!("qos.queues.{number}");
            let number = number.parse().map_err(|_| Invalid::new(&*key, "expected the number of a queue"))?;
            if queue.dscp.is_some_and(|dscp| dscp > 63) {
                return Err(Invalid::new(format!("{key}.dscp"), "expected 0 to 63"));
            }
            let settings = settings(&format!("{key}.other-config"), &queue.other_config)?;
            Ok((number, sluice_vswitch::Queue { dscp: queue.dscp, settings }))
        });
        Ok(Arc::new(sluice_vswitch::Qos {
            kind: self.kind.clone(),
            settings: settings("qos.other-config", &self.other_config)?,
            queues: queues.collect::<Result<_, _>>()?,
        }))
    }
}

/// Settings as text.
fn settings(within: &str, config: &BTreeMap<String, toml::Value>) -> Result<BTreeMap<String, String>, Invalid> {
    let settings = config.iter().map(|(key, value)| match value {
        toml::Value::String(text) => Ok((key.clone(), text.clone())),
        toml::Value::Integer(number) => Ok((key.clone(), number.to_string())),
        _ => Err(Invalid::new(format!("{within}.{key}"), "expected a number or a string")),
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_and_settings_are_read_and_mistakes_are_named() {
        let read = |text: &str, kind: &str| {
            let qos: Qos = toml::from_str(text).unwrap();
            qos.desired(kind).map_err(|invalid| invalid.to_string())
        };
        let text = "type = 'linux-htb'\nother-config = { max-rate = 8000 }\nqueues = { 1 = { dscp = 46 }, 0 = {} }";
        let qos = read(text, "system").unwrap();
        assert_eq!((&*qos.settings["max-rate"], qos.queues[&1].dscp, qos.queues.len()), ("8000", Some(46), 2));
        let error = |text: &str, kind: &str| read(text, kind).unwrap_err();
        assert!(error("type = 'linux-htb'", "null").ends_with("expected one of egress-policer, trtcm-policer"));
        assert!(error("type = 'linux-htb'", "patch").ends_with("ports of type patch have no QoS"));
        let queue = |queue: &str| error(&format!("type = 'linux-htb'\nqueues = {{ {queue} }}"), "tap");
        assert!(queue("x = {}").starts_with("qos.queues.x"));
        assert!(queue("1 = { dscp = 64 }").starts_with("qos.queues.1.dscp"));
        assert!(queue("1 = { other-config = { max-rate = [] } }").starts_with("qos.queues.1.other-config.max-rate"));
    }
}
