#!/usr/bin/env bash
# mininet as Debian ships it makes networks of userspace bridges: pings between all pairs and TCP, on a tree and on a line, without a
# controller, with ovs-testcontroller and with an os-ken application.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/vswitchd.bash
command -v mn >/dev/null || { echo "SKIPPED: mininet is not installed (ci/install-packages)"; exit 77; }
start_all

# mn cleans up by the names of programs and of files in /tmp: in namespaces of its own it sees neither others' processes nor files.
mn_in() {
    # shellcheck disable=SC2016
    inside timeout --kill-after=10 240 unshare --mount --pid --fork --kill-child --mount-proc bash -c '
        mount --bind "$1" /mnt && mount -t tmpfs tmpfs /tmp && mkdir -p "$1" && mount --bind /mnt "$1" && exec mn "${@:2}"' mn "$dir" "$@"
}
# network NAME TOPOLOGY SWITCH-OPTIONS TESTS CONTROLLER…
network() {
    local name=$1 topology=$2 options=$3 tests=$4
    shift 4
    kind="$name, $topology"
    # shellcheck disable=SC2086
    mn_in --switch "ovs,datapath=user$options" --topo "$topology" $tests "$@" > "$dir/mn" 2>&1 || fail "mn: $(cat "$dir/mn")"
    grep -q 'Results: 0% dropped' "$dir/mn" || fail "pings were lost: $(cat "$dir/mn")"
    if [[ $tests = *iperf* ]]; then
        grep -qE "Results: \['[0-9.]+ .bits/sec', '[0-9.]+ .bits/sec'\]" "$dir/mn" || fail "no TCP: $(cat "$dir/mn")"
    fi
    [ "$(ovs-vsctl list-br | wc -l)" = 0 ] || fail "bridges are left: $(ovs-vsctl show)"
    echo "mininet: $kind: $(grep -o 'Results: .*' "$dir/mn" | tr '\n' ' ')"
}
# mn looks by telnet whether iperf listens, and waits for iperf's word on that connection, which today's iperf (2.1) does not say of an
# empty one: the test would hang on any switch.
cat > "$dir/bin/telnet" <<'TELNET'
#!/bin/sh
iperf -c "$3" -p "$4" -n 1000 2>&1 | grep -q '/sec' && echo Connected
TELNET
chmod +x "$dir/bin/telnet"
export PATH=$dir/bin:$PATH
# Open vSwitch's userspace datapath forwards the unfinished checksums of a veth pair, so that TCP comes to nothing there.
both='--test pingall --test iperf'
[ -z "${DAEMON:-}" ] || both='--test pingall'
network 'no controller' tree,2 ,failMode=standalone "$both" --controller none
network 'no controller' linear,4 ,failMode=standalone "$both" --controller none
network ovs-testcontroller tree,2 '' "$both" --controller ovsc
network ovs-testcontroller linear,4 '' "$both" --controller ovsc
if python3 -m venv "$dir/v" && "$dir/v/bin/pip" -q install os-ken==3.1.0 >"$dir/pip" 2>&1; then
    # Without a function: the job is the program itself, and ends with the script.
    OSKEN_HUB_TYPE=eventlet ip netns exec "$s" "$dir/v/bin/osken-manager" --ofp-tcp-listen-port 6653 tests/privileged/common/learning_switch.py >"$dir/controller" 2>&1 &
    until_true inside bash -c ': < /dev/tcp/127.0.0.1/6653' || fail "os-ken does not listen: $(cat "$dir/controller")"
    network os-ken tree,2 ,protocols=OpenFlow13 '--test pingall' --controller remote,ip=127.0.0.1,port=6653
    network os-ken linear,4 ,protocols=OpenFlow13 '--test pingall' --controller remote,ip=127.0.0.1,port=6653
else
    echo "SKIPPED os-ken: pip cannot have it"
fi
kind=
stop_all
echo "mininet: pings and TCP on a tree and on a line"
