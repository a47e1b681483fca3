#!/usr/bin/env bash
# Packets that pause at a controller and go on: `ovs-ofctl monitor … resume` sees and sends the same with Sluice as with Open
# vSwitch (userspace) in OpenFlow 1.0, 1.3 and 1.5, and flows and ports count the same. The cases are those of Open vSwitch's own
# test of continuations, and more. Then a controller that changes packets and continuations, byte by byte.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/ovs.bash

ip netns add "$s"
start_ovs "$s" --enable-dummy=override --disable-system
protocols=protocols=OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15
ports=(-- add-br br1 -- set bridge br1 datapath-type=dummy fail-mode=secure "$protocols")
for i in 1 2 3 4 5 6; do
    ports+=(-- add-port br0 "p$i" -- set interface "p$i" type=dummy "ofport_request=$i")
done
vsctl add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure "$protocols" "${ports[@]}" \
    -- add-port br0 to1 -- set interface to1 type=patch options:peer=to0 ofport_request=10 \
    -- add-port br1 to0 -- set interface to0 type=patch options:peer=to1 ofport_request=11 \
    -- add-port br1 p7 -- set interface p7 type=dummy ofport_request=7
{
    head_of_configuration
    printf '[[bridge]]\nname = "br0"\nport = [\n'
    for i in 1 2 3 4 5 6; do printf '{ name = "p%d", ofport = %d, type = "null" },\n' "$i" "$i"; done
    printf '{ name = "to1", ofport = 10, type = "patch", options = { peer = "to0" } },\n]\n'
    printf '[[bridge]]\nname = "br1"\nport = [\n{ name = "to0", ofport = 11, type = "patch", options = { peer = "to1" } },\n'
    printf '{ name = "p7", ofport = 7, type = "null" },\n]\n'
} > "$dir/switch.toml"
start

# The two, by the directory of their sockets.
both=(ovs run)
icmp=505400000007505400000005080045000054000000008001b755c0a80001c0a800020800f7ff00000000
icmp+=$(printf '%0112d' 0)
monitors=()
watch() { # version: a controller that resumes paused packets, in each bridge of each switch
    local which bridge
    for which in "${both[@]}"; do
        for bridge in br0 br1; do
            OVS_RUNDIR=$dir ovs-ofctl -vtimeval:off -vcoverage:off -O "$1" monitor "unix:$dir/$which/$bridge.mgmt" 65534 resume -P nxt_packet_in2 \
                >> "$dir/$which.$bridge" 2>&1 &
            monitors+=($!)
        done
    done
}
end_watch() { kill "${monitors[@]}" 2> /dev/null || true; wait "${monitors[@]}" 2> /dev/null || true; monitors=(); }
# The messages to and from the controllers that watch, in both bridges. One of those packets that asked whether somebody listens
# (`heard`) may be late.
said() {
    sed -E '/OFPT_ECHO_REQUEST/d; /in_port=CONTROLLER/{N; d};  s/\(xid=0x[0-9a-f]+\)//; s/^[0-9T:.-]+Z\|[0-9]+\|//; s/bridge=[0-9a-f-]{36}/bridge=B/; s/odp_port=[0-9]+/odp_port=N/' \
        "$dir/$1.br0" "$dir/$1.br1"
}
# What flows and ports have counted.
counted() {
    local bridge
    for bridge in br0 br1; do
        ovs-ofctl -O OpenFlow13 dump-flows "unix:$dir/$1/$bridge.mgmt" | sed -E 's/duration=[^,]*, //; s/\(xid=0x[0-9a-f]+\)//; s/idle_age=[0-9]+, //' | sort
        ovs-ofctl dump-ports "unix:$dir/$1/$bridge.mgmt" | awk '/port/ { on = /port +"?p?[1-9]"?:/; name = $2 } on && /tx pkts/ { print "port", name, $2 }' | tr -d '"' | sed 's/ p/ /' | sort
    done
}
resumed() { [ "$(cat "$dir/$1.br0" "$dir/$1.br1" | grep -ac NXT_RESUME)" = "$2" ]; }
the_same() { # PAUSES FUNCTION…
    local show
    resumed ovs "$1" && resumed run "$1" || return 1
    for show in "${@:2}"; do
        "$show" ovs > "$dir/a" && "$show" run > "$dir/b"
        diff "$dir/a" "$dir/b" > "$dir/diff" || return 1
    done
}

cases=0
# case_of PAUSES TITLE [said]: sends a packet through the flows on standard input (those of br1 begin with br1) in both. What is said
# is compared only where a packet pauses once for all rules that it is on its way through: after that Open vSwitch takes what is
# left of the outer rules for actions of the inner one, and says that rule's table and cookie (`freeze_put_unroll_xlate`).
case_of() {
    local pauses=$1 title=$2 which version
    cat > "$dir/all"
    sed '/^br1 /d' "$dir/all" > "$dir/flows.br0"
    sed -n 's/^br1 //p' "$dir/all" > "$dir/flows.br1"
    for version in OpenFlow10 OpenFlow13 OpenFlow15; do
        watch "$version"
        for which in "${both[@]}"; do
            for bridge in br0 br1; do
                ovs-ofctl -O OpenFlow13 del-flows "unix:$dir/$which/$bridge.mgmt"
                ovs-ofctl -O OpenFlow13 add-flows "unix:$dir/$which/$bridge.mgmt" "$dir/flows.$bridge"
                # A packet that does not pause shows that a controller listens.
                until_true heard "$which" "$bridge" || fail "$title: no controller listens to $bridge"
                : > "$dir/$which.$bridge"
            done
        done
        for which in "${both[@]}"; do
            ovs-ofctl -O OpenFlow13 packet-out "unix:$dir/$which/br0.mgmt" "in_port=1,packet=$icmp,actions=resubmit(,0)"
        done
        until_true the_same "$pauses" counted "${@:3}" || fail "$title, $version: $(cat "$dir/diff")"
        end_watch
        cases=$((cases + 1))
    done
}
heard() {
    ovs-ofctl packet-out "unix:$dir/$1/$2.mgmt" "in_port=controller,packet=$icmp,actions=controller"
    sleep 0.02
    grep -q NXT_PACKET_IN2 "$dir/$1.$2"
}

case_of 1 "at the end" said <<< 'actions=output:2,controller(pause)'
case_of 6 actions said <<< 'in_port=1,actions=controller(pause),2,controller(pause),3,controller(pause),4,controller(pause),5,controller(pause,reason=no_match),6,controller(pause,userdata=01.02.03,id=0)'
case_of 8 resubmit << 'FLOWS'
table=0,in_port=1,cookie=5,actions=controller(pause),2,resubmit(,1),controller(pause),6
table=1,in_port=1,actions=controller(pause),3,resubmit(,2),controller(pause)
table=2,icmp,in_port=1,cookie=7,actions=controller(pause),4,resubmit:55,controller(pause),dec_ttl
table=2,in_port=55,actions=controller(pause),5,controller(pause)
FLOWS
case_of 1 "action set" said << 'FLOWS'
in_port=1,actions=controller(pause),resubmit(,1),2
table=1,actions=write_actions(3)
FLOWS
case_of 1 "action set before" said << 'FLOWS'
in_port=1,actions=resubmit(,1),controller(pause),2
table=1,actions=write_actions(3)
FLOWS
case_of 4 goto_table said << 'FLOWS'
table=0,in_port=1,actions=controller(pause),2,controller(pause),goto_table:1
table=1,in_port=1,actions=controller(pause),3,controller(pause),goto_table:2
table=2,in_port=1,actions=4
FLOWS
case_of 4 write_metadata said << 'FLOWS'
table=0,in_port=1,actions=controller(pause),2,controller(pause),write_metadata:1/1,goto_table:1
table=1,in_port=1,metadata=1,actions=controller(pause),3,controller(pause),write_metadata:2/2,goto_table:2
table=2,in_port=1,metadata=3,actions=4
FLOWS
case_of 5 stack said <<< 'in_port=1,actions=controller(pause),set_field:1->reg0,set_field:2->reg1,controller(pause),push:NXM_OF_ETH_SRC[],push:NXM_NX_REG1[],push:NXM_NX_REG0[0..3],controller(pause),pop:NXM_NX_REG3[0..3],controller(pause),pop:NXM_NX_REG2[],output:NXM_NX_REG2[],controller(pause),3'
case_of 3 "patch ports" said << 'FLOWS'
table=0,in_port=1,actions=controller(pause),2,resubmit(,1),4
table=1,in_port=1,actions=3,10,controller(pause)
br1 table=0,in_port=11,actions=controller(pause),7
FLOWS
case_of 1 "connection tracking" said << 'FLOWS'
table=0,in_port=1,icmp,actions=ct(table=1,zone=5)
table=1,icmp,actions=controller(pause),resubmit(,2)
table=2,in_port=1,icmp,ct_state=+trk+new,ct_zone=5,actions=2
FLOWS
case_of 1 "connection tracking behind a patch port" said << 'FLOWS'
table=0,actions=10
br1 table=0,in_port=11,icmp,actions=controller(pause),resubmit(,1)
br1 table=1,in_port=11,icmp,actions=ct(table=2)
br1 table=2,in_port=11,icmp,ct_state=+trk+new,actions=7
FLOWS
case_of 1 "a copy" said << 'FLOWS'
table=0,in_port=1,actions=set_field:1->reg1,resubmit(,2)
table=1,reg1=0x5,actions=controller(pause),resubmit(,3)
table=1,reg1=0x1,actions=2
table=2,in_port=1,actions=clone(set_field:5->reg1,resubmit(,1))
table=3,reg1=0x1,actions=3
table=3,reg1=0x5,actions=2
FLOWS
case_of 2 "changed packets" said <<< 'icmp,in_port=1,actions=set_field:00:00:00:00:00:09->eth_dst,push_vlan:0x8100,set_field:4101->vlan_vid,set_field:7->pkt_mark,controller(pause),2,strip_vlan,mod_nw_ttl:9,controller(pause),3'
echo "continuations: $cases cases"

python3 tests/privileged/common/continuations.py "$dir/ovs" "$dir/run" "$icmp" || fail "a controller that changes things is answered otherwise"

# No packet resumes in a bridge that was removed.
stop
