#!/usr/bin/env bash
# Two hosts joined by the switch over veth pairs, with AF_XDP and again with AF_PACKET: ping, ping6 and TCP with every
# offload as the kernel has it, IPv4 and IPv6; a pair that is taken away and put back.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build -q -p sluice
sluice=$PWD/target/debug/sluice
dir=$(mktemp -d)
a=dv-$$-a b=dv-$$-b s=dv-$$-s
pid= server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    for ns in "$a" "$b" "$s"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap finish EXIT
fail() { echo "devices: $kind: $*" >&2; cat "$dir/log" >&2; exit 1; }
ctl() { "$sluice" ctl -T 20 -t "$dir/run/sluice.ctl" "$@"; }

# A pair: port p$1 at the switch, eth0 of host number $1 in namespace $2.
pair() {
    ip -n "$s" link add "p$1" type veth peer name eth0 netns "$2"
    ip -n "$2" addr add "10.9.0.$1/24" dev eth0
    ip -n "$2" addr add "fd00::$1/64" dev eth0 nodad
    ip -n "$2" link set eth0 up
    ip -n "$s" link set "p$1" up
}

for kind in af_xdp af_packet; do
    for ns in "$a" "$b" "$s"; do ip netns add "$ns"; done
    pair 1 "$a"
    pair 2 "$b"
    cat > "$dir/switch.toml" <<TOML
[switch]
rundir = "$dir/run"
pmd-cores = [0]
[datapath]
pmd-sleep-max = "50us"
[[bridge]]
name = "br0"
fail-mode = "standalone"
[[bridge.port]]
name = "p1"
ofport = 1
type = "$kind"
[[bridge.port]]
name = "p2"
ofport = 2
type = "$kind"
TOML
    ip netns exec "$s" "$sluice" run "$dir/switch.toml" > "$dir/out" 2> "$dir/log" &
    pid=$!
    for _ in $(seq 200); do [ -S "$dir/run/sluice.ctl" ] && break; sleep 0.1; done
    [ -S "$dir/run/sluice.ctl" ] || fail "it did not start"

    ip netns exec "$a" ping -q -c 5 -i 0.1 -W 5 -s 1472 10.9.0.2 > "$dir/ping" || fail "no ping: $(cat "$dir/ping")"
    ip netns exec "$a" ping -6 -q -c 5 -i 0.1 -W 5 fd00::2 > "$dir/ping" || fail "no ping6: $(cat "$dir/ping")"
    for host in 10.9.0.2 fd00::2; do
        ip netns exec "$b" iperf3 -s -1 > /dev/null &
        server=$!
        sleep 1
        ip netns exec "$a" iperf3 -c "$host" -n 30M > "$dir/iperf" 2>&1 || fail "no TCP: $(cat "$dir/iperf")"
        echo "$kind: TCP to $host: $(awk '/receiver/ { print $7, $8 }' "$dir/iperf")"
        wait "$server" || true
        server=
    done

    ip -n "$s" link del p2
    for _ in $(seq 100); do grep -q 'port p2 is down' "$dir/log" && break; sleep 0.1; done
    grep -q 'port p2 is down' "$dir/log" || fail "the device that has gone was not noticed"
    pair 2 "$b"
    for _ in $(seq 100); do grep -q 'port p2 is up' "$dir/log" && break; sleep 0.1; done
    ip netns exec "$a" ip neigh flush dev eth0
    ip netns exec "$a" ping -q -c 3 -i 0.2 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping after the device came back"
    ctl sluice/drops > "$dir/drops"

    kill -TERM "$pid"
    wait "$pid" || fail "it ended with $?"
    pid=
    for ns in "$a" "$b" "$s"; do ip netns del "$ns"; done
done
echo "two hosts joined by AF_XDP and by AF_PACKET"
