# Sourced by the scripts of the examples: the program, and a switch in the background.
# SLUICE names another program than that of the last build, or the installed one.
set -euo pipefail
cd "$(dirname "$0")"
name=$(basename "$PWD")
rundir=/run/sluice-example-$name
find_program() {
    local program
    for program in "${SLUICE:-}" ../../target/release/sluice "$(command -v sluice || true)" ../../target/debug/sluice; do
        [ -n "$program" ] && [ -x "$program" ] && { echo "$program"; return; }
    done
    echo "$name: there is no sluice: cargo build --release" >&2
    exit 1
}
sluice=$(find_program)
[ "$(id -u)" = 0 ] || { echo "$name: needs root, for network namespaces: sudo $0" >&2; exit 1; }
ctl() { "$sluice" ctl -T 30 -t "$rundir/sluice.ctl" "$@"; }

# Waits up to a minute until the command succeeds.
wait_for() {
    local _
    for _ in $(seq 600); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done
    echo "$name: never true: $*" >&2
    return 1
}

# A network namespace: a host with address $2 and MAC address $3 behind the switch's device $1-port.
add_host() {
    ip netns add "$1"
    ip link add "$1-port" type veth peer name eth0 netns "$1"
    ip link set "$1-port" up
    [ -z "${3:-}" ] || ip -n "$1" link set eth0 address "$3"
    # Whole packets with their checksums, as between machines.
    ip netns exec "$1" ethtool -K eth0 tx off > /dev/null 2>&1 || true
    ip -n "$1" link set lo up
    ip -n "$1" link set eth0 up
    [ -z "${2:-}" ] || ip -n "$1" addr add "$2" dev eth0
}
on() { ip netns exec "$@"; }

start_switch() {
    "$sluice" run --quiet sluice.toml 2> "/tmp/sluice-example-$name.log" &
    echo $! > "/tmp/sluice-example-$name.pid"
    disown
    wait_for ctl version || { cat "/tmp/sluice-example-$name.log" >&2; exit 1; }
    echo "$name: the switch runs; its log is /tmp/sluice-example-$name.log"
}
stop_switch() {
    local pid
    pid=$(cat "/tmp/sluice-example-$name.pid" 2> /dev/null) || return 0
    kill "$pid" 2> /dev/null || true
    wait_for gone "$pid"
    rm -rf "/tmp/sluice-example-$name.pid" "/tmp/sluice-example-$name.log" "$rundir"
}
gone() { ! kill -0 "$1"; }
# The kernel removes a namespace's devices some time after its name. The switch's end of the veth goes first, at once, so that the
# names are free for the next `up`.
remove_hosts() {
    local host
    for host in "$@"; do
        ip link del "$host-port" 2> /dev/null || true
        ip netns del "$host" 2> /dev/null || true
    done
}
