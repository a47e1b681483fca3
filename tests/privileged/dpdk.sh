#!/usr/bin/env bash
# DPDK by the database, without huge pages: started when `dpdk-init` says so, with the arguments that the settings name; devices
# added, changed and taken away while it runs; `dpdk/*` and `netdev-dpdk/*`. A start that fails ends the daemon, or does not if it is
# only to be tried. By a configuration file: net_tap, whose queues need no setting, and a log without foreign lines.
set -euo pipefail
pkg-config --exists libdpdk 2> /dev/null || { echo "SKIPPED: libdpdk-dev is not installed"; exit 77; }
cd "$(dirname "$0")/../.."
cargo build -q -p sluice --features dpdk
with_dpdk=$(mktemp)
cp target/debug/sluice "$with_dpdk"
# Other lanes run the plain one.
. tests/privileged/common/switch.bash
DAEMON=$dir/sluice-dpdk
mv "$with_dpdk" "$DAEMON"
chmod 755 "$DAEMON"
. tests/privileged/common/vswitchd.bash

expect() { # what, pattern, command…
    local said what=$1 pattern=$2
    shift 2
    said=$("$@" 2>&1) || true
    [[ $said =~ $pattern ]] || fail "$what: $* said: $said"
}
set_dpdk() { ovs-vsctl set Open_vSwitch . "other_config:$1=\"$2\""; }
# Whether the log has a line that matches.
tells() { until_true grep -q -- "$1" "$log" || fail "the log never said: $1"; }
column() { ovs-vsctl --if-exists get "$@" | tr -d '"'; }
counts() { [ "$(column interface "$1" "statistics:$2")" -gt "${3:-0}" ]; }

kind=start
start_all
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev
expect "the state before" '^false DPDK .*$' sh -c 'echo $(ovs-vsctl get Open_vSwitch . dpdk_initialized dpdk_version | tr -d \")'
tells 'DPDK Disabled - Use other_config:dpdk-init to enable'
ovs-vsctl --no-wait add-port br0 p0 -- set interface p0 type=dpdk options:dpdk-devargs=net_null0
tells 'could not open network device p0 (Address family not supported by protocol)'
expect "its commands" 'DPDK is not running' ovs-appctl dpdk/lcore-list
[[ $(column Open_vSwitch . iface_types) != *"dpdk,"* ]] || fail "iface_types names dpdk"
ovs-vsctl del-port p0

set_dpdk dpdk-extra "--no-huge --legacy-mem --no-shconf --no-pci --no-telemetry --vdev=net_null7"
set_dpdk dpdk-alloc-mem 192
set_dpdk dpdk-init true
[ "$(column Open_vSwitch . dpdk_initialized)" = true ] || fail "dpdk_initialized is not true"
tells 'EAL ARGS: ovs-vswitchd --no-huge --legacy-mem --no-shconf --no-pci --no-telemetry --vdev=net_null7 -m 192 -l '
tells 'DPDK Enabled - initialized'
[[ $(column Open_vSwitch . iface_types) == *"dpdk,"* ]] || fail "iface_types does not name dpdk"
set_dpdk dpdk-socket-mem 64
tells 'WARN|other_config:dpdk-socket-mem="64" takes effect when the daemon is started again'

kind=devices
ovs-vsctl add-port br0 p1 -- set interface p1 type=dpdk options:dpdk-devargs="net_null1,size=64,copy=0" options:n_rxq_desc=256 \
    -- add-port br0 p2 -- set interface p2 type=dpdk options:dpdk-devargs=net_null2
ovs-ofctl add-flow br0 in_port=p1,actions=output:p2
until_true counts p2 tx_packets 1000 || fail "nothing goes from p1 to p2"
[ "$(column interface p1 status:driver_name)" = net_null ] || fail "status: $(column interface p1 status)"
[[ $(column interface p1 status:if_descr) == "DPDK "*" net_null" ]] || fail "status: $(column interface p1 status)"
ovs-vsctl --no-wait add-port br0 p3 -- set interface p3 type=dpdk
tells "'p3' is missing 'options:dpdk-devargs'. The old 'dpdk<port_id>' names are not supported"
ovs-vsctl set interface p3 options:dpdk-devargs=no_such_device
expect "a device that is none" 'no_such_device' ovs-vsctl get interface p3 error
ovs-vsctl set interface p3 options:dpdk-devargs=net_ring3
until_true test "$(column interface p3 error)" = "[]" || fail "p3 has $(column interface p3 error)"
ovs-vsctl del-port p3

kind=commands
expect "cores" 'lcore' ovs-appctl dpdk/lcore-list
expect "heaps" 'Heap' ovs-appctl dpdk/get-malloc-stats
ovs-appctl dpdk/log-set lib.eal:debug
expect "levels" 'lib.eal, level is debug' ovs-appctl dpdk/log-list
expect "a level that is none" "invalid log level: 'loud'" ovs-appctl dpdk/log-set loud
expect "pools" 'sluice-' ovs-appctl netdev-dpdk/get-mempool-info
expect "a pool" 'count: avail \([0-9]+\), in use \([0-9]+\)' ovs-appctl netdev-dpdk/get-mempool-info p1
expect "no DPDK interface" 'Not a DPDK Interface' ovs-appctl netdev-dpdk/get-mempool-info br0
expect "a state that is none" 'Invalid Admin State' ovs-appctl netdev-dpdk/set-admin-state p1 sideways
expect "down" '^OK$' ovs-appctl netdev-dpdk/set-admin-state p1 down
until_true sh -c '[ "$(ovs-vsctl get interface p1 admin_state)" = down ]' || fail "p1 is not down"
expect "all up" '^OK$' ovs-appctl netdev-dpdk/set-admin-state up
until_true sh -c '[ "$(ovs-vsctl get interface p1 admin_state)" = up ]' || fail "p1 is not up"
expect "a device in use" "is being used by the following interfaces: p1. Remove" ovs-appctl netdev-dpdk/detach net_null1
expect "a device that nobody uses" "'net_null7' have been detached" ovs-appctl netdev-dpdk/detach net_null7
expect "a device that is gone" "Device 'net_null7' not found in DPDK" ovs-appctl netdev-dpdk/detach net_null7

kind=metrics
ovs-vsctl set Open_vSwitch . other_config:pmd-perf-metrics=true
tells 'PMD performance metrics collection enabled'
until_true sh -c 'ovs-appctl dpif-netdev/pmd-perf-show -nh -ms 3 | grep -A 3 "^   ms " | grep -q "^   [1-9]"' || fail "no millisecond: $(ovs-appctl dpif-netdev/pmd-perf-show -ms 3)"
expect "iterations" 'iter  *cycles  *packets' ovs-appctl dpif-netdev/pmd-perf-show -it 5
expect "histograms" 'Histograms.*cycles/it' ovs-appctl dpif-netdev/pmd-perf-show
ovs-appctl dpif-netdev/pmd-perf-log-set on -us 0 -b 3 -a 2
tells 'Suspicious iteration (Excessive total cycles): iter='
tells 'Neighborhood of suspicious iteration:'
expect "a word that is none" '^Usage: .*pmd-perf-log-set' ovs-appctl dpif-netdev/pmd-perf-log-set sometimes
ovs-vsctl remove Open_vSwitch . other_config pmd-perf-metrics
tells 'PMD performance metrics collection disabled'
stop_daemon

# Memory by socket, which was set above, is not for a start without huge pages. DPDK prints its usage then.
kind="a failed start"
ovs-vsctl --no-wait del-br br0 -- set Open_vSwitch . other_config:dpdk-init=try
start_daemon > "$dir/said"
tells 'Unable to initialize DPDK: '
[ "$(column Open_vSwitch . dpdk_initialized)" = false ] || fail "dpdk_initialized is not false"
stop_daemon
set_dpdk() { ovs-vsctl --no-wait set Open_vSwitch . "other_config:$1=\"$2\""; }
set_dpdk dpdk-init true
if inside "$dir/bin/ovs-vswitchd" --detach --no-chdir --pidfile --log-file -vconsole:off > "$dir/said" 2>&1; then
    fail "the daemon runs without the DPDK that it needs"
fi
tells 'Cannot init EAL'
stop_database

# By a configuration file, without a word about queues: net_tap wants as many transmit queues as receive queues.
kind=net_tap
sluice=$DAEMON
ip netns add "$a"
ip -n "$s" link add va type veth peer name eth0 netns "$a"
ip -n "$s" link set va up
ip -n "$a" addr add 10.7.0.2/24 dev eth0
ip -n "$a" link set eth0 up
tap_of() {
    printf '%s\n' "tap0 dpdk options = { devargs = \"net_tap0,iface=dtap0\"$1 }" "va af_packet" | configure
    printf '[switch.dpdk]\neal-args = ["--no-huge", "-m", "192", "--no-pci", "--no-telemetry"]\nmbufs = 16384\n' >> "$dir/switch.toml"
    start
}
tap_of ""
until_true ip -n "$s" addr add 10.7.0.1/24 dev dtap0 || fail "there is no device dtap0"
ip -n "$s" link set dtap0 up
ip netns exec "$s" ping -q -c 5 -i 0.2 -W 10 10.7.0.2 > "$dir/ping" || fail "no ping through net_tap: $(cat "$dir/ping")"
[ "$(grep -c '|dpdk|' "$dir/log")" -ge 2 ] || fail "the log has no lines of DPDK"
! grep -v '^[0-9-]*T[0-9:.]*Z|[0-9]\{5\}|[a-z_]*|[A-Z]*|' "$dir/log" > "$dir/said" || fail "the log has lines of another form: $(cat "$dir/said")"
stop
[ ! -s "$dir/out" ] || ! grep -q 'EAL' "$dir/out" || fail "DPDK prints beside the log: $(cat "$dir/out")"
tap_of ', n-txq = 3'
logged '|ERR|port tap0: .*the device may want other numbers of queues (n-rxq, option n-txq; net_tap wants as many of one as of the other)'
stop
ip netns del "$a"
ip netns del "$s"
echo "dpdk: ok"
