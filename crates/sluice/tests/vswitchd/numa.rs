//! PMDs on the NUMA nodes that tests pretend there are.

use crate::rig::Rig;

pub fn queues_are_polled_on_the_node_of_their_device() {
    let rig = Rig::with_database();
    rig.start(&["--enable-dummy", "--dummy-numa=0,0,1,1"]);
    let log = rig.read("ovs-vswitchd.log");
    for node in [0, 1] {
        assert!(log.contains(&format!("|ovs_numa|INFO|Discovered 2 CPU cores on NUMA node {node}\n")), "{log}");
    }
    rig.run("ovs-vsctl", &["set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=5"]);
    rig.run("ovs-vsctl", &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]);
    let port = ["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy-pmd"];
    rig.run("ovs-vsctl", &[&port[..], &["options:numa_id=1", "options:n_rxq=2"]].concat());
    let queues = |core: usize, node: usize| {
        let shown = rig.appctl(&["dpif-netdev/pmd-rxq-show"]);
        let (_, of_core) = shown.split_once(&format!("pmd thread numa_id {node} core_id {core}:\n")).unwrap();
        of_core.split("pmd thread").next().unwrap().matches("port: p1").count()
    };
    assert_eq!([queues(0, 0), queues(2, 1)], [0, 2]);
    // The device moves to the other node while it stays open; its queues follow.
    rig.run("ovs-vsctl", &["set", "interface", "p1", "options:numa_id=0"]);
    assert_eq!([queues(0, 0), queues(2, 1)], [2, 0]);
    rig.stop();
}
