//! The memory of actions, flow-mods and groups, for bounds on memory.

use crate::ofpact::{
    Bundle, Conntrack, ControllerAction, Learn, LearnSpec, Multipath, NshProperty, OfAction, Sample, SetOption,
};
use crate::{Bucket, FlowMod, GroupConfig};
use sluice_flow::{FieldId, FieldValue, OfPort};

/// What an allocation takes beside its content.
const ALLOCATION: usize = 32;

impl FlowMod {
    /// The memory that it takes, counted at least as high as it is.
    pub fn bytes(&self) -> usize {
        size_of::<FlowMod>() + OfAction::bytes_of(&self.actions)
    }
}

impl GroupConfig {
    /// The memory that it takes, counted at least as high as it is.
    pub fn bytes(&self) -> usize {
        let bucket = |bucket: &Bucket| size_of::<Bucket>() + OfAction::bytes_of(&bucket.actions);
        let buckets: usize = self.buckets.iter().map(bucket).sum();
        let fields = self
            .selection
            .fields
            .iter()
            .map(|(_, mask)| size_of::<(FieldId, FieldValue)>() + ALLOCATION + mask.boxed_bytes());
        let fields: usize = fields.sum();
        size_of::<GroupConfig>() + 3 * ALLOCATION + self.selection.method.len() + fields + buckets
    }
}

impl OfAction {
    /// The memory of a list of actions, with the lists within it.
    pub fn bytes_of(actions: &[OfAction]) -> usize {
        let each = |action: &OfAction| size_of::<OfAction>() + action.further_bytes();
        ALLOCATION + OfAction::flattened(actions).map(each).sum::<usize>()
    }

    /// What it keeps outside its list, without the actions in it.
    fn further_bytes(&self) -> usize {
        let boxed = match self {
            OfAction::Controller(action) => size_of::<ControllerAction>() + action.userdata.len(),
            OfAction::Bundle(bundle) => size_of::<Bundle>() + size_of::<OfPort>() * bundle.members.len(),
            OfAction::DecTtl { controllers, .. } => size_of::<u16>() * controllers.len(),
            OfAction::Encap { properties, .. } => properties.iter().map(property_bytes).sum(),
            OfAction::Learn(learn) => size_of::<Learn>() + size_of::<LearnSpec>() * learn.specs.len(),
            OfAction::Multipath(_) => size_of::<Multipath>(),
            OfAction::SetOption(_) => size_of::<SetOption>(),
            OfAction::Note(bytes) => bytes.len(),
            OfAction::Sample(_) => size_of::<Sample>(),
            OfAction::Conntrack(_) => size_of::<Conntrack>(),
            OfAction::Clone(_) | OfAction::WriteActions(_) => 0,
            _ => return 0,
        };
        2 * ALLOCATION + boxed
    }
}

fn property_bytes(property: &NshProperty) -> usize {
    let value = match property {
        NshProperty::Tlv { value, .. } => ALLOCATION + value.len(),
        NshProperty::MdType(_) => 0,
    };
    size_of::<NshProperty>() + value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowCommand, GroupCommand, GroupMod};
    use sluice_flow::PortNames;

    #[test]
    fn longer_lists_take_more() {
        let bytes = |text: &str| {
            let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE);
            flow.unwrap_or_else(|e| panic!("{text}: {e}")).bytes()
        };
        let in_order = [
            "actions=output:1",
            "actions=clone(output:1)",
            "actions=clone(output:1,output:2)",
            "actions=clone(output:1,output:2,note:00.11.22)",
        ];
        assert!(in_order.map(bytes).is_sorted_by(|a, b| a < b));
        let learn = "actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
        assert!(bytes(learn) >= bytes(in_order[0]) + size_of::<Learn>() + 2 * size_of::<LearnSpec>());
        assert!(bytes(in_order[0]) >= size_of::<FlowMod>());
    }

    #[test]
    fn groups_of_more_buckets_take_more() {
        let bytes = |text: &str| {
            let group = GroupMod::parse(text, GroupCommand::Add, &PortNames::NONE);
            group.unwrap_or_else(|e| panic!("{text}: {e}")).config.bytes()
        };
        let in_order = [
            "group_id=1,type=select",
            "group_id=1,type=select,bucket=actions=output:1",
            "group_id=1,type=select,bucket=actions=output:1,output:2",
            "group_id=1,type=select,bucket=actions=output:1,bucket=actions=output:2",
        ];
        assert!(in_order.map(bytes).is_sorted_by(|a, b| a < b));
    }
}
