#!/usr/bin/env bash
# ovs-tcpdump, as it comes with Open vSwitch, on a port of Sluice: a mirror to a device that it makes, and nothing left of it.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/vswitchd.bash
/usr/bin/python3 -c 'import ovs.db.idl' 2> /dev/null || { echo "SKIPPED: no python3-openvswitch"; exit 77; }

start_all
for host in "$a" "$b"; do ip netns add "$host"; done
for n in 1 2; do
    host=$a
    [ "$n" = 1 ] || host=$b
    ip -n "$s" link add "p$n" type veth peer name eth0 netns "$host"
    ip -n "$s" link set "p$n" up
    ip -n "$host" addr add "10.8.0.$n/24" dev eth0
    ip -n "$host" link set eth0 up
done
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 p1 -- add-port br0 p2
pings() { ip netns exec "$a" ping -q -c 1 -W 1 10.8.0.2; }
until_true pings || fail "the hosts do not reach each other"

inside timeout 120 ovs-tcpdump --db-sock "unix:$dir/db.sock" -i p1 -nl -c 4 icmp > "$dir/tcpdump" 2> "$dir/said" &
tcpdump=$!
mirrors() { [ "$(ovs-vsctl --columns=name --bare list mirror)" = m_p1 ]; }
until_true mirrors || fail "ovs-tcpdump makes no mirror: $(cat "$dir/said")"
seen() { pings; ! kill -0 "$tcpdump" 2> /dev/null; }
until_true seen || fail "tcpdump does not end: $(cat "$dir/tcpdump" "$dir/said")"
wait "$tcpdump" || fail "ovs-tcpdump ended with $?: $(cat "$dir/said")"
[ "$(grep -c 'ICMP echo' "$dir/tcpdump")" = 4 ] || fail "tcpdump does not see the pings: $(cat "$dir/tcpdump")"
grep -q '10.8.0.2 > 10.8.0.1: ICMP echo reply' "$dir/tcpdump" || fail "one direction alone: $(cat "$dir/tcpdump")"
[ "$(ovs-vsctl list-ports br0 | xargs)" = "p1 p2" ] || fail "left behind: $(ovs-vsctl list-ports br0)"
[ -z "$(ovs-vsctl list mirror)" ] || fail "a mirror is left: $(ovs-vsctl list mirror)"
until_true pings || fail "no ping afterwards"
stop_all
echo "tcpdump: $(wc -l < "$dir/tcpdump") packets by ovs-tcpdump, and no mirror left"
