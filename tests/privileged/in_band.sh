#!/usr/bin/env bash
# A controller behind the switch's own port: a secure bridge without rules reaches it by in-band control's hidden flows, also while the
# controller sets rules that drop everything. Without in-band control it does not.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/vswitchd.bash

# A controller that greets, answers echo requests and does no more.
control() {
    ip netns exec "$a" python3 -c '
import socket
with socket.create_server(("10.9.0.2", 6653)) as server:
    while True:
        peer, _ = server.accept()
        peer.sendall(bytes([1, 0, 0, 8, 0, 0, 0, 1]))
        stream = peer.makefile("rb")
        while header := stream.read(8):
            body = stream.read(int.from_bytes(header[2:4], "big") - 8)
            if header[1] == 2:
                peer.sendall(bytes([header[0], 3]) + header[2:] + body)
' > "$dir/controller" 2>&1 &
    controller=$!
}
end_controller() {
    kill "$controller"
    wait "$controller" || true
}
# The switch's host is 10.9.0.1 by its LOCAL port, the controller's 10.9.0.2 behind p1.
connect() { # settings of the bridge and the controller
    start_all
    ip netns add "$a"
    ip -n "$s" link add p1 type veth peer name eth0 netns "$a"
    ip -n "$s" link set p1 up
    # The kernel has the frames of p1, too: it would answer ARP for br0's address with p1's.
    ip netns exec "$s" sysctl -qw net.ipv4.conf.all.arp_ignore=1
    ip -n "$a" addr add 10.9.0.2/24 dev eth0
    ip -n "$a" link set eth0 up
    control
    ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure -- add-port br0 p1
    ip -n "$s" addr add 10.9.0.1/24 dev br0
    ip -n "$s" link set br0 up
    ovs-vsctl set-controller br0 tcp:10.9.0.2:6653 -- set controller br0 max_backoff=1000 "$@"
}
disconnect() {
    end_controller
    stop_all
    ip netns del "$a"
    rm "$dir/conf.db"
}
is_connected() { [ "$(ovs-vsctl get controller br0 is_connected)" = true ]; }
hidden() { ovs-appctl bridge/dump-flows br0 | grep -o 'priority=18000[0-9],.*' || true; }

kind='in-band'
connect
until_true is_connected || fail "no connection: $(hidden)"
[ -z "$(ovs-ofctl dump-flows br0 | grep -v reply)" ] || fail "OpenFlow shows $(ovs-ofctl dump-flows br0)"
[ "$(ovs-ofctl dump-aggregate br0 | grep -o 'flow_count=[0-9]*')" = flow_count=0 ] || fail "OpenFlow counts hidden flows"
for part in '0,.*in_port=LOCAL.*tp_src=68' 1 2 3 4 '5,.*arp_tpa=10.9.0.2' '6,.*arp_spa=10.9.0.2' '7,.*nw_dst=10.9.0.2,tp_dst=6653' '8,.*nw_src=10.9.0.2,tp_src=6653'; do
    # The next hop's address is known at the second look.
    until_true sh -c "ovs-appctl bridge/dump-flows br0 | grep -q 'priority=18000$part'" || fail "no flow 18000$part: $(hidden)"
done
# Rules come behind, and deleting all leaves the hidden ones.
ovs-ofctl add-flow br0 priority=65535,actions=drop
ovs-ofctl del-flows br0
[ "$(hidden | wc -l)" = 9 ] || fail "hidden flows went: $(hidden)"
ovs-ofctl add-flow br0 priority=65535,actions=drop
end_controller
until_true sh -c "[ \$(ovs-vsctl get controller br0 is_connected) = false ]" || fail "its end was not seen"
control
until_true is_connected || fail "no connection past rules that drop all: $(hidden)"
ovs-vsctl set bridge br0 other_config:disable-in-band=true
until_true sh -c "! ovs-appctl bridge/dump-flows br0 | grep -q priority=1800" || fail "hidden flows stay: $(hidden)"
disconnect

kind='out of band'
connect connection_mode=out-of-band
sleep 3
! is_connected && [ -z "$(hidden)" ] || fail "a secure bridge without rules forwards: $(hidden)"
disconnect
echo "lane in_band: a controller is reached through the bridge"
