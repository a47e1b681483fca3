#!/usr/bin/env bash
# Virtual machines of QEMU with Debian's kernel behind vhost-user ports: the one of examples/vm, which pings, and two more: pings, TCP
# with segmentation left to the switch, guests that boot again, are killed or move to another QEMU while they run, a switch that
# starts again; streams are compared at both ends. tests/long/guests has the parts.
# GUESTS_COMPARE=3 measures iperf3 in three turns beside Open vSwitch with DPDK instead. QEMU interprets the guests' code (TCG).
set -euo pipefail
cd "$(dirname "$0")/../.."
image=$PWD/target/guest
examples/vm/image "$image"
command -v ovsdb-server > /dev/null || { echo "SKIPPED: ovsdb-server is not installed (Debian: openvswitch-switch)"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
compare=()
[ -z "${GUESTS_COMPARE:-}" ] || compare=(--compare "$GUESTS_COMPARE")
sluice=${SLUICE:-$PWD/target/release/sluice}
if [ -z "${GUESTS_COMPARE:-}" ]; then
    [ ! -e /run/netns/host ] || { echo "SKIPPED: there is a namespace host already"; exit 77; }
    export SLUICE=$sluice IMAGE=$image
    trap 'examples/vm/down > /dev/null 2>&1; rm -rf "$dir"' EXIT
    examples/vm/up
    examples/vm/try machine
    examples/vm/down
    echo "lane example-vm: 1 passed, 0 failed, 0 skipped"
fi
# A network namespace of its own: the bridge's device is seen nowhere else.
unshare --net python3 tests/long/guests/scenario.py "$image" "$dir" "$sluice" "${compare[@]}"
