//! A switch is taken from state to state. No thread of it runs.

use sluice_flow::OfPort;
use sluice_vswitch::{
    Bridge, Change, DatapathRef, DesiredState, Error, Outcome, Port, PortStatus, Source, SourceKind, Sources, Switch,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const BRIDGE: &str = "br0";

fn port(name: &str) -> Port {
    Port::new(name, "null")
}

/// A bridge with these ports and rules.
fn state(ports: &[Port], rules: &str) -> DesiredState {
    let sources = Sources { rules: Some(Source::new("rules", rules)), ..Sources::default() };
    let bridge = Bridge { ports: ports.to_vec(), sources, ..Bridge::new(BRIDGE) };
    DesiredState { pmd_cores: vec![0], bridges: vec![bridge], ..DesiredState::default() }
}

fn prepare(ports: &[Port]) -> Arc<Switch> {
    Switch::prepare(&state(ports, "actions=drop")).unwrap()
}

fn status(switch: &Switch, name: &str) -> PortStatus {
    let ports = switch.port_status().remove(BRIDGE).unwrap();
    ports.into_iter().find(|port| port.name == name).unwrap_or_else(|| panic!("no port {name}"))
}

fn reconfigure(switch: &Switch, ports: &[Port], rules: &str) -> Vec<Outcome> {
    switch.reconfigure(&state(ports, rules)).unwrap()
}

fn errors(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().filter_map(|outcome| outcome.error.as_ref()).map(Error::to_string).collect()
}

#[test]
fn a_port_keeps_the_number_that_it_got() {
    let switch = prepare(&[port("a"), port("b").numbered(7), port("c")]);
    let number = |name| status(&switch, name).ofport;
    assert_eq!(["a", "b", "c"].map(number), [OfPort(1), OfPort(7), OfPort(2)]);
    // Another type: the port is replaced. Rules may name a port that comes with them.
    let ports = [port("new"), port("c"), Port::new("a", "generator")];
    let outcomes = reconfigure(&switch, &ports, "in_port=a,actions=output:new");
    assert_eq!((errors(&outcomes), outcomes.len()), (Vec::new(), 5));
    assert_eq!(["a", "c", "new"].map(number), [OfPort(1), OfPort(2), OfPort(3)]);
    assert!(switch.reconfigure(&switch.state()).unwrap().is_empty());
}

/// Commands run on threads of their own.
#[test]
fn ports_that_come_at_the_same_time_get_different_numbers() {
    let switch = prepare(&[]);
    let of_bridge = |n| switch.add_port(BRIDGE, &port(&format!("bridged{n}"))).unwrap();
    let of_none = |n| _ = switch.add_loose_port(&DatapathRef::Own, &port(&format!("loose{n}")), None).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(of_bridge));
        scope.spawn(|| (0..300).for_each(of_none));
    });
    let bridged = switch.port_status().remove(BRIDGE).unwrap().into_iter().filter_map(|port| port.number);
    let loose = switch.loose_ports(&DatapathRef::Own).into_iter().map(|port| port.number);
    assert_eq!(bridged.chain(loose).collect::<BTreeSet<_>>().len(), 600);
}

#[test]
fn a_port_whose_mtu_changes_stays_what_it_is() {
    let switch = prepare(&[port("a"), port("b")]);
    let before = status(&switch, "b");
    switch.ofproto().set_port(BRIDGE, "b", |port| port.no_flood = true).unwrap();
    let outcomes = reconfigure(&switch, &[port("a"), Port { mtu: Some(9000), ..port("b") }], "actions=drop");
    assert!(
        matches!(&outcomes[..], [Outcome { change: Change::ReconfigurePort { .. }, error: None, .. }]),
        "{outcomes:?}"
    );
    let after = status(&switch, "b");
    assert_eq!((after.ofport, after.number), (before.ofport, before.number));
    assert_eq!(after.info.map(|info| info.mtu), Some(9000));
    let known = switch.ofproto().ports(BRIDGE).unwrap().into_iter().find(|port| port.name == "b").unwrap();
    assert_eq!((known.mtu, known.no_flood), (9000, true));
}

#[test]
fn a_port_that_cannot_be_opened_says_why() {
    let capture =
        |file: &str| Port { options: [("rx".to_owned(), file.to_owned())].into(), ..Port::new("cap", "pcap") };
    let switch = prepare(&[capture("/no/such.pcap")]);
    let closed = status(&switch, "cap");
    assert!(closed.error.as_ref().unwrap().contains("/no/such.pcap: cannot be read"), "{closed:?}");
    assert!(closed.info.is_none());
    // It is taken over nevertheless: the same state has no step to it.
    let outcomes = reconfigure(&switch, &[capture("/nor/this.pcap")], "actions=drop");
    assert!(errors(&outcomes)[0].contains("/nor/this.pcap"), "{outcomes:?}");
    assert!(switch.reconfigure(&switch.state()).unwrap().is_empty());

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("empty.pcap");
    let header = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    std::fs::write(&file, header).unwrap();
    let outcomes = reconfigure(&switch, &[capture(file.to_str().unwrap())], "actions=drop");
    assert_eq!((errors(&outcomes), outcomes.len()), (Vec::new(), 1));
    let open = status(&switch, "cap");
    assert!(open.error.is_none() && open.info.is_some(), "{open:?}");
}

#[test]
fn a_step_that_fails_is_taken_again() {
    let switch = prepare(&[port("a")]);
    let bad = "actions=group:9";
    for _ in 0..2 {
        let outcomes = reconfigure(&switch, &[port("a")], bad);
        assert!(matches!(&outcomes[..], [Outcome { change: Change::SetSources { .. }, .. }]), "{outcomes:?}");
        assert!(errors(&outcomes)[0].contains("no such group"), "{outcomes:?}");
    }
    let outcomes = reconfigure(&switch, &[port("a")], "ip,actions=drop");
    assert_eq!(outcomes[0].loaded, [SourceKind::Rules { removed: 0 }]);
    // Text that cannot be read changes nothing, ports neither.
    let error = switch.reconfigure(&state(&[port("b")], "actions=\n\nnonsense")).unwrap_err().to_string();
    assert!(error.starts_with("rules: line "), "{error}");
    assert_eq!(status(&switch, "a").ofport, OfPort(1));
}

#[test]
fn what_commands_added_stays() {
    let switch = prepare(&[port("a")]);
    switch.add_port(BRIDGE, &port("extra")).unwrap();
    assert_eq!(status(&switch, "extra").ofport, OfPort(2));
    assert!(reconfigure(&switch, &[port("a"), port("b")], "actions=drop").len() == 1);
    assert_eq!((status(&switch, "extra").ofport, status(&switch, "b").ofport), (OfPort(2), OfPort(3)));
    switch.remove_port(BRIDGE, "extra").unwrap();
    switch.add_port(BRIDGE, &port("other")).unwrap();
    assert_eq!(status(&switch, "other").ofport, OfPort(2));
}
