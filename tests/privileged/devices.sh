#!/usr/bin/env bash
# Two hosts joined by the switch over veth pairs, with AF_XDP and again with AF_PACKET: ping, ping6 and TCP with every
# offload as the kernel has it, IPv4 and IPv6; a pair that is taken away and put back, and a port whose device was not
# there at the start, while the others go on.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"

# A pair: port p$1 at the switch, eth0 of host number $1 in namespace $2.
pair() {
    ip -n "$s" link add "p$1" type veth peer name eth0 netns "$2"
    ip -n "$2" addr add "10.9.0.$1/24" dev eth0
    ip -n "$2" addr add "fd00::$1/64" dev eth0 nodad
    ip -n "$2" link set eth0 up
    ip -n "$s" link set "p$1" up
}
a_pings() { ip netns exec "$a" ping -q -c 5 -i 0.1 -W 5 "$@" > "$dir/ping" || fail "no ping $*: $(cat "$dir/ping")"; }

for kind in af_xdp af_packet; do
    make_namespaces
    pair 1 "$a"
    pair 2 "$b"
    printf '%s\n' "p1 $kind" "p2 $kind" "p3 $kind" | configure
    start
    grep -q 'ERR|port p3: device p3: find it: No such device' "$dir/log" || fail "the device that is not there was not told of"

    a_pings -s 1472 10.9.0.2
    echo "$kind: round trips of a lone packet: $(tail -1 "$dir/ping")"
    a_pings -6 fd00::2
    for host in 10.9.0.2 fd00::2; do
        serve "$b"
        ip netns exec "$a" iperf3 -c "$host" -n 30M > "$dir/iperf" 2>&1 || fail "no TCP: $(cat "$dir/iperf")"
        echo "$kind: TCP to $host: $(awk '/receiver/ { print $7, $8 }' "$dir/iperf")"
        served
    done

    # A pair that goes, while the other hosts go on; with another user's rights it is opened again.
    ip -n "$s" link del p2
    logged 'port p2 is down'
    pair 2 "$b"
    logged 'port p2 is up'
    ip netns exec "$a" ip neigh flush dev eth0
    a_pings 10.9.0.2
    # The port that was never there.
    ip -n "$s" link add p3 type veth peer name q3
    ip -n "$s" link set p3 up
    ip -n "$s" link set q3 up
    logged 'port p3 could be opened now'
    # A namespace that disappears with its device.
    ip netns del "$b"
    until_true logged_again 'port p2 is down' 1 || fail "the namespace that has gone was not noticed"
    ip netns add "$b"
    pair 2 "$b"
    until_true logged_again 'port p2 is up' 1 || fail "the device of the new namespace was not noticed"
    ip netns exec "$a" ip neigh flush dev eth0
    a_pings 10.9.0.2
    ctl sluice/drops > "$dir/drops"
    stop
    remove_namespaces
done
echo "two hosts joined by AF_XDP and by AF_PACKET"
