#!/usr/bin/env bash
# A bond of two links to Debian's ovs-vswitchd, which speaks LACP and balances by connection. Both ends find each other; a link that
# dies is left by both, and comes back; between two hosts no packet is lost but those that were sent to the dead link before its end
# was seen. The kernels here have neither bonding nor team, which would be other partners.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/ovs.bash

o=$lane-$$-o
finish_bonds() {
    ip netns del "$o" 2>/dev/null || true
    finish
}
trap finish_bonds EXIT

make_namespaces
ip netns add "$o"
for link in 1 2; do ip link add "m$link" netns "$s" type veth peer name "n$link" netns "$o"; done
ip link add pa netns "$s" type veth peer name eth0 netns "$a"
ip link add pb netns "$o" type veth peer name eth0 netns "$b"
for device in "$s m1" "$s m2" "$s pa" "$o n1" "$o n2" "$o pb" "$a eth0" "$b eth0"; do
    ip -n "${device% *}" link set "${device#* }" up
done
ip -n "$a" addr add 10.9.0.1/24 dev eth0
ip -n "$b" addr add 10.9.0.2/24 dev eth0

start_ovs "$o"
ovs_ctl() { ovs-appctl --timeout=20 -t "$dir/ovs/vs.ctl" "$@"; }
until_true ovs_ctl version || fail "ovs-vswitchd did not start: $(cat "$dir/vs.log")"
vsctl add-br br1 -- set bridge br1 datapath_type=netdev -- add-port br1 pb \
    -- add-bond br1 bond1 n1 n2 bond_mode=balance-tcp lacp=active other_config:lacp-time=fast other_config:bond-rebalance-interval=0

printf '%s\n' 'm1 af_packet' 'm2 af_packet' 'pa af_packet' | configure
cat >> "$dir/switch.toml" <<TOML
[[bridge.bond]]
name = "bond0"
members = ["m1", "m2"]
mode = "balance-tcp"
lb-output = true
rebalance-interval = "0s"
lacp = { active = true, fast = true, system-id = "02:00:00:00:00:99" }
TOML
start

# Whether a member is as wanted at an end: `ours m1 enabled`.
member() {
    case $1 in
        ours) ctl bond/show bond0 | grep -q "^member $2: $3" ;;
        theirs) ovs_ctl bond/show bond1 | grep -q "^member $2: $3" ;;
    esac
}
both_enabled() { for link in 1 2; do member ours "m$link" enabled && member theirs "n$link" enabled || return 1; done; }
until_true both_enabled || { ctl lacp/show; ovs_ctl lacp/show; fail "the ends do not find each other"; } >&2

ctl lacp/show bond0 > "$dir/lacp"
grep -q '^  status: active negotiated' "$dir/lacp" || fail "not negotiated: $(cat "$dir/lacp")"
[ "$(grep -c '^member: m[12]: current attached' "$dir/lacp")" = 2 ] || fail "not attached: $(cat "$dir/lacp")"
ovs_ctl lacp/show bond1 | grep -q 'partner sys_id: 02:00:00:00:00:99' || fail "the partner does not know us"
theirs=$(ovs_ctl lacp/show bond1 | sed -n 's/^  sys_id: //p')
[ "$(grep -c "partner sys_id: $theirs" "$dir/lacp")" = 2 ] || fail "we do not know the partner $theirs: $(cat "$dir/lacp")"
# The same text as theirs, but for names and numbers.
shape() { sed -E 's/: .*//; s/^(member|----).*/\1/' "$1"; }
ovs_ctl lacp/show bond1 > "$dir/theirs"
diff <(shape "$dir/lacp") <(shape "$dir/theirs") || fail "lacp/show has another shape"
echo "bonds: both ends know each other, by 2 links"

inside_a() { ip netns exec "$a" "$@"; }
until_true inside_a ping -c 1 -W 1 10.9.0.2 || fail "the hosts do not reach each other"

# A link dies under load.
inside_a ping -i 0.02 -c 400 -q 10.9.0.2 > "$dir/ping" &
ping=$!
ip -n "$o" link set n1 down
one_left() { member ours m1 disabled && member theirs n1 disabled; }
until_true one_left || fail "the dead link is still used: $(ctl bond/show; ovs_ctl bond/show)"
inside_a ping -i 0.02 -c 100 -q 10.9.0.2 | grep -q ' 0% packet loss' || fail "packets are lost with one link"
ip -n "$o" link set n1 up
until_true both_enabled || fail "the link does not come back: $(ctl bond/show; ovs_ctl bond/show)"
inside_a ping -i 0.02 -c 100 -q 10.9.0.2 | grep -q ' 0% packet loss' || fail "packets are lost with both links again"
wait "$ping" || true
echo "bonds: while a link died and came back, of pings $(grep 'packets transmitted' "$dir/ping")"
stop
echo "lane bonds: 3 passed, 0 failed, 0 skipped"
