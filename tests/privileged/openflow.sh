#!/usr/bin/env bash
# `ovs-ofctl` says the same to Sluice and to Open vSwitch (userspace): every command in every version, its output compared
# as text. What differs by nature is made equal first: transaction ids, durations, ages, addresses, and the order of flows.
set -euo pipefail
cd "$(dirname "$0")/../.."
for program in ovs-ofctl ovs-vswitchd ovsdb-server ovs-vsctl ovsdb-tool; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program"; exit 0; }
done
[ -n "${SLUICE:-}" ] || { cargo build -q -p sluice; SLUICE=target/debug/sluice; }
dir=$(mktemp -d)
chmod 0711 "$dir"
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT

# Open vSwitch, in a place of its own, with dummy devices.
export OVS_RUNDIR=$dir/ovs OVS_LOGDIR=$dir/ovs OVS_DBDIR=$dir/ovs
mkdir "$dir/ovs"
ovsdb-tool create "$dir/ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server "$dir/ovs/conf.db" --remote="punix:$dir/ovs/db.sock" --pidfile --unixctl="$dir/ovs/db.ctl" >"$dir/db.log" 2>&1 &
pids+=($!)
until [ -S "$dir/ovs/db.sock" ]; do sleep 0.05; done
db="--db=unix:$dir/ovs/db.sock"
ovs-vsctl "$db" --no-wait init
ovs-vswitchd --enable-dummy=override --disable-system "unix:$dir/ovs/db.sock" --pidfile --unixctl="$dir/ovs/vs.ctl" >"$dir/vs.log" 2>&1 &
pids+=($!)
ovs-vsctl "$db" --timeout=10 add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure \
    protocols=OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15 other-config:datapath-id=0000000000000042 \
    -- --id=@t create flow_table flow_limit=3 -- set bridge br0 flow_tables:20=@t \
    -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2 \
    -- set-controller br0 "unix:$dir/ovs/br0.controller" -- set controller br0 max_backoff=1000 >/dev/null

cat >"$dir/s.toml" <<TOML
[switch]
rundir = "$dir/run"
[[bridge]]
name = "br0"
datapath-id = "0000000000000042"
controllers = ["unix:$dir/ours.sock"]
[[bridge.table]]
number = 20
flow-limit = 3
[[bridge.port]]
name = "p1"
ofport = 1
type = "null"
[[bridge.port]]
name = "p2"
ofport = 2
type = "null"
TOML
"$SLUICE" run "$dir/s.toml" >"$dir/sluice.log" 2>&1 &
pids+=($!)
until [ -S "$dir/run/sluice.ctl" ]; do kill -0 "${pids[-1]}" || { cat "$dir/sluice.log"; exit 1; }; sleep 0.05; done

# What the two need not say alike: dummy devices have counters of their own, and do not have others.
normal() {
    sed -E 's/\(xid=0x[0-9a-f]+\)/(xid)/; s/duration=[0-9.]+s/duration=T/; s/(idle|hard)_age=[0-9]+, //; s/addr:[0-9a-f:]+/addr:A/
        s/^[0-9T:.-]+Z\|[0-9]+\|//; s/time=[0-9.]+ ms/time=T/; s/(drop|errs|frame|over|crc|coll)=[0-9?]+/\1=N/g
        # A dummy bridge has counters, one without a device has none.
        /port LOCAL:/,+1s/(pkts|bytes)=[0-9?]+/\1=N/g
        /CUSTOM Statistics/d; /rx_q0_|rx_custom/d; s/duration:[0-9.]+s/duration:T/
        # Dummy devices have a queue, as no others in userspace.
        s/ [0-9]+ queues$//; /^ *port [0-9A-Z]+ queue 0: |^port=[0-9A-Z]+$|^queue 0:$/d; s/(QUEUE_(DESC|GET_CONFIG)(_| )(reply|REPLY).*): port=.*/\1:/; s/ +$//' | sort
}

compared=0 failed=0
# Runs `ovs-ofctl OPTIONS COMMAND @ ARGUMENTS…` against both, where @ is the switch; compares exit codes and output.
both() {
    local argument
    local -a ovs=() ours=()
    for argument in "$@"; do
        if [ "$argument" = @ ]; then ovs+=("unix:$dir/ovs/br0.mgmt"); ours+=("unix:$dir/run/br0.mgmt")
        else ovs+=("$argument"); ours+=("$argument"); fi
    done
    local a=0 b=0
    timeout 10 ovs-ofctl "${ovs[@]}" >"$dir/a" 2>&1 || a=$?
    timeout 10 ovs-ofctl "${ours[@]}" >"$dir/b" 2>&1 || b=$?
    sed -i "s#unix:$dir/ovs/br0.mgmt#@#" "$dir/a"
    sed -i "s#unix:$dir/run/br0.mgmt#@#" "$dir/b"
    compared=$((compared + 1))
    if [ $a != $b ] || ! diff <(normal <"$dir/a") <(normal <"$dir/b") >"$dir/diff"; then
        failed=$((failed + 1))
        echo "DIFFERENT: ovs-ofctl $* (exit $a and $b)"
        cat "$dir/diff"
    fi
}

cat >"$dir/flows.txt" <<'FLOWS'
priority=100,tcp,nw_src=10.0.0.0/8,tp_dst=80,actions=output:2,load:0x5->NXM_NX_REG0[4..7]
priority=100,udp6,ipv6_dst=fe80::/64,actions=set_field:00:00:00:00:00:01->eth_src,resubmit(,5)
table=1,in_port=1,dl_vlan=5,actions=strip_vlan,IN_PORT
table=1,dl_vlan_pcp=3,actions=mod_vlan_pcp:5,CONTROLLER:128
table=2,arp,arp_op=1,arp_tpa=10.0.0.1,actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],output:1
table=2,icmp,icmp_type=8,actions=dec_ttl,mod_nw_tos:252,output:NXM_NX_REG1[0..15]
table=3,ip,actions=learn(table=4,hard_timeout=10,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])
table=3,priority=7,reg1=0x5/0xff,metadata=0x7,tun_id=0x9,actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[])
table=3,priority=8,tcp,tcp_flags=+syn-ack,actions=note:01.02.03,exit
table=4,priority=1,conj_id=3,actions=drop
table=4,tcp,actions=conjunction(3,1/2)
table=5,cookie=0x12,idle_timeout=60,hard_timeout=120,actions=NORMAL
table=5,priority=3,ip,ct_state=-trk,actions=ct(table=6,zone=5)
table=5,priority=4,tcp,ct_state=+trk+est,actions=ct(commit,zone=3,nat(src=1.2.3.4-1.2.3.9),exec(load:0x5->NXM_NX_CT_MARK[])),output:2
table=6,mpls,mpls_label=5,actions=pop_mpls:0x0800,output:1
table=6,priority=2,actions=clone(output:1,push:NXM_NX_REG0[],pop:NXM_NX_REG1[]),controller(userdata=01.02,max_len=5)
FLOWS
cp "$dir/flows.txt" "$dir/others.txt"
sed -i '3d; 5s/output:1/output:2/; $d' "$dir/others.txt"
echo 'table=7,actions=LOCAL' >>"$dir/others.txt"

for version in OpenFlow10 OpenFlow13 OpenFlow14 OpenFlow15; do
    o=(-O "$version")
    both "${o[@]}" del-flows @
    both "${o[@]}" add-flows @ "$dir/flows.txt"
    both "${o[@]}" dump-flows @
    both "${o[@]}" --no-stats dump-flows @ table=3
    both "${o[@]}" dump-flows @ tcp
    both "${o[@]}" dump-flows @ cookie=0x12/-1
    both "${o[@]}" dump-flows @ out_port=2
    both "${o[@]}" dump-aggregate @
    both "${o[@]}" dump-aggregate @ table=3
    both "${o[@]}" dump-aggregate @ cookie=0x12/-1
    both "${o[@]}" diff-flows @ "$dir/others.txt"
    both "${o[@]}" replace-flows @ "$dir/others.txt"
    both "${o[@]}" dump-flows @
    both "${o[@]}" mod-flows @ 'table=2,arp,actions=output:1'
    both "${o[@]}" --strict mod-flows @ 'table=4,priority=1,conj_id=3,actions=output:2'
    both "${o[@]}" mod-flows @ 'cookie=0x12/-1,actions=output:1'
    both "${o[@]}" add-flow @ 'cookie=0x77,table=8,send_flow_rem,actions=output:1'
    both "${o[@]}" add-flow @ 'check_overlap,table=8,in_port=1,actions=output:1'
    both "${o[@]}" --strict del-flows @ 'table=4,tcp'
    both "${o[@]}" --strict del-flows @ 'table=3,priority=9,tcp'
    both "${o[@]}" del-flows @ 'table=3,ip'
    both "${o[@]}" del-flows @ out_port=2
    both "${o[@]}" --no-stats dump-flows @
    both "${o[@]}" add-flow @ 'ip,actions=goto_table:0'
    both "${o[@]}" dump-ports @
    both "${o[@]}" dump-ports @ 1
    both "${o[@]}" dump-ports-desc @
    both "${o[@]}" dump-ports-desc @ 1
    both "${o[@]}" show @
    both "${o[@]}" dump-tables @
    both "${o[@]}" get-frags @
    both "${o[@]}" set-frags @ drop
    both "${o[@]}" get-frags @
    both "${o[@]}" set-frags @ normal
    both "${o[@]}" mod-port @ p1 noflood
    both "${o[@]}" mod-port @ p1 flood
    both "${o[@]}" mod-port @ p9 up
    both "${o[@]}" probe @
    both "${o[@]}" ping @ 10
    both "${o[@]}" packet-out @ 'in_port=1,packet=ffffffffffff00000000000108060001080006040001000000000001c0a80001000000000000c0a80002,actions=output:2'
    both "${o[@]}" packet-out @ 'in_port=CONTROLLER,packet=ffffffffffff000000000001,actions=output:2'
    both "${o[@]}" queue-stats @
    both "${o[@]}" queue-stats @ 1
    both "${o[@]}" queue-stats @ 1 3
    both "${o[@]}" queue-stats @ 9
    both "${o[@]}" queue-stats @ ALL 4
    both "${o[@]}" queue-get-config @
    both "${o[@]}" queue-get-config @ 1
    both "${o[@]}" queue-get-config @ 9
    both "${o[@]}" queue-get-config @ 1 4
    both "${o[@]}" meter-features @
    both "${o[@]}" add-meter @ 'meter=1,kbps,burst,stats,bands=type=drop,rate=1,burst_size=2'
    both "${o[@]}" add-meter @ 'meter=1,pktps,bands=type=drop,rate=1'
    both "${o[@]}" add-meter @ 'meter=5,pktps,stats,bands=type=drop,rate=7,type=dscp_remark,rate=1,prec_level=3'
    both "${o[@]}" add-meter @ 'meter=6,pktps,bands=type=drop,rate=0'
    both "${o[@]}" add-meter @ 'meter=4,kbps,bands=type=drop,rate=1000,type=drop,rate=2000'
    both "${o[@]}" add-meter @ 'meter=slowpath,kbps,bands=type=drop,rate=1'
    both "${o[@]}" add-meter @ 'meter=controller,pktps,bands=type=drop,rate=1'
    both "${o[@]}" mod-meter @ 'meter=3,kbps,bands=type=drop,rate=1'
    both "${o[@]}" mod-meter @ 'meter=4,pktps,bands=type=drop,rate=3'
    both "${o[@]}" add-flow @ 'table=9,actions=meter:1,output:1'
    both "${o[@]}" add-flow @ 'table=9,in_port=1,actions=meter:9,output:1'
    both "${o[@]}" add-flow @ 'table=9,in_port=2,actions=controller(meter_id=4)'
    both "${o[@]}" add-flow @ 'table=9,in_port=3,actions=controller(meter_id=9)'
    both "${o[@]}" dump-flows @ table=9
    both "${o[@]}" dump-meters @
    both "${o[@]}" dump-meters @ meter=1
    both "${o[@]}" dump-meter @ meter=9
    both "${o[@]}" meter-stats @
    both "${o[@]}" meter-stats @ meter=1
    both "${o[@]}" meter-stats @ meter=9
    both "${o[@]}" del-meters @ meter=1
    both "${o[@]}" dump-flows @ table=9
    both "${o[@]}" del-meter @ meter=77
    both "${o[@]}" del-meters @
    both "${o[@]}" dump-meters @
done
for version in OpenFlow10 OpenFlow13 OpenFlow14 OpenFlow15; do
    o=(-O "$version")
    both "${o[@]}" del-flows @
    both "${o[@]}" add-group @ 'group_id=1,type=all,bucket=output:1,bucket=output:2'
    both "${o[@]}" add-group @ 'group_id=2,type=select,bucket=weight:5,output:1,bucket=weight:7,output:2'
    both "${o[@]}" add-group @ 'group_id=3,type=indirect,bucket=output:2'
    both "${o[@]}" add-group @ 'group_id=4,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:2,output:2'
    both "${o[@]}" add-group @ 'group_id=1,type=all,bucket=output:1'
    both "${o[@]}" mod-group @ 'group_id=9,type=all,bucket=output:1'
    both "${o[@]}" --may-create mod-group @ 'group_id=6,type=all,bucket=output:1'
    both "${o[@]}" mod-group @ 'group_id=1,type=all,bucket=output:2'
    both "${o[@]}" add-flow @ 'table=1,in_port=1,actions=group:2'
    both "${o[@]}" add-flow @ 'table=1,in_port=2,actions=group:77'
    both "${o[@]}" dump-groups @
    both "${o[@]}" dump-group-stats @
    both "${o[@]}" dump-group-features @
    both "${o[@]}" dump-flows @
    both "${o[@]}" del-groups @ group_id=2
    both "${o[@]}" dump-flows @
    both "${o[@]}" del-groups @
    both "${o[@]}" dump-groups @
done
for version in OpenFlow10 OpenFlow13 OpenFlow14 OpenFlow15; do
    o=(-O "$version")
    both "${o[@]}" add-group @ 'group_id=2,type=select,selection_method=hash,fields(ip_src,tcp_dst),bucket=bucket_id:5,weight:5,output:1'
    both "${o[@]}" insert-buckets @ 'group_id=2,command_bucket_id=last,bucket=bucket_id:7,weight:3,output:2'
    both "${o[@]}" insert-buckets @ 'group_id=2,command_bucket_id=5,bucket=bucket_id:7,weight:3,output:2'
    both "${o[@]}" dump-groups @
    both "${o[@]}" remove-buckets @ 'group_id=2,command_bucket_id=5'
    both "${o[@]}" remove-buckets @ 'group_id=2,command_bucket_id=99'
    both "${o[@]}" dump-groups @ 2
    both "${o[@]}" del-groups @
done
# A table of three flows: full, then told to evict, then to say how full it is.
for version in OpenFlow14 OpenFlow15; do
    o=(-O "$version")
    both "${o[@]}" del-flows @
    both "${o[@]}" dump-table-desc @
    both "${o[@]}" add-flow @ 'table=20,priority=1,actions=drop'
    both "${o[@]}" add-flow @ 'table=20,priority=2,importance=5,hard_timeout=500,actions=drop'
    both "${o[@]}" add-flow @ 'table=20,priority=3,importance=2,hard_timeout=900,actions=drop'
    both "${o[@]}" add-flow @ 'table=20,priority=4,importance=9,hard_timeout=100,actions=drop'
    both "${o[@]}" mod-table @ 20 evict
    both "${o[@]}" mod-table @ 21 vacancy:20,80
    both "${o[@]}" mod-table @ 20 vacancy:40,60
    both "${o[@]}" dump-table-desc @
    both "${o[@]}" add-flow @ 'table=20,priority=4,importance=9,hard_timeout=100,actions=drop'
    both "${o[@]}" --no-stats dump-flows @
    both "${o[@]}" add-flow @ 'table=20,priority=5,actions=drop'
    both "${o[@]}" --no-stats dump-flows @
    both "${o[@]}" add-flow @ 'table=20,priority=6,actions=drop'
    both "${o[@]}" add-flow @ 'table=20,priority=7,actions=drop'
    both "${o[@]}" --no-stats dump-flows @
    both "${o[@]}" mod-table @ 20 noevict
    both "${o[@]}" mod-table @ ALL novacancy
    both "${o[@]}" mod-table @ 254 evict
    both "${o[@]}" dump-table-desc @
    both "${o[@]}" mod-flows @ 'table=20,actions=output:1'
    both "${o[@]}" --no-stats dump-flows @
done
for version in OpenFlow10 OpenFlow13 OpenFlow14 OpenFlow15; do
    o=(-O "$version" --bundle)
    both "${o[@]}" del-flows @
    both "${o[@]}" add-flows @ "$dir/flows.txt"
    both "${o[@]}" replace-flows @ "$dir/others.txt"
    both -O "$version" --no-stats dump-flows @
done

# Flows, groups and packets change and travel in the order of a bundle: packets count on the flows that stand at their place.
arp=ffffffffffff00000000000108060001080006040001000000000001c0a80001000000000000c0a80002
cat >"$dir/bundle.txt" <<BUNDLE
packet-out in_port=1 packet=$arp actions=resubmit(,30)
flow add table=30,arp,actions=output:2
packet-out in_port=1 packet=$arp actions=resubmit(,30)
packet-out in_port=1 packet=$arp actions=resubmit(,30)
flow add table=30,priority=1,actions=drop
group add group_id=7,type=all,bucket=output:2
flow add table=30,priority=50000,arp,actions=group:7,resubmit(,31)
packet-out in_port=1 packet=$arp actions=resubmit(,30)
flow add table=31,actions=output:1
packet-out in_port=1 packet=$arp actions=resubmit(,30)
flow modify table=30,priority=50000,arp,actions=group:7
packet-out in_port=1 packet=$arp actions=resubmit(,30),group:7
BUNDLE
{ cat "$dir/bundle.txt"; echo 'flow add table=30,in_port=2,actions=group:9'; } >"$dir/refused.txt"
{ cat "$dir/bundle.txt"; echo "packet-out in_port=1 packet=$arp actions=group:9"; } >"$dir/refused-packet.txt"
for version in OpenFlow10 OpenFlow13 OpenFlow14 OpenFlow15; do
    o=(-O "$version")
    both "${o[@]}" del-flows @
    both "${o[@]}" del-groups @
    for file in refused refused-packet bundle; do
        both "${o[@]}" bundle @ "$dir/$file.txt"
        both "${o[@]}" dump-flows @
        both "${o[@]}" dump-groups @
    done
    both "${o[@]}" dump-aggregate @ table=30
    both "${o[@]}" del-groups @
done

# A snooper sees the same messages from both switches, for a controller of each version that sends both the same.
snoop() { # version's number, target, controller's socket, where it is written
    local snooper controller
    : >"$4"
    python3 tests/privileged/common/controller.py "$3" "$1" "$4" & controller=$!
    pids+=($controller)
    ovs-ofctl snoop "$2" >"$4" 2>&1 & snooper=$!
    pids+=($snooper)
    wait $controller || { echo "ovs-ofctl snoop $2: see above"; cat "$4"; failed=$((failed + 1)); }
    kill $snooper 2>/dev/null || true
    wait $snooper 2>/dev/null || true
}
for version in OpenFlow10:1 OpenFlow13:4 OpenFlow14:5 OpenFlow15:6; do
    snoop "${version#*:}" "unix:$dir/ovs/br0.snoop" "$dir/ovs/br0.controller" "$dir/ovs.snooped"
    snoop "${version#*:}" "unix:$dir/run/br0.snoop" "$dir/ours.sock" "$dir/run.snooped"
    compared=$((compared + 1))
    heard() { sed -E '/^OFPT_ECHO_|fatal_signal/d; /^0000[0-9a-f]+ .*3f /d; s/^[0-9T:.-]+Z\|[0-9]+\|//; s/addr:[0-9a-f:]+/addr:A/' "$1"; }
    if ! diff <(heard "$dir/ovs.snooped") <(heard "$dir/run.snooped") >"$dir/diff"; then
        failed=$((failed + 1))
        echo "DIFFERENT: ovs-ofctl snoop @, whose controller speaks ${version%:*}"
        cat "$dir/diff"
    fi
done

# What a monitor says of another's changes and of its own, in full and in short. It is told to end once it has said all.
watch() { # version, options of the monitor
    local version=$1 target=$2 out=$3 monitor; shift 3
    ovs-ofctl -vtimeval:off -vcoverage:off -O "$version" --detach --no-chdir --pidfile="$out.pid" --unixctl="$out.ctl" monitor "$target" "$@" >"$out" 2>&1
    monitor=$(cat "$out.pid")
    ovs-ofctl -O "$version" add-flow "$target" 'priority=5,tcp,idle_timeout=100,cookie=0x5,actions=output:1'
    ovs-ofctl -O "$version" add-flow "$target" 'priority=5,tcp,actions=output:2'
    ovs-ofctl -O "$version" mod-flows "$target" 'tcp,actions=output:3'
    ovs-ofctl -O "$version" mod-flows "$target" 'tcp,actions=output:3'
    ovs-ofctl -O "$version" add-flow "$target" 'table=3,udp,actions=learn(table=4,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'
    ovs-ofctl -O "$version" del-flows "$target" 'tcp'
    # Its own change, and a barrier behind it: what it had to say it has said.
    ovs-appctl -t "$out.ctl" ofctl/send "$(own_change "$version")" >/dev/null
    ovs-appctl -t "$out.ctl" ofctl/barrier >/dev/null
    ovs-appctl -t "$out.ctl" exit
    while kill -0 "$monitor" 2>/dev/null; do sleep 0.05; done
}
# A deletion of all flows, as bytes.
own_change() {
    case $1 in
    OpenFlow10) echo "010e0048 00000011 003820ff 000000000000000000000000 0000 00 00 0000 00 00 00000000 00000000 00000000 0000 0000 0000000000000000 0003 0000 0000 8000 ffffffff ffff 0000" ;;
    *) local v; v=$(printf %02x $((${1#OpenFlow1} + 1))); echo "${v}0e0038 00000011 0000000000000000 0000000000000000 ff 03 0000 0000 8000 ffffffff ffffffff ffffffff 0000 0000 0001 0004 00000000" ;;
    esac | tr -d ' '
}
for version in OpenFlow10 OpenFlow13 OpenFlow14 OpenFlow15; do
    for what in watch: 'watch:!own' 'watch:!initial,!add' watch:table=3 'watch:out_port=2' 'watch:!actions,tcp'; do
        for target in "$dir/ovs" "$dir/run"; do
            ovs-ofctl -O "$version" del-flows "unix:$target/br0.mgmt"
            ovs-ofctl -O "$version" add-flow "unix:$target/br0.mgmt" 'priority=9,in_port=1,actions=output:2'
            watch "$version" "unix:$target/br0.mgmt" "$target.watch" "$what"
        done
        compared=$((compared + 1))
        # Without what the program says of itself, which comes when it likes.
        said() { sed -e 's/(xid=0x[0-9a-f]*)//' -e '/^send: /d' "$1"; }
        if ! diff <(said "$dir/ovs.watch") <(said "$dir/run.watch") >"$dir/diff"; then
            failed=$((failed + 1))
            echo "DIFFERENT: ovs-ofctl -O $version monitor @ $what"
            cat "$dir/diff"
        fi
    done
done
# Drops by reason are custom statistics, as those of Open vSwitch's DPDK ports are: a hundred packets that no rule matches.
ovs-ofctl del-flows "unix:$dir/run/br0.mgmt"
"$SLUICE" ctl -t "$dir/run/sluice.ctl" bridge/add-port br0 gen ofport=9 type=generator count=100
for try in $(seq 600); do
    ovs-ofctl -O OpenFlow14 dump-ports "unix:$dir/run/br0.mgmt" 9 >"$dir/drops"
    ! grep -q 'rx_drop_rules=100,' "$dir/drops" || break
    [ "$try" != 600 ] || { echo "drops are not told:"; cat "$dir/drops"; failed=$((failed + 1)); }
    sleep 0.1
done
echo "$compared commands, $failed different"
[ "$failed" = 0 ]
