#!/usr/bin/env bash
# The commands about connections say the same of Sluice and of Open vSwitch (userspace), word for word, after the same packets.
# Left out, since Open vSwitch 3.1 does it in a way of its own: ct-bkts (its buckets are shards here); numbers of zones that are none (5x,
# 65536), which it takes for others; the datapath's name before a filter, which it refuses, against its usage; filters of ICMP that do
# not say all of both tuples, which it takes for zeros, and exact ones of ICMPv6, of which it dies.
# Made equal first: the program's name in errors, seconds left, order of lines.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/ovs.bash

make_namespaces
printf '%s\n' "t1 tap" "t2 tap" | configure
start
# What the kernel says by itself on the taps is no IP of ours: rules look at the hosts' addresses.
for device in t1 t2; do ip -n "$s" link set "$device" up; done

start_ovs "" --enable-dummy=override --disable-system
vsctl add-br br0 -- set bridge br0 datapath-type=netdev fail-mode=secure \
    -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2

cat > "$dir/rules" <<'RULES'
priority=20,udp,nw_src=10.0.0.0/24,tp_dst=1001,actions=ct(commit,zone=1,exec(set_field:0x2a->ct_mark,set_field:0x1234->ct_label))
priority=20,udp,nw_src=10.0.0.0/24,tp_dst=1002,actions=ct(commit,zone=2,nat(src=10.0.0.200))
priority=20,udp,nw_src=10.0.0.0/24,tp_src=1002,actions=ct(zone=2,nat)
priority=20,tcp,nw_src=10.0.0.0/24,tp_dst=21,actions=ct(commit,zone=3,alg=ftp)
priority=20,tcp,nw_src=10.0.0.0/24,tp_src=21,actions=ct(commit,zone=3)
priority=20,tcp,nw_src=10.0.0.0/24,tp_src=5004,actions=ct(commit,zone=3)
priority=10,ip,nw_src=10.0.0.0/24,actions=ct(commit,zone=5)
priority=10,ipv6,ipv6_src=fc00::/64,actions=ct(commit)
RULES
ovs-ofctl add-flows "unix:$dir/ovs/br0.mgmt" "$dir/rules"
ctl bridge/replace-flows br0 "$dir/rules"

normal() { sed -E 's/(ovs-vswitchd|sluice): /: /; s#[^ ]*/(vs|sluice).ctl#CTL#; s/timeout=[0-9]+/timeout=T/' | sort; }
compared=0 differing=
# Asks both; whether they say the same is known at the end of the group.
both() {
    local x=0 y=0
    ovs-appctl -T 60 -t "$dir/ovs/vs.ctl" "dpctl/$1" "${@:2}" > "$dir/x" 2>&1 || x=$?
    ovs-appctl -T 60 -t "$dir/run/sluice.ctl" "dpctl/$1" "${@:2}" > "$dir/y" 2>&1 || y=$?
    compared=$((compared + 1))
    if ! diff <(normal < "$dir/x") <(normal < "$dir/y") > "$dir/diff" || [ $x != $y ]; then
        differing+="DIFFERENT: $* (exit $x and $y)"$'\n'"$(cat "$dir/diff")"$'\n'
    fi
}
# Whether the taps have been read, and nothing more is on its way.
same_count() { [ "$(ctl dpctl/ct-get-nconns)" = "$(ovs-appctl -t "$dir/ovs/vs.ctl" dpctl/ct-get-nconns)" ]; }
feed() {
    ip netns exec "$s" python3 tests/privileged/common/tracked.py "$1" "$dir/ovs/vs.ctl" t1 t2
    until_true same_count || true
}
# Compares what function $1 does. Connections time out, and machines stand still: a real difference is there three times.
group() {
    local _
    for _ in 1 2 3; do
        differing=
        "$1"
        both flush-conntrack
        [ -n "$differing" ] || return 0
    done
    fail "$1: $differing"
}

dumps() {
    feed connections
    both ct-get-nconns
    [ "$(wc -l < <(ctl dpctl/dump-conntrack))" -ge 20 ] || differing+="few connections: $(ctl dpctl/dump-conntrack)"
    local more
    for more in '' -m -s '-m -s' --more '-ms' -x; do
        # shellcheck disable=SC2086 # words
        { both dump-conntrack $more; both dump-conntrack $more zone=5; both dump-conntrack $more netdev@ovs-netdev zone=3; }
        # shellcheck disable=SC2086
        { both ct-stats-show $more; both ct-stats-show $more zone=5; both ct-stats-show $more netdev@ovs-netdev zone=0; }
    done
    both ct-stats-show verbose
    both ct-stats-show zone=5 verbose
    both ct-stats-show verbose zone=3
    local wrong
    for wrong in nodp zone=x zone= zone=99 '' 'zone=5 zone=3' 'nodp zone=5'; do
        # shellcheck disable=SC2086
        { both dump-conntrack $wrong; both ct-stats-show $wrong; both ct-get-nconns $wrong; }
    done
}

# Each takes some away from what is left.
flushes() {
    feed connections
    local -a filter
    while IFS='|' read -r -a filter; do
        both flush-conntrack "${filter[@]}"
        both dump-conntrack
    done <<'FILTERS'
zone=1
zone=5|ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=6,ct_tp_src=5000,ct_tp_dst=80
ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=4000,ct_tp_dst=2000
ct_ipv6_src=fc00::1,ct_ipv6_dst=fc00::2,ct_nw_proto=17,ct_tp_src=4000,ct_tp_dst=2000
zone=2|ct_nw_src=10.0.0.4,ct_ipv6_dst=fc00::1
zone=2||ct_nw_dst=10.0.0.200
ct_nw_proto=1,icmp_type=8,icmp_code=0,icmp_id=77,ct_nw_src=10.0.0.1|icmp_type=0,icmp_code=0,icmp_id=77
zone=5|ct_nw_proto=1,icmp_type=8,icmp_code=0,icmp_id=78,ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.3
zone=5|ct_tp_dst=80,ct_nw_proto=6,ct_nw_src=10.0.0.1
ct_tp_src=1
ct_nw_src=10.0.0.1,ct_ipv6_dst=fc00::2
ct_nw_src=10.0.0.1,ct_nw_src=10.0.0.2
ct_nw_src
ct_nw_src=x
ct_nw_proto=999
ct_tp_src=x,ct_nw_proto=6
icmp_id=5
ct_nw_proto=6,icmp_id=5
color=blue
zone=x
zone=5|a=b|c=d|e=f
ct_nw_proto=47
zone=3|ct_nw_proto=6,ct_tp_dst=21|ct_nw_src=10.0.0.2
nodp
zone=5
FILTERS
}

limits() {
    both ct-get-maxconns
    both ct-set-maxconns 12
    both ct-get-maxconns netdev@ovs-netdev
    local words
    # One line a command; what is wrong changes nothing.
    while read -r words; do
        # shellcheck disable=SC2086
        both $words
    done <<'COMMANDS'
ct-set-maxconns many
ct-set-maxconns nodp 5
ct-set-maxconns netdev@ovs-netdev 20
ct-set-maxconns
ct-set-maxconns 1 2 3
ct-get-limits
ct-set-limits zone=5,limit=3
ct-set-limits default=9 zone=1,limit=4 zone=7,limit=0
ct-get-limits
ct-get-limits zone=5
ct-get-limits zone=5,1,99
ct-get-limits netdev@ovs-netdev zone=7
ct-set-limits default=x
ct-set-limits zone=5
ct-set-limits zone=x,limit=3
ct-set-limits zone=5,limit=x
ct-set-limits color=5
ct-set-limits zone=,limit=5
ct-set-limits
ct-get-limits zone=x
ct-get-limits 5
ct-get-limits nodp
ct-get-limits nodp zone=5
ct-del-limits
ct-del-limits 5
ct-del-limits zone=x
ct-del-limits nodp zone=5
COMMANDS
    feed limited
    both ct-get-limits
    both dump-conntrack zone=1
    both ct-get-limits zone=1,5
    both ct-del-limits zone=5,99
    both ct-get-limits
    both ct-del-limits netdev@ovs-netdev zone=1,7
    both ct-set-limits default=0
    both ct-get-limits
    both ct-set-maxconns 3000000
    both ct-get-tcp-seq-chk
    both ct-disable-tcp-seq-chk
    both ct-get-tcp-seq-chk
    both ct-get-tcp-seq-chk nodp
    both ct-enable-tcp-seq-chk netdev@ovs-netdev
    both ct-get-tcp-seq-chk
}

reassembly() {
    feed fragments
    both ipf-get-status
    both ipf-get-status -m
    both ipf-get-status nodp
    local words
    while read -r words; do
        # shellcheck disable=SC2086
        both $words
    done <<'COMMANDS'
ipf-set-disabled v4
ipf-set-disabled netdev@ovs-netdev v6
ipf-set-disabled v5
ipf-set-disabled
ipf-get-status
ipf-set-enabled v4
ipf-set-enabled v6
ipf-set-enabled nodp v4
ipf-set-min-frag v4 500
ipf-set-min-frag v6 1300
ipf-set-min-frag v4 300
ipf-set-min-frag v4 x
ipf-set-min-frag v5 500
ipf-set-min-frag v4
ipf-set-min-frag netdev@ovs-netdev v4 1200
ipf-set-max-nfrags 500
ipf-set-max-nfrags x
ipf-set-max-nfrags 6000
ipf-set-max-nfrags 1000
ipf-get-status netdev@ovs-netdev
COMMANDS
}

for name in dumps flushes limits reassembly; do group $name; done
stop
echo "$compared answers compared"
