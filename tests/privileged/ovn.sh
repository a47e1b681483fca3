#!/usr/bin/env bash
# OVN as Debian ships it, over three chassis in network namespaces, each an ovsdb-server, a switch and an ovn-controller, with Geneve
# between them: what packets between real stacks show of logical switches and routers, ACLs, NAT, load balancers, DHCP, DNS and the
# rest. Then the same with Open vSwitch, and what the two show is compared. DAEMON=/usr/sbin/ovs-vswitchd runs that alone, FEATURES='switching
# nat' these parts alone; with KEEP=DIRECTORY a failure leaves its logs there.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
for program in ovn-nbctl ovn-northd ovn-controller ovsdb-server ovs-vsctl udhcpc dig ethtool; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program (ci/install-packages)"; exit 77; }
done
mkdir "$dir/bin"
chmod 755 "$dir"

# What the fleet shows with a switch.
fleet() { # switch, file for what it shows
    local -a options=()
    [ "$1" = "$sluice" ] || options=(--no-checksums)
    ln -sf "$1" "$dir/bin/ovs-vswitchd"
    mkdir "$dir/fleet"
    # shellcheck disable=SC2086
    /usr/bin/python3 tests/privileged/common/ovn/run.py "$dir/fleet" "ovn-$$" "$dir/bin/ovs-vswitchd" "${options[@]}" ${FEATURES:-} | tee "$2" ||
        {
            tail -n 30 "$dir"/fleet/hv*/ovs-vswitchd.log "$dir"/fleet/hv1/ovn-controller.log >&2
            [ -z "${KEEP:-}" ] || cp -r "$dir/fleet" "$KEEP"
            fail "not all is as it has to be"
        }
    rm -rf "$dir/fleet"
}
fleet "$(readlink -f "${DAEMON:-$sluice}")" "$dir/ours"
if [ -z "${DAEMON:-}" ]; then
    fleet /usr/sbin/ovs-vswitchd "$dir/theirs"
    diff "$dir/theirs" "$dir/ours" || fail "Open vSwitch shows something else (<)"
fi
echo "ovn: $(grep -vc '^--' "$dir/ours") things shown"
