#!/usr/bin/env bash
# TCP between real stacks through this switch and Open vSwitch: a quick look of `sluice lab crr`, which checks every transaction and
# that the rules counted the packets, and leaves no namespace.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"

"$sluice" lab crr --quick --out "$dir/crr" > "$dir/out" 2>&1 || fail "$(cat "$dir/out")"
for arm in autopilot '2012, after' ovs; do
    grep -q "ktps.* $arm [0-9.]*[1-9]" "$dir/out" || fail "no transactions: $arm: $(cat "$dir/out")"
done
grep -q '^| TCP_CRR, 32 at once |' "$dir/crr/report.md" || fail "no table: $(cat "$dir/crr/report.md")"
! ip netns list | grep '^sluice-crr-' || fail "a namespace is left"
