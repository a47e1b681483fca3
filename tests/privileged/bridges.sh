#!/usr/bin/env bash
# Two standalone bridges joined by patch ports, one with a LOCAL device: hosts reach each other through both; port flags
# that a controller sets; flows that time out, and the reason told; frames of 9000 bytes, and longer ones dropped by name.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
command -v ovs-ofctl >/dev/null || { echo "SKIPPED: no ovs-ofctl"; exit 77; }
c=$lane-$$-c
trap 'ip netns del "$c" 2>/dev/null || true; finish' EXIT

make_namespaces
ip netns add "$c"
head_of_configuration > "$dir/switch.toml"
cat >> "$dir/switch.toml" <<TOML
[[bridge]]
name = "lan0"
fail-mode = "standalone"
local = true
port = [
    { name = "t1", ofport = 1, type = "tap", mtu = 9000 },
    { name = "to1", ofport = 3, type = "patch", options = { peer = "to0" } },
]
[[bridge]]
name = "lan1"
fail-mode = "standalone"
port = [
    { name = "t2", ofport = 1, type = "tap", mtu = 9000 },
    { name = "t3", ofport = 2, type = "tap" },
    { name = "to0", ofport = 3, type = "patch", options = { peer = "to1" } },
]
TOML
start
host() { # namespace device address
    ip -n "$s" link set "$2" netns "$1"
    # Without IPv6 hosts send only what the test asks for.
    ip netns exec "$1" sysctl -qw "net.ipv6.conf.$2.disable_ipv6=1" 2>/dev/null || true
    ip -n "$1" addr add "$3/24" dev "$2"
    ip -n "$1" link set "$2" up
}
host "$a" t1 10.9.2.1
host "$b" t2 10.9.2.2
host "$c" t3 10.9.2.3
ip -n "$s" addr add 10.9.2.9/24 dev lan0
ip -n "$s" link set lan0 up

# From namespace $1 to address $2, with the options that follow.
ping_from() { ip netns exec "$1" ping -q -c 2 -i 0.2 -W 2 "${@:3}" "$2" > "$dir/ping" 2>&1; }
reaches() { until_true ping_from "$@" || fail "$* does not arrive: $(cat "$dir/ping")"; }
is_lost() { ! ping_from "$@" || fail "$* arrives"; }
dropped() { ctl sluice/drops | awk -v reason="$1" '$1 == reason { n = $2 } END { print n + 0 }'; }
# The reason $1 has counted more than $2.
more_dropped() { [ "$(dropped "$1")" -gt "$2" ]; }

# NORMAL, without rules or controllers: within a bridge, through both, to and from the LOCAL device.
reaches "$b" 10.9.2.3
reaches "$a" 10.9.2.2
reaches "$c" 10.9.2.1
reaches "$b" 10.9.2.9
reaches "$s" 10.9.2.1
mac_of() { ip -n "$1" -br link show "$2" | awk '{ print $3 }'; }
ctl fdb/show lan0 | grep -q "^LOCAL .*$(mac_of "$s" lan0)" || fail "LOCAL was not learned: $(ctl fdb/show lan0)"
ctl fdb/show lan0 | grep -q "^ *3 .*$(mac_of "$b" t2)" || fail "the host behind the patch port was not learned"
trace=$(ctl ofproto/trace lan0 "in_port=t1,dl_src=$(mac_of "$a" t1),dl_dst=$(mac_of "$b" t2),ip")
grep -q '^bridge("lan1")' <<< "$trace" || fail "the trace does not go through the patch: $trace"
grep -q 'dl_dst=.*: NORMAL in table 0, priority 0, bridge "lan0"' <<< "$trace" || fail "the trace does not name the bridge: $trace"
ctl ofproto/list | grep -qx lan1 || fail "ofproto/list: $(ctl ofproto/list)"

# The other bridge has no LOCAL device.
before=$(dropped no-local-port)
ctl bridge/add-flow lan1 'priority=9,icmp,actions=LOCAL'
is_lost "$b" 10.9.2.3
more_dropped no-local-port "$before" || fail "packets to a LOCAL port without a device have no name: $(ctl sluice/drops)"
ctl bridge/del-flows lan1 icmp
echo "patch ports, LOCAL, standalone"

of() { ovs-ofctl "$1" "unix:$dir/run/$2.mgmt" "${@:3}"; }
reaches "$a" 10.9.2.2
before=$(dropped port-no-receive)
of mod-port lan0 t1 no-receive
is_lost "$a" 10.9.2.2
more_dropped port-no-receive "$before" || fail "no-receive has no name: $(ctl sluice/drops)"
of mod-port lan0 t1 receive
reaches "$a" 10.9.2.2
of mod-port lan1 t2 no-forward
is_lost "$a" 10.9.2.2
reaches "$a" 10.9.2.3
of mod-port lan1 t2 forward
reaches "$a" 10.9.2.2
# The port of t2's host is not learned, and a flood leaves it out.
of mod-port lan1 t2 no-flood
ip -n "$c" neigh flush dev t3
ctl fdb/flush >/dev/null
is_lost "$c" 10.9.2.2
reaches "$c" 10.9.2.1
of mod-port lan1 t2 flood
reaches "$c" 10.9.2.2
of mod-port lan1 t3 down
is_lost "$c" 10.9.2.2
of mod-port lan1 t3 up
reaches "$c" 10.9.2.2
echo "port flags: no-receive, no-forward, no-flood, down"

OVS_RUNDIR=$dir ovs-ofctl -O OpenFlow13 monitor "unix:$dir/run/lan0.mgmt" 65535 > "$dir/news" 2>&1 &
# A monitor prints nothing at first: a packet shows that it listens.
listens() {
    of packet-out lan0 "in_port=controller,packet=$(printf '%0120d' 0),actions=controller"
    sleep 0.05
    grep -q PACKET_IN "$dir/news"
}
until_true listens || fail "the monitor does not listen"
of add-flow lan0 'table=7,cookie=0x1,idle_timeout=1,send_flow_rem,udp,actions=drop'
of add-flow lan0 'table=7,cookie=0x2,hard_timeout=1,send_flow_rem,tcp,actions=drop'
of add-flow lan0 'table=7,cookie=0x3,send_flow_rem,sctp,actions=drop'
of add-flow lan0 'table=7,cookie=0x4,hard_timeout=1,icmp,actions=drop'
of del-flows lan0 'table=7,sctp'
for told in 'cookie:0x1.*reason=idle' 'reason=idle' 'reason=hard' 'reason=delete'; do
    until_true grep -q "reason=${told##*=}" "$dir/news" || fail "no message $told: $(cat "$dir/news")"
done
flows_of_7() { ctl bridge/dump-flows lan0 | grep -c 'table=7' || true; }
none_of_7() { [ "$(flows_of_7)" = 0 ]; }
until_true none_of_7 || fail "flows outlive their time: $(ctl bridge/dump-flows lan0)"
grep -q 'cookie:0x4\|cookie=0x4' "$dir/news" && fail "messages that were not requested: $(cat "$dir/news")"
echo "timeouts: idle, hard and delete are told with their reasons"

# Between ports of 9000 bytes; not out of one of 1500; and not in, where a device takes more than its port.
reaches "$a" 10.9.2.2 -M do -s 8972
before=$(dropped tx-oversize)
is_lost "$a" 10.9.2.3 -M do -s 8972
more_dropped tx-oversize "$before" || fail "long frames have no name on their way out: $(ctl sluice/drops)"
reaches "$a" 10.9.2.3 -M do -s 1472
ip -n "$a" link set t1 mtu 9100
before=$(dropped rx-oversize)
is_lost "$a" 10.9.2.2 -M do -s 8973
more_dropped rx-oversize "$before" || fail "long frames have no name on their way in: $(ctl sluice/drops)"
reaches "$a" 10.9.2.2 -M do -s 8972
echo "MTU: 9000 bytes pass, 9001 are dropped by name"

# Every packet has one fate.
count() { ctl coverage/read-counter "$1"; }
adds_up() {
    local in out
    in=$(($(count received) + $(count originated) + $(count cloned) + $(count released)))
    out=$(($(count sent) + $(count delivered) + $(ctl sluice/drops | awk '/^dropped in all/ { print $4 }') + $(count held)))
    echo "$in in, $out out" > "$dir/sum"
    [ "$in" = "$out" ]
}
until_true adds_up || fail "packets are not conserved: $(cat "$dir/sum")"
cat "$dir/sum"
stop
