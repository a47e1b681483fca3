use super::*;
use crate::Error;
use crate::Version::V13;
use crate::action::read;
use crate::wire::Reader;
use sluice_flow::PortNames;
use sluice_ofp::consistency::Within;

/// What the text says, after a trip over the wire in a version.
fn trip(text: &str, version: Version) -> String {
    let actions = OfAction::parse_list(text, &PortNames::NONE).expect(text);
    let mut w = Writer::default();
    put_list(&actions, version, &mut w);
    let back = read(Reader::new(&w.bytes, Error::ActionBadLen), version, Within::Flow);
    OfAction::display_list(&back.unwrap_or_else(|e| panic!("{text} in {version}: {e}")), &PortNames::NONE).to_string()
}

/// Actions that every version says as they are.
const EVERYWHERE: &[&str] = &[
    "output:1",
    "LOCAL",
    "CONTROLLER:128",
    "IN_PORT",
    "group:5",
    "output:NXM_NX_REG0[0..15]",
    "output(port=3,max_len=100)",
    "controller(max_len=12,id=7,reason=invalid_ttl)",
    "controller(userdata=01.02.03,pause)",
    "controller(meter_id=3)",
    "bundle(eth_src,50,active_backup,ofport,members:1,2)",
    "bundle_load(symmetric_l4,60,hrw,ofport,NXM_NX_REG0[0..15],members:2,3)",
    "dec_ttl",
    "dec_ttl(1,2,3)",
    "dec_mpls_ttl",
    "push_mpls:0x8847",
    "pop_mpls:0x0800",
    "set_queue:7",
    "pop_queue",
    "fin_timeout(idle_timeout=5,hard_timeout=10)",
    "resubmit:4",
    "resubmit(,5)",
    "resubmit(3,5)",
    "resubmit(3,5,ct)",
    "learn(table=1,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    "learn(table=2,idle_timeout=10,fin_hard_timeout=3,priority=7,cookie=0x1,delete_learned,limit=5,result_dst=NXM_NX_REG0[3],NXM_NX_REG1[0..4]=0x3,load:0x7->NXM_NX_REG2[])",
    "conjunction(12,1/3)",
    "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[])",
    "note:01.02.03.04.05.06",
    "note:01.02.03.04.05.06.07.00.00.00.00.00.00.00",
    "exit",
    "sample(probability=3,collector_set_id=1,obs_domain_id=2,obs_point_id=4)",
    "sample(probability=3,collector_set_id=1,obs_domain_id=2,obs_point_id=4,sampling_port=5)",
    "sample(probability=3,collector_set_id=1,obs_domain_id=2,obs_point_id=4,sampling_port=5,egress)",
    "push:NXM_NX_REG0[]",
    "pop:NXM_NX_XXREG0[3..70]",
    "clone(output:1,clone(output:2))",
    "ct(commit,force,zone=5,table=3,nat(src=1.2.3.4-1.2.3.9:5-9,random),exec(load:0x5->NXM_NX_CT_MARK[]))",
    "ct(zone=NXM_NX_REG0[0..15])",
    "ct(nat)",
    "ct(commit,nat(dst=[fe80::1]:80,hash,persistent))",
    "ct_clear",
    "check_pkt_larger(100)->NXM_NX_REG0[3]",
    "push:NXM_OF_IN_PORT[]",
];

#[test]
fn actions_survive_every_version() {
    for version in Version::SPOKEN {
        for text in EVERYWHERE {
            let actions = OfAction::parse_list(text, &PortNames::NONE).expect(text);
            let want = OfAction::display_list(&actions, &PortNames::NONE).to_string();
            // OpenFlow 1.5 has no load; it sets a field.
            let want = match version {
                V15 => want.replace("load:0x5->NXM_NX_CT_MARK[]", "set_field:0x5->ct_mark"),
                _ => want,
            };
            assert_eq!(trip(text, version), want, "{version}");
        }
    }
}

#[test]
fn some_actions_change_their_form() {
    for (text, v10, v13, v15) in [
        (
            "mod_vlan_vid:5",
            "mod_vlan_vid:5",
            "push_vlan:0x8100,set_field:4101->vlan_vid",
            "push_vlan:0x8100,set_field:4101->vlan_vid",
        ),
        (
            "mod_dl_src:00:00:00:00:00:01",
            "mod_dl_src:00:00:00:00:00:01",
            "set_field:00:00:00:00:00:01->eth_src",
            "set_field:00:00:00:00:00:01->eth_src",
        ),
        ("mod_nw_tos:252", "mod_nw_tos:252", "set_field:63->ip_dscp", "set_field:63->ip_dscp"),
        ("mod_tp_dst:80", "mod_tp_dst:80", "mod_tp_dst:80", "mod_tp_dst:80"),
        (
            "load:0x5->NXM_NX_REG0[4..7]",
            "load:0x5->NXM_NX_REG0[4..7]",
            "load:0x5->NXM_NX_REG0[4..7]",
            "set_field:0x50/0xf0->reg0",
        ),
        (
            "set_field:0x50/0xf0->reg0",
            "load:0x5->NXM_NX_REG0[4..7]",
            "load:0x5->NXM_NX_REG0[4..7]",
            "set_field:0x50/0xf0->reg0",
        ),
        (
            "set_field:00:00:00:00:00:02->eth_dst",
            "mod_dl_dst:00:00:00:00:00:02",
            "set_field:00:00:00:00:00:02->eth_dst",
            "set_field:00:00:00:00:00:02->eth_dst",
        ),
        (
            "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
            "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
            "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
            "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
        ),
        ("enqueue:1:2", "enqueue:1:2", "set_queue:2,output:1,pop_queue", "set_queue:2,output:1,pop_queue"),
        ("strip_vlan", "strip_vlan", "pop_vlan", "pop_vlan"),
        ("set_tunnel:5", "set_tunnel:0x5", "set_field:0x5->tun_id", "set_field:0x5->tun_id"),
        ("mod_nw_ttl:5", "load:0x5->NXM_NX_IP_TTL[]", "mod_nw_ttl:5", "mod_nw_ttl:5"),
        ("goto_table:5", "resubmit(,5)", "drop", "drop"),
    ] {
        assert_eq!([trip(text, V10), trip(text, V13), trip(text, V15)], [v10, v13, v15], "{text}");
    }
}

/// The examples of docs/flow-language.md, by the action that each begins with.
fn examples() -> Vec<(OfAction, String)> {
    let page = include_str!("../../../../../docs/flow-language.md");
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 2);
    let actions = rows.filter_map(|row| {
        let example = row.split('`').nth_back(1)?.replace("\\|", "|");
        let actions = OfAction::parse_list(&example, &PortNames::NONE).ok()?;
        Some((actions.into_iter().next()?, example))
    });
    actions.collect()
}

#[test]
fn declared_actions_survive_every_version_that_has_a_number_for_them() {
    let (mut tried, examples) = (0, examples());
    for row in sluice_ofp::ofpact::ACTIONS.iter().filter(|row| row.make.is_some()) {
        let example = examples.iter().find(|(action, _)| action.action_type().id == row.id);
        let (action, _) = example.unwrap_or_else(|| panic!("the page has no example of {:?}", row.id));
        for version in Version::SPOKEN.into_iter().filter(|version| row.code(0, *version).is_some()) {
            assert_eq!(trip(&action.to_string(), version), action.to_string(), "{version}");
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried} trips");
}
