#!/usr/bin/env bash
# The commands of Open vSwitch's how-tos, as they stand in its documentation: "Isolating VM Traffic Using VLANs", and from its
# questions and answers on VLANs: trunks, native ports, QinQ with dot1q-tunnel ports. Machines are namespaces, hosts are bridges.
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
inside timeout 60 tcpdump -i host1 -e -nn -l > "$dir/frame" 2> "$dir/tcpdump" & watching=$!
until_true grep -q listening "$dir/tcpdump" || fail "tcpdump does not start: $(cat "$dir/tcpdump")"
talk 1 3
until_true grep -q '802.1Q-QinQ.*vlan 300.*vlan 10' "$dir/frame" || fail "not tagged twice: $(cat "$dir/frame")"
kill "$watching"
wait "$watching" || true
ovs-vsctl set port left-down cvlans=20
talk 2 4
apart 1 3

kind=
for bridge in left right provider-left provider-right; do ovs-vsctl del-br "$bridge"; done
stop_all
echo "machines apart and together over VLANs, native ports, a fake bridge, two tags"
