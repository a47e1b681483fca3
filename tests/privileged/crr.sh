#!/usr/bin/env bash
# TCP between real stacks through this switch and Open vSwitch: a quick look of `sluice lab crr`, which checks every transaction and
# that the rules counted the packets, and leaves no namespace. An Open vSwitch that runs on the machine meanwhile, here in the
# namespace that the experiment is started from, keeps its devices, its flows and its packets.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/ovs.bash

make_namespaces
start_ovs "$s" --disable-system
running=$!
vsctl add-br br0 -- set bridge br0 datapath_type=netdev
for end in "$a 10.8.0.1" "$b 10.8.0.2"; do
    read -r ns address <<< "$end"
    ip -n "$s" link add "p-${ns##*-}" type veth peer name eth0 netns "$ns"
    ip -n "$s" link set "p-${ns##*-}" up
    ip -n "$ns" addr add "$address/24" dev eth0
    ip -n "$ns" link set eth0 up
    vsctl add-port br0 "p-${ns##*-}"
done
# What there is of it: its devices, bridges and ports, and its flow.
its_state() {
    ip -n "$s" -br link | awk '{ print $1 }' | sort
    ovs-appctl -t "$dir/ovs/vs.ctl" dpctl/show | sed 's/:[0-9/]*$//; /lookups\|flows/d'
    vsctl show
    ovs-ofctl dump-flows --no-stats "unix:$dir/ovs/br0.mgmt"
}
ip netns exec "$a" ping -q -c 3 -i 0.2 -W 5 10.8.0.2 > "$dir/ping" || fail "no ping through the Open vSwitch that runs: $(cat "$dir/ping")"
its_state > "$dir/before"
ip netns exec "$a" ping -q -i 0.2 -W 5 10.8.0.2 > "$dir/ping" &
ping=$!

# In its network, with the names of namespaces of the machine.
nsenter --net="/run/netns/$s" "$sluice" lab crr --quick --out "$dir/crr" > "$dir/out" 2>&1 || fail "$(cat "$dir/out")"
for arm in autopilot '2012, after' ovs; do
    grep -q "ktps.* $arm [0-9.]*[1-9]" "$dir/out" || fail "no transactions: $arm: $(cat "$dir/out")"
done
grep -q '^| TCP_CRR, 32 at once |' "$dir/crr/report.md" || fail "no table: $(cat "$dir/crr/report.md")"
! ip netns list | grep '^sluice-crr-' || fail "a namespace is left"

kill -INT "$ping"
wait "$ping" || true
kill -0 "$running" || fail "the Open vSwitch that ran has ended: $(tail -3 "$dir/vs.log")"
its_state > "$dir/after"
diff "$dir/before" "$dir/after" > "$dir/diff" || fail "the experiment has changed the Open vSwitch that runs: $(cat "$dir/diff")"
grep -q ' 0% packet loss' "$dir/ping" || fail "the experiment has disturbed the Open vSwitch that runs: $(cat "$dir/ping")"
