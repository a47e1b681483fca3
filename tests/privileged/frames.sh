#!/usr/bin/env bash
# Two hosts joined by the switch over AF_XDP, over AF_PACKET and over tap, veth offloads as the kernel has them: ping and
# ping6 with packets of 1500 and 9000 bytes, frames with VLAN tags, TCP and UDP by iperf3, and 200 000 datagrams at half
# the rate that the same run measured, none lost.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
packets=200000

# Host $1 in namespace $2 behind device $3.
host() {
    ip -n "$2" link set "$3" mtu 9000 up
    ip -n "$2" addr add "10.9.0.$1/24" dev "$3"
    ip -n "$2" addr add "fd00::$1/64" dev "$3" nodad
}

# Frames of VLAN 100 by device $1 (not every kernel has VLAN devices): ten each with 1500 and with 9000 bytes of data.
cat > "$dir/tagged.py" <<'PYTHON'
import socket, sys
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind((sys.argv[1], 0))
for size in [1500, 9000] * 10:
    sock.send(b"\xff" * 6 + b"\x02\0\0\0\0\x01" + b"\x81\0\x60\x64" + b"\x88\xb5" + bytes(size))
PYTHON

# All of them come out at host b, tagged and whole.
vlan() {
    local dump
    timeout 60 ip netns exec "$b" tcpdump -nne -l -c 20 -i "$h2" 'vlan 100' > "$dir/tagged" 2> "$dir/dump" &
    dump=$!
    until_true grep -q 'listening on' "$dir/dump" || fail "tcpdump does not listen: $(cat "$dir/dump")"
    ip netns exec "$a" python3 "$dir/tagged.py" "$h1"
    wait "$dump" || true
    for size in 1518 9018; do
        [ "$(grep -c "length $size: vlan 100, p 3" "$dir/tagged")" = 10 ] ||
            fail "of ten frames of VLAN 100 with $size bytes came: $(cat "$dir/tagged")"
    done
}

# Datagrams to the discard port of the other host: a count (0: for 1.5 seconds), and how many a second (0: all it can).
# Two milliseconds are made up for; what a longer stall keeps from being sent is sent later, not in a burst, which would
# be another rate. Prints how many were sent and in how many seconds.
cat > "$dir/send.py" <<'PYTHON'
import socket, sys, time
count, rate = int(sys.argv[1]), float(sys.argv[2])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to, data, burst, sent = ("10.9.0.2", 9), bytes(32), 16, 0
start = due = time.monotonic()
while sent < count if count else time.monotonic() - start < 1.5:
    while rate and time.monotonic() < due:
        time.sleep(0.0001)
    due = max(due, time.monotonic() - 0.002) + (burst / rate if rate else 0)
    for _ in range(burst):
        sock.sendto(data, to)
    sent += burst
print(sent, time.monotonic() - start)
PYTHON

# Datagrams that have come to host b, where no program listens.
came() { ip netns exec "$b" awk '/^Udp: [0-9]/ { print $3 }' /proc/net/snmp; }
# Sends and waits until nothing more comes, or all has. Sets sent, seconds and arrived.
stream() {
    local before last=-1
    before=$(came)
    read -r sent seconds < <(ahead ip netns exec "$a" python3 "$dir/send.py" "$1" "$2")
    arrived=$(($(came) - before))
    while [ "$arrived" -lt "$sent" ] && [ "$arrived" != "$last" ]; do
        last=$arrived
        sleep 1
        arrived=$(($(came) - before))
    done
}

# A tenth more than half of the maximum is asked for, so that half is reached. The queues are long enough for a core to be away
# for some milliseconds.
at_half_of_the_maximum() {
    local max was before
    stream 0 0
    max=$(awk -v n="$arrived" -v t="$seconds" 'BEGIN { print int(n / t) }')
    before=$(stalls)
    stream "$packets" $((max * 11 / 20 > 5000 ? max * 11 / 20 : 5000))
    was=$(awk -v n="$sent" -v t="$seconds" 'BEGIN { print int(n / t) }')
    echo "$kind: $max packets a second at most; at $was a second as sent $arrived of $sent arrived"
    paced_well "$was" $((max / 2)) $((sent - arrived)) "$before" 8
}

watch_cores
for kind in af_xdp af_packet tap; do
    make_namespaces
    if [ "$kind" != tap ]; then
        ip -n "$s" link add p1 mtu 9000 type veth peer name h1 netns "$a"
        ip -n "$s" link add p2 mtu 9000 type veth peer name h2 netns "$b"
        ip -n "$s" link set p1 up
        ip -n "$s" link set p2 up
    fi
    printf '%s\n' "p1 $kind mtu = 9000" "p2 $kind mtu = 9000" | configure
    start
    h1=h1 h2=h2
    if [ "$kind" = tap ]; then
        h1=p1 h2=p2
        ip -n "$s" link set p1 netns "$a"
        ip -n "$s" link set p2 netns "$b"
    fi
    host 1 "$a" "$h1"
    host 2 "$b" "$h2"

    # Bytes of data that make IP packets of 1500 and of 9000 bytes, not to be fragmented.
    for size in 1500 9000; do
        ip netns exec "$a" ping -q -c 3 -i 0.1 -W 5 -M do -s $((size - 28)) 10.9.0.2 > "$dir/ping" ||
            fail "no ping of $size bytes: $(cat "$dir/ping")"
        ip netns exec "$a" ping -6 -q -c 3 -i 0.1 -W 5 -M do -s $((size - 48)) fd00::2 > "$dir/ping" ||
            fail "no ping6 of $size bytes: $(cat "$dir/ping")"
    done
    vlan
    for run in "10.9.0.2 -n 20M" "fd00::2 -n 20M" "10.9.0.2 -u -b 50M -t 2 -l 1400" "fd00::2 -u -b 50M -t 2 -l 8000"; do
        serve "$b"
        # shellcheck disable=SC2086
        timeout 60 ip netns exec "$a" iperf3 -c $run > "$dir/iperf" 2>&1 || fail "iperf3 $run: $(cat "$dir/iperf")"
        echo "$kind: iperf3 $run: $(awk '/receiver/ { print $7, $8, $11, $12 }' "$dir/iperf")"
        served
    done
    ten_times at_half_of_the_maximum

    stop
    remove_namespaces
done
echo "two hosts joined by AF_XDP, AF_PACKET and tap"
