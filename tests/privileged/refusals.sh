#!/usr/bin/env bash
# Ports that cannot be had, each for another reason: a wrong option, a missing and a busy device, no permission, memory that may
# not be locked, no huge pages. Each is one line in the log with the cause and the remedy, and two hosts talk through the others.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"

make_namespaces
ip -n "$s" link add p3 type veth peer name q3
ip -n "$s" link set q3 up

# Two taps, and the ports of standard input; the switch is started with prefix $1.
with_ports() {
    { printf '%s\n' "p1 tap" "p2 tap"; cat; } | configure
    # shellcheck disable=SC2086
    ahead ip netns exec "$s" ${1:-} "$sluice" run "$dir/switch.toml" > "$dir/out" 2> "$dir/log" &
    pid=$!
    until_true ctl version || fail "it did not start"
}
# The only line about port $1 that is an error is this one.
refused() {
    [ "$(grep -c "|ERR|port $1: " "$dir/log")" = 1 ] || fail "port $1: not one line"
    grep -q "|ERR|port $1: $2" "$dir/log" || fail "port $1 is not refused with: $2"
    echo "refusals: $(grep -o "port $1: .*" "$dir/log" | head -1)"
}
# The others run.
the_hosts_talk() {
    ip -n "$s" link set p1 netns "$a"
    ip -n "$s" link set p2 netns "$b"
    ip -n "$a" addr add 10.9.0.1/24 dev p1; ip -n "$a" link set p1 up
    ip -n "$b" addr add 10.9.0.2/24 dev p2; ip -n "$b" link set p2 up
    ip netns exec "$a" ping -q -c 3 -i 0.1 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping: $(cat "$dir/ping")"
    stop
}

# An option that only another configuration mends ends the start, its key or its value.
for wrong in 'mode = "fast"' 'moed = "native"'; do
    printf '%s\n' "p1 tap" "wrong af_xdp options = { $wrong }" | configure
    ! ip netns exec "$s" "$sluice" run "$dir/switch.toml" > "$dir/out" 2> "$dir/log" || fail "$wrong was taken"
    tail -1 "$dir/log" | grep -q '^sluice: .*\(mode = "fast": expected native, generic or auto\|moed\)' ||
        fail "$wrong is not refused in one line: $(tail -1 "$dir/log")"
done

with_ports << 'PORTS'
gone af_packet options = { device = "none0" }
held af_xdp options = { device = "p3" }
busy af_xdp options = { device = "p3" }
lib dpdk options = { devargs = "net_null0" }
PORTS
refused gone 'device none0: find it: No such device (os error 19); expected a device of this network namespace; `ip link` lists them$'
refused busy 'device p3: .* busy (os error 16); something else uses the device$'
refused lib '.*build with `cargo build --release --features dpdk`$'
the_hosts_talk

with_ports "prlimit --memlock=1048576 setpriv --bounding-set -ipc_lock" << 'PORTS'
locked af_xdp options = { device = "p3" }
PORTS
refused locked 'device p3: .*; use fewer frames, or raise the limit of locked memory (ulimit -l)$'
the_hosts_talk

with_ports "setpriv --bounding-set -net_raw" << 'PORTS'
raw af_packet options = { device = "p3" }
PORTS
refused raw 'device p3: .*Operation not permitted (os error 1); it takes the capabilities NET_ADMIN and NET_RAW'
the_hosts_talk

remove_namespaces
echo "five ports that cannot be had, and two hosts that talk nevertheless"
