#!/usr/bin/env bash
# iperf3 over TCP between two namespaces, by Geneve from one switch to another: Sluice on AF_PACKET and on AF_XDP, Open vSwitch on AF_PACKET
# (Debian's is built without AF_XDP). They take turns, ROUNDS (3) times, each for SECONDS_EACH (10). Before that bytes go through and are
# compared, hosts' offloads as the kernel has them: what leaves as one large segment comes through the tunnel in small ones.
# DAEMON is another build of Sluice. Shows every measurement; fails if bytes do not come through.
set -euo pipefail
. "$(dirname "$0")/../privileged/common/switch.bash"
for program in ovsdb-server ovs-vsctl ovs-vswitchd iperf3 ethtool ss; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program (ci/install-packages)"; exit 77; }
done
mkdir "$dir/bin"
chmod 755 "$dir"
expected="8388608 bytes there and back: h2 sees 10.0.0.1, all came back"
measure() { # name, switch, type of ports, options
    local name=$1
    ln -sf "$2" "$dir/bin/ovs-vswitchd"
    mkdir "$dir/nodes"
    /usr/bin/python3 tests/long/tunnel_tcp.py "$dir/nodes" "tt-$$" "$dir/bin/ovs-vswitchd" "$3" "${SECONDS_EACH:-10}" "${@:4}" >"$dir/out" 2>"$dir/rate" || {
        cat "$dir/out" "$dir/rate" >&2
        tail -n 20 "$dir"/nodes/n1/ovs-vswitchd.log >&2
        fail "$name: not all is as it has to be"
    }
    [ "$(cat "$dir/out")" = "$expected" ] || fail "$name: $(cat "$dir/out")"
    echo "$name: $(cat "$dir/rate")"
    rm -rf "$dir/nodes"
}
sluice=$(readlink -f "${DAEMON:-$sluice}")
for round in $(seq "${ROUNDS:-3}"); do
    echo "-- round $round"
    measure "sluice af_packet" "$sluice" system
    measure "sluice af_xdp" "$sluice" afxdp
    measure "ovs af_packet" /usr/sbin/ovs-vswitchd system --no-offloads
done
