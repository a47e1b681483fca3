//! Many changes of rules at once, and the monitor that is told of them.

use proptest::prelude::*;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{
    BridgeConfig, Error, Ofproto, Requester, RuleMonitor, RuleOwner, RuleUpdate, RuleUpdateEvent, Transaction,
};
use std::sync::{Arc, Mutex};

fn switch() -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    ofproto
}

fn flow(command: FlowCommand, text: &str) -> FlowMod {
    FlowMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The rules as text.
fn dump(ofproto: &Ofproto) -> Vec<String> {
    let rules = ofproto.rules("br0", &FlowMod::new(FlowCommand::Delete)).unwrap();
    let text = |entry: &sluice_ofproto::RuleEntry| {
        let (rule, matches) = (&entry.rule, &entry.matches);
        format!("{} {} {matches} {} {:?}", rule.table, rule.priority, rule.cookie, rule.actions)
    };
    let mut lines: Vec<_> = rules.iter().map(text).collect();
    lines.sort();
    lines
}

/// A change from a small set, so that changes collide; some are refused.
fn change() -> impl Strategy<Value = FlowMod> {
    use FlowCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let commands = prop::sample::select(vec![Add, Add, Add, Modify, ModifyStrict, Delete, DeleteStrict]);
    let matches = prop::sample::select(vec!["in_port=1", "in_port=2", "ip", "tcp", ""]);
    let actions = prop::sample::select(vec!["output:1", "output:2", "output:3", "group:9", "drop"]);
    (commands, matches, actions, 0u8..3, 0u16..2, any::<bool>()).prop_map(
        |(command, matches, actions, table, priority, overlap)| {
            let mut text = format!("table={table},priority={priority},{matches}");
            match command {
                Add if overlap => text += &format!(",check_overlap,actions={actions}"),
                Add | Modify => text += &format!(",actions={actions}"),
                ModifyStrict => text += &format!(",cookie={},actions={actions}", u8::from(overlap)),
                Delete => text = format!("table={table},{matches}"),
                DeleteStrict => {}
            }
            if command == Modify {
                text = text.replace(&format!("priority={priority},"), "");
            }
            flow(command, text.trim_end_matches(','))
        },
    )
}

proptest! {
    /// Changes made together and one by one lead to the same rules and the same refusals.
    #[test]
    fn changes_made_together_are_changes_made_one_by_one(changes in prop::collection::vec(change(), 0..40)) {
        let (together, alone) = (switch(), switch());
        let all: Vec<&FlowMod> = changes.iter().collect();
        let (changed, refused) = together.flow_mods("br0", &all, None, 5).unwrap();
        let mut sum = (0, 0, 0);
        let mut expected: Vec<(usize, Error)> = Vec::new();
        for (i, change) in changes.iter().enumerate() {
            match alone.flow_mod("br0", change, 5) {
                Ok(c) => sum = (sum.0 + c.added, sum.1 + c.modified, sum.2 + c.deleted),
                Err(error) => expected.push((i, error)),
            }
        }
        prop_assert_eq!(refused, expected);
        prop_assert_eq!((changed.added, changed.modified, changed.deleted), sum);
        prop_assert_eq!(dump(&together), dump(&alone));
    }
}

/// Records updates as text.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl RuleMonitor for Diary {
    fn monitors(&self, bridge: &str) -> bool {
        bridge == "br0"
    }

    fn updated(&self, _: &str, transaction: Transaction, updates: Vec<RuleUpdate>) {
        for update in updates {
            let (by, rule) = (transaction.by.map_or(0, |by| by.xid), &update.rule);
            let old = if update.old_actions.is_some() { " for others" } else { "" };
            let line = match update.event {
                RuleUpdateEvent::Added => format!("{by}: + {} {}{old}", rule.priority, update.matches),
                RuleUpdateEvent::Modified => format!("{by}: ~ {} {}{old}", rule.priority, update.matches),
                RuleUpdateEvent::Removed(why) => format!("{by}: - {} {} {why:?}", rule.priority, update.matches),
            };
            self.0.lock().unwrap().push(line);
        }
    }
}

#[test]
fn the_monitor_is_told_of_every_change_in_order() {
    use FlowCommand::{Add, Delete, Modify};
    let (ofproto, diary) = (switch(), Arc::new(Diary::default()));
    ofproto.set_monitor(diary.clone());
    let told = |changes: &[FlowMod], xid| {
        let by = Some(Requester { connection: 1, xid, owner: RuleOwner::Peers });
        ofproto.flow_mods("br0", &changes.iter().collect::<Vec<_>>(), by, 1000).unwrap();
        std::mem::take(&mut *diary.0.lock().unwrap())
    };
    let first = [
        flow(Add, "priority=1,in_port=1,idle_timeout=10,actions=output:1"),
        flow(Add, "priority=2,in_port=2,actions=output:1"),
        flow(Add, "priority=2,in_port=2,actions=output:2"),
        flow(Delete, "in_port=2"),
    ];
    let lines = ["7: + 1 in_port=1", "7: + 2 in_port=2", "7: + 2 in_port=2 for others", "7: - 2 in_port=2 Delete"];
    assert_eq!(told(&first, 7), lines);
    // There is no update without a change. A new cookie is a change.
    let modify = |text| [flow(Modify, text)];
    assert!(told(&modify("in_port=1,actions=output:1"), 8).is_empty());
    assert_eq!(told(&modify("in_port=1,actions=output:3"), 9), ["9: ~ 1 in_port=1 for others"]);
    ofproto.tick(60_000);
    assert_eq!(told(&[], 10), ["0: - 1 in_port=1 IdleTimeout"]);
    // There is no update for a refused change.
    assert!(told(&[flow(Add, "actions=group:5")], 11).is_empty());
}
