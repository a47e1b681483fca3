//! `ovs-ctl`, Open vSwitch's script for init systems, with the program in the daemon's place.

use crate::rig::{Rig, is_running};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Where Debian has the scripts and the schema.
const PACKAGE_DATA: &str = "/usr/share/openvswitch";

/// The scripts in the rig's directory. The one that loads the kernel's module does nothing: that module is not needed, and
/// the case must not change the machine.
fn install(rig: &Rig) {
    let (scripts, programs) = (rig.path("scripts"), rig.path("sbin"));
    std::fs::create_dir_all(&programs).unwrap();
    std::fs::create_dir_all(rig.path("openvswitch")).unwrap();
    assert!(
        Command::new("cp")
            .arg("-r")
            .arg(Path::new(PACKAGE_DATA).join("scripts"))
            .arg(&scripts)
            .status()
            .unwrap()
            .success()
    );
    std::fs::write(scripts.join("ovs-kmod-ctl"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(scripts.join("ovs-kmod-ctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(Path::new(PACKAGE_DATA).join("vswitch.ovsschema"), rig.path("vswitch.ovsschema")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sluice"), programs.join("ovs-vswitchd")).unwrap();
    std::os::unix::fs::symlink("/usr/sbin/ovsdb-server", programs.join("ovsdb-server")).unwrap();
}

fn ovs_ctl(rig: &Rig, action: &str) -> Output {
    let mut command = rig.command("scripts/ovs-ctl");
    command.args(["--no-monitor", "--system-id=random", "--no-record-hostname", "--no-force-corefiles"]);
    command.args(["--ovs-vswitchd-options=--enable-dummy", action]);
    command.env("OVS_PKGDATADIR", rig.path("")).env("OVS_SBINDIR", rig.path("sbin"));
    let output = command.output().unwrap();
    let (said, log) = (String::from_utf8_lossy(&output.stderr), rig.read("ovs-vswitchd.log"));
    assert!(output.status.success(), "ovs-ctl {action}: {said}\nlog: {log}");
    output
}

/// What the bridge holds, as `ovs-ofctl` shows it.
fn tables(rig: &Rig) -> [String; 3] {
    let ofctl = |command| rig.run("ovs-ofctl", &["-O", "OpenFlow14", command, "br0"]);
    let without_xid = |text: String| text.lines().filter(|line| !line.contains("(xid=")).collect::<Vec<_>>().join("\n");
    let flows = rig.run("ovs-ofctl", &["-O", "OpenFlow14", "--no-stats", "--sort", "dump-flows", "br0"]);
    [without_xid(flows), without_xid(ofctl("dump-groups")), without_xid(ofctl("dump-tlv-map"))]
}

pub fn flows_survive_a_restart_by_ovs_ctl() {
    let rig = Rig::new();
    install(&rig);
    ovs_ctl(&rig, "start");
    let first = rig.pid("ovs-vswitchd.pid").unwrap();
    let bridge =
        ["--no-wait", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail_mode=secure"];
    rig.run("ovs-vsctl", &bridge);
    rig.wait_until("the bridge", || rig.path("br0.mgmt").exists());
    rig.run("ovs-ofctl", &["-O", "OpenFlow14", "add-group", "br0", "group_id=1,type=all,bucket=output:2"]);
    let flow = "priority=7,cookie=0x123,in_port=1,ip,nw_dst=10.0.0.0/8,actions=dec_ttl,group:1";
    rig.run("ovs-ofctl", &["-O", "OpenFlow14", "add-flow", "br0", flow]);
    rig.run("ovs-ofctl", &["add-tlv-map", "br0", "{class=0x102,type=0x80,len=4}->tun_metadata0"]);
    let before = tables(&rig);
    assert!(before[0].contains("cookie=0x123") && before[1].contains("group_id=1"), "{before:?}");
    assert!(before[2].contains("0x102  0x80       4  tun_metadata0"), "{}", before[2]);

    let restarted = ovs_ctl(&rig, "restart");
    let said = String::from_utf8(restarted.stderr).unwrap();
    assert!(!said.contains("OFPT_ERROR"), "{said}");
    assert_ne!(rig.pid("ovs-vswitchd.pid"), Some(first));
    assert_eq!(tables(&rig), before);
    assert_eq!(rig.run("ovs-vsctl", &["get", "Open_vSwitch", ".", "other_config"]), "{}\n");
    ovs_ctl(&rig, "stop");
    assert!(!rig.path("ovs-vswitchd.pid").exists());
}

/// The host's own traffic goes through a bridge's device: its addresses must outlast the daemon.
pub fn internal_devices_survive_a_restart() {
    let rig = Rig::with_database();
    let may_make_devices = ip(&["tuntap", "add", "probe0", "mode", "tap"]).and_then(|_| ip(&["link", "del", "probe0"]));
    if may_make_devices.is_none() {
        println!("internal_devices_survive_a_restart: needs CAP_NET_ADMIN");
        return;
    }
    let address = || ip(&["-4", "-br", "address", "show", "dev", "bri0"]).map(|line| line.contains("10.77.0.1/24"));
    rig.start(&[]);
    rig.run("ovs-vsctl", &["add-br", "bri0", "--", "set", "bridge", "bri0", "datapath_type=netdev"]);
    ip(&["address", "add", "10.77.0.1/24", "dev", "bri0"]).unwrap();
    // An orderly end, and one that leaves no time for anything.
    for kill in [false, true] {
        let pid = rig.pid("ovs-vswitchd.pid").unwrap();
        if kill {
            assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
        } else {
            rig.appctl(&["exit"]);
        }
        rig.wait_until("the end", || !is_running(pid));
        assert_eq!(address(), Some(true));
        rig.start(&[]);
        assert_eq!(address(), Some(true));
        assert_eq!(rig.run("ovs-vsctl", &["get", "Interface", "bri0", "error"]).trim(), "[]");
        assert_eq!(rig.run("ovs-vsctl", &["get", "Interface", "bri0", "ofport"]).trim(), "65534");
    }
    // A port that is removed takes its device with it, and so does an end with cleanup.
    rig.run("ovs-vsctl", &["add-port", "bri0", "bri1", "--", "set", "Interface", "bri1", "type=internal"]);
    assert!(ip(&["link", "show", "bri1"]).is_some());
    rig.run("ovs-vsctl", &["del-port", "bri1"]);
    assert!(ip(&["link", "show", "bri1"]).is_none());
    let pid = rig.pid("ovs-vswitchd.pid").unwrap();
    rig.appctl(&["exit", "--cleanup"]);
    rig.wait_until("the end", || !is_running(pid));
    assert_eq!(address(), None);
}

/// What `ip` prints, if it succeeds.
fn ip(args: &[&str]) -> Option<String> {
    let output = Command::new("ip").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
