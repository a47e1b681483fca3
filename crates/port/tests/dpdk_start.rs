//! A failed start of DPDK is reported in one line, and other ports open. DPDK starts once a process, so this is a
//! program of its own. Built with the feature `dpdk` only.
#![cfg(feature = "dpdk")]

use sluice_port::{DpdkConfig, Pools, PortConfig, open};

#[test]
fn without_huge_pages_it_says_what_helps_and_other_ports_open() {
    let mut pools = Pools::new(64);
    // More than any machine has reserved: 4 TB.
    let eal_args = ["--no-pci", "--in-memory", "--no-telemetry", "--socket-mem", "4000000"].map(String::from).to_vec();
    pools.set_dpdk_config(DpdkConfig { eal_args, mbufs: 512, least_mbufs: 512, ..DpdkConfig::default() });
    let config = |kind: &str, options: &[(&str, &str)]| PortConfig {
        name: "p1".into(),
        kind: kind.into(),
        options: options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..PortConfig::default()
    };
    let dpdk = config("dpdk", &[("devargs", "net_null0")]);
    let error = open(&dpdk, &mut pools).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("port p1: DPDK does not start with eal-args ") && error.lines().count() == 1, "{error}");
    assert!(
        error.contains("huge pages missing? (`--no-huge -m 512` does without, or `sysctl vm.nr_hugepages="),
        "{error}"
    );
    // A second try says that only another process helps.
    let again = open(&dpdk, &mut pools).map(|_| ()).unwrap_err().to_string();
    assert!(again.contains("start the switch again") && again.lines().count() == 1, "{again}");
    open(&config("null", &[]), &mut pools).unwrap();
}
