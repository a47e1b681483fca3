//! The fields that actions name.

use crate::OfAction;
use crate::ofpact::{ConntrackZone, LearnSource, LearnTarget};
use sluice_flow::SubField;

impl OfAction {
    /// The bits of fields that this action itself names, read or written, without those of actions within it.
    pub fn subfields(&self) -> Vec<SubField> {
        match self {
            OfAction::SetField { field, .. } | OfAction::DeleteField(field) => vec![SubField::whole(*field)],
            OfAction::SetOption(set) => vec![SubField::whole(set.field)],
            OfAction::Load { dst: bits, .. }
            | OfAction::OutputReg { src: bits, .. }
            | OfAction::StackPush(bits)
            | OfAction::StackPop(bits) => vec![*bits],
            OfAction::Move { src, dst } => vec![*src, *dst],
            OfAction::Multipath(multipath) => vec![multipath.dst],
            OfAction::Bundle(bundle) => bundle.dst.into_iter().collect(),
            OfAction::Conntrack(ct) => match ct.zone {
                ConntrackZone::Field(bits) => vec![bits],
                ConntrackZone::Number(_) => Vec::new(),
            },
            OfAction::Learn(learn) => {
                let sources = learn.specs.iter().filter_map(|spec| match &spec.source {
                    LearnSource::Field(bits) => Some(*bits),
                    LearnSource::Value(_) => None,
                });
                let targets = learn.specs.iter().filter_map(|spec| match spec.target {
                    LearnTarget::Match(bits) | LearnTarget::Load(bits) => Some(bits),
                    LearnTarget::Output => None,
                });
                sources.chain(targets).chain(learn.result_dst).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{FlowCommand, FlowMod, OfAction};
    use sluice_flow::PortNames;

    #[test]
    fn every_field_that_an_action_names_is_told() {
        for action in [
            "set_field:1->tun_metadata0",
            "delete_field:tun_metadata0",
            "load:1->tun_metadata0[]",
            "move:reg0->tun_metadata0[0..31]",
            "move:tun_metadata0[0..31]->reg0",
            "output:tun_metadata0[0..15]",
            "push:tun_metadata0[0..15]",
            "pop:tun_metadata0[0..15]",
            "multipath(eth_src,50,modulo_n,1,0,tun_metadata0[0..31])",
            "bundle_load(eth_src,50,hrw,ofport,tun_metadata0[0..31],members:4,8)",
            "learn(tun_metadata0[0..31]=reg0[0..31])",
            "learn(reg0[0..31]=tun_metadata0[0..31])",
            "learn(load:reg0[0..31]->tun_metadata0[0..31])",
            "clone(push:tun_metadata0[0..15])",
            "ct(zone=tun_metadata0[0..15])",
        ] {
            let text = format!("ip,actions={action}");
            let rule =
                FlowMod::parse(&text, FlowCommand::Add, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
            let mut fields = OfAction::flattened(&rule.actions).flat_map(OfAction::subfields);
            assert!(fields.any(|bits| bits.field.tunnel_option() == Some(0)), "{action}");
        }
    }
}
