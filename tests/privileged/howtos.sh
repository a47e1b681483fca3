#!/usr/bin/env bash
# The commands of Open vSwitch's how-tos, as they stand in its documentation: "Isolating VM Traffic Using VLANs", and from its
# questions and answers on VLANs: trunks, native ports, QinQ with dot1q-tunnel ports; SPAN and RSPAN. Machines are namespaces, hosts are bridges.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/vswitchd.bash
vms=("$lane-$$-1" "$lane-$$-2" "$lane-$$-3" "$lane-$$-4")
trap 'finish_daemons; for ns in "${vms[@]}"; do ip netns del "$ns" 2>/dev/null || true; done' EXIT
start_all

# Machine N has address 10.N in one network with all others, and is tapN on its host.
for n in 1 2 3 4; do
    ip netns add "${vms[n - 1]}"
    ip -n "$s" link add "tap$n" type veth peer name eth0 netns "${vms[n - 1]}"
    ip -n "$s" link set "tap$n" up
    ip -n "${vms[n - 1]}" addr add "10.9.1.$n/24" dev eth0
    ip -n "${vms[n - 1]}" link set eth0 up
done
# The wire between the two hosts.
ip -n "$s" link add host1 type veth peer name host2
ip -n "$s" link set host1 up
ip -n "$s" link set host2 up

talks() { ip netns exec "${vms[$1 - 1]}" ping -q -c 1 -W 1 "10.9.1.$2" > /dev/null; }
talk() { until_true talks "$1" "$2" || fail "machines $1 and $2 do not talk"; }
# DEVICE FILE TCPDUMP'S-ARGUMENTS: writes what passes a device to a file, from now on until `unwatch`.
watch() {
    # Emptied first: what the one before said is no sign that this one listens.
    : > "$dir/tcpdump"
    inside timeout 60 tcpdump -i "$1" -nn -l "${@:3}" > "$2" 2> "$dir/tcpdump" & watching=$!
    until_true grep -q listening "$dir/tcpdump" || fail "tcpdump does not start: $(cat "$dir/tcpdump")"
}
unwatch() {
    kill "$watching"
    wait "$watching" || true
}
apart() { ! talks "$1" "$2" || fail "machines $1 and $2 talk"; }

kind='isolating traffic'
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev
ovs-vsctl add-port br0 host1
ovs-vsctl add-port br0 tap1 tag=100
ovs-vsctl add-port br0 tap2 tag=200
ovs-vsctl add-br br1 -- set bridge br1 datapath_type=netdev
ovs-vsctl add-port br1 host2
ovs-vsctl add-port br1 tap3 tag=100
ovs-vsctl add-port br1 tap4 tag=200
talk 1 3
talk 2 4
apart 1 2
apart 1 4
apart 3 2

kind='taken off its VLAN'
ovs-vsctl clear port tap1 tag
ovs-vsctl set port tap1 tag=200
talk 1 4
apart 1 3

kind='a trunk that carries one VLAN'
ovs-vsctl set port host1 trunks=200
talk 2 4
ovs-vsctl set port tap1 tag=100
apart 1 3
ovs-vsctl clear port host1 trunks
talk 1 3

kind='a native VLAN'
# The wire carries VLAN 100 untagged at one end; so it must be VLAN 100 at the other.
ovs-vsctl set port host1 tag=100 vlan_mode=native-untagged
ovs-vsctl set port host2 tag=100 vlan_mode=native-untagged
talk 1 3
talk 2 4
apart 1 2
ovs-vsctl clear port host1 tag vlan_mode
apart 1 3
ovs-vsctl clear port host2 tag vlan_mode
talk 1 3

kind='an internal port in a VLAN'
ovs-vsctl add-port br0 vlan100 tag=100 -- set interface vlan100 type=internal
ip -n "$s" addr add 10.9.1.9/24 dev vlan100
ip -n "$s" link set vlan100 up
talk 3 9
apart 4 9
ovs-vsctl del-port br0 vlan100

kind='a fake bridge'
ovs-vsctl add-br vlan200 br0 200
[ "$(ovs-vsctl br-to-vlan vlan200)" = 200 ] || fail "the fake bridge has another VLAN"
ip -n "$s" addr add 10.9.1.8/24 dev vlan200
ip -n "$s" link set vlan200 up
talk 4 8
apart 3 8
ovs-vsctl del-br vlan200

kind='a SPAN port'
# What machine 1 sends and receives, for an internal port whose address does not stand for the bridge.
ovs-vsctl add-port br0 span0 -- set interface span0 type=internal
ip -n "$s" link set span0 up
ip -n "$s" link set tap1 address 00:16:3e:00:00:07
ip -n "$s" link set host1 address 00:16:3e:00:00:05
ovs-vsctl -- --id=@from get port tap1 -- --id=@to get port span0 -- --id=@m create mirror name=span select-src-port=@from \
    select-dst-port=@from output-port=@to -- set bridge br0 mirrors=@m
watch span0 "$dir/span" icmp
talk 1 3
until_true grep -q '10.9.1.3 > 10.9.1.1: ICMP echo reply' "$dir/span" || fail "no reply is copied: $(cat "$dir/span")"
grep -q '10.9.1.1 > 10.9.1.3: ICMP echo request' "$dir/span" || fail "no request is copied: $(cat "$dir/span")"
unwatch
counted() { [ "$(ovs-vsctl get mirror span statistics:tx_packets)" -ge 2 ]; }
until_true counted || fail "the mirror counts nothing: $(ovs-vsctl list mirror)"

kind=RSPAN
# Copies of what the wire brings in VLAN 100 reach the port of VLAN 300, and do not return to the wire.
ovs-vsctl add-port br0 rspan0 tag=300 -- set interface rspan0 type=internal -- set port host1 trunks=100,200 \
    -- --id=@wire get port host1 -- --id=@m create mirror name=rspan select-src-port=@wire select-vlan=100 output-vlan=300 \
    -- set bridge br0 mirrors=@m flood-vlans=300
ip -n "$s" link set rspan0 up
watch rspan0 "$dir/rspan" icmp
talk 1 3
until_true grep -q '10.9.1.3 > 10.9.1.1: ICMP echo reply' "$dir/rspan" || fail "no reply is copied: $(cat "$dir/rspan")"
! grep -q '10.9.1.1 > ' "$dir/rspan" || fail "what the wire does not bring is copied: $(cat "$dir/rspan")"
unwatch
ovs-vsctl clear bridge br0 mirrors flood-vlans -- clear port host1 trunks -- del-port br0 rspan0 -- del-port br0 span0

ovs-vsctl del-br br0
ovs-vsctl del-br br1

kind=QinQ
# Customer bridges tag their machines; the provider's bridge carries both customers' tags in a tag of its own.
ovs-vsctl set Open_vSwitch . other_config:vlan-limit=2
customer() { # bridge, machine, machine
    ovs-vsctl add-br "$1" -- set bridge "$1" datapath_type=netdev \
        -- add-port "$1" "tap$2" tag=10 -- add-port "$1" "tap$3" tag=20 \
        -- add-port "$1" "$1-up" -- set interface "$1-up" type=patch options:peer="$1-down"
}
customer left 1 2
customer right 3 4
for side in left right; do
    wire=host1; [ $side = left ] || wire=host2
    ovs-vsctl add-br "provider-$side" -- set bridge "provider-$side" datapath_type=netdev -- add-port "provider-$side" $wire \
        -- add-port "provider-$side" "$side-down" vlan_mode=dot1q-tunnel tag=300 other-config:qinq-ethtype=802.1ad \
        -- set interface "$side-down" type=patch options:peer="$side-up"
done
talk 1 3
talk 2 4
apart 1 2
apart 1 4
# What host1 receives: frames that it sends past the queueing discipline are not shown.
watch host1 "$dir/frame" -e
talk 1 3
until_true grep -q '802.1Q-QinQ.*vlan 300.*vlan 10' "$dir/frame" || fail "not tagged twice: $(cat "$dir/frame")"
unwatch
ovs-vsctl set port left-down cvlans=20
talk 2 4
apart 1 3

kind=
for bridge in left right provider-left provider-right; do ovs-vsctl del-br "$bridge"; done
stop_all
echo "machines apart and together over VLANs, native ports, a fake bridge, two tags; SPAN and RSPAN"
