#!/usr/bin/env bash
# OVN's flow tables at scale, beside Open vSwitch: 200 logical switches of 20 ports each made by one script, one port of each on this
# chassis and the others on one that only the southbound database knows. Shows the time until the last port is installed, the memory
# and the number of flows, which has to be the same. SWITCHES and PORTS make it smaller; DAEMON is another build of the switch.
set -euo pipefail
. "$(dirname "$0")/../privileged/common/switch.bash"
for program in ovn-nbctl ovn-northd ovn-controller ovsdb-server ovs-vsctl ovs-vswitchd; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program (ci/install-packages)"; exit 77; }
done
mkdir "$dir/bin"
chmod 755 "$dir"
measure() { # name, switch
    ln -sf "$2" "$dir/bin/ovs-vswitchd"
    mkdir "$dir/fleet"
    echo "-- $1"
    /usr/bin/python3 tests/long/ovn_scale.py "$dir/fleet" "scale-$$" "$dir/bin/ovs-vswitchd" "${SWITCHES:-200}" "${PORTS:-20}" >"$dir/$1" || {
        tail -n 30 "$dir"/fleet/hv1/ovs-vswitchd.log "$dir"/fleet/hv1/ovn-controller.log >&2
        fail "$1: not all is as it has to be"
    }
    cat "$dir/$1"
    rm -rf "$dir/fleet"
}
measure sluice "$(readlink -f "${DAEMON:-$sluice}")"
measure ovs /usr/sbin/ovs-vswitchd
diff "$dir/ovs" "$dir/sluice" || fail "Open vSwitch shows something else (<)"
