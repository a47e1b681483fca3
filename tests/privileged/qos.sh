#!/usr/bin/env bash
# Policing and QoS by the database. The kernel's own `tc` reads back the classes of linux-htb, and finds packets of each queue in its
# class, by packet sockets and by AF_XDP; ovs-ofctl and ovs-appctl tell the same numbers. A policed port passes its burst and what the
# rate has made since, by the counters; so do egress policers. What is configured no more leaves devices as they were.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/vswitchd.bash
command -v tc >/dev/null || { echo "SKIPPED: no tc"; exit 77; }

kind=start
start_all
ip netns add "$a"
ip netns add "$b"
inside sysctl -q net.ipv6.conf.default.disable_ipv6=1
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev
# A link from p$1 to a host. Nobody asks for addresses, so that packets can be counted.
link() { # number, namespace
    ip -n "$s" link add "p$1" type veth peer name eth0 netns "$2"
    ip -n "$s" link set "p$1" up
    ip netns exec "$2" sysctl -q net.ipv6.conf.all.disable_ipv6=1
    ip -n "$2" link set eth0 address "02:00:00:00:00:0$1"
    ip -n "$2" addr add "10.9.0.$1/24" dev eth0
    ip -n "$2" link set eth0 up
    ip -n "$2" neigh replace "10.9.0.$((3 - $1))" lladdr "02:00:00:00:00:0$((3 - $1))" dev eth0
}
link 1 "$a"
link 2 "$b"
usual=$(inside tc qdisc show dev p2)
ovs-vsctl add-port br0 p1 -- set interface p1 ofport_request=1 -- add-port br0 p2 -- set interface p2 ofport_request=2
cat > "$dir/flows" <<'FLOWS'
priority=9,in_port=1,udp,tp_dst=1001 actions=set_queue:1,output:2
priority=9,in_port=1,udp,tp_dst=1002 actions=enqueue:2:2
priority=1,in_port=1 actions=output:2
priority=1,in_port=2 actions=output:1
FLOWS
ovs-ofctl --bundle replace-flows br0 "$dir/flows"

datagrams() { ip netns exec "$a" python3 tests/privileged/common/datagrams.py send "$@"; }
# What a class has sent, as `tc` tells.
sent_by() { inside tc -s class show dev p2 | awk -v class="$1" '$1 == "class" { is = $3 == class } is && $1 == "Sent" { print $4 }'; }
sent() { [ "$(sent_by "$1")" = "$2" ]; }
class() { inside tc class show dev p2 | grep "class htb $1 "; }
has_qdisc() { inside tc qdisc show dev p2 | grep -q "$1"; }
is_usual() { [ "$(inside tc qdisc show dev p2)" = "$usual" ]; }
configure_htb() {
    ovs-vsctl set port p2 qos=@qos -- --id=@qos create qos type=linux-htb other-config:max-rate=800000000 \
        queues:1=@q1 queues:2=@q2 -- --id=@q1 create queue other-config:min-rate=8000000 dscp=46 \
        -- --id=@q2 create queue other-config:max-rate=80000000 other-config:burst=400000 other-config:priority=3 > "$dir/rows"
}
forget_htb() { ovs-vsctl clear port p2 qos -- --all destroy qos -- --all destroy queue; }

has_htb=yes
inside tc qdisc replace dev p2 root handle 1: htb 2>/dev/null || has_htb=
inside tc qdisc del dev p2 root 2>/dev/null || true
if [ -z "$has_htb" ]; then
    echo "SKIPPED qos: linux-htb: this kernel lacks sch_htb"
    echo "lane qos-htb: 0 passed, 0 failed, 1 skipped"
fi

# Packets of two queues and of none, mixed in each burst, by each way to the device.
queues() { # type of the interface
    kind="linux-htb on $1"
    ovs-vsctl set interface p2 type="$1"
    if [ "$(ovs-vsctl get interface p2 ofport)" = -1 ]; then
        echo "SKIPPED qos: $kind: $(ovs-vsctl get interface p2 error)"
        ovs-vsctl set interface p2 type=system
        return
    fi
    configure_htb
    class 1:fffe | grep -q 'rate 800Mbit ceil 800Mbit' || fail "the port's class: $(class 1:fffe)"
    class 1:1 | grep -q 'parent 1:fffe .*ceil 800Mbit' || fail "the default class: $(class 1:1)"
    class 1:2 | grep -q 'parent 1:fffe .*prio 0 rate 8Mbit ceil 800Mbit' || fail "the class of queue 1: $(class 1:2)"
    class 1:3 | grep -q 'prio 3 .*ceil 80Mbit burst .* cburst 50000b' || fail "the class of queue 2: $(class 1:3)"
    # The links of the pair may still come up.
    until_true ip netns exec "$a" ping -c 1 -W 1 10.9.0.2 || fail "the hosts do not talk"
    datagrams 128 1001=160 1002=90 1003=40
    until_true sent 1:2 160 || fail "queue 1: $(sent_by 1:2) of 160 packets"
    until_true sent 1:3 90 || fail "queue 2: $(sent_by 1:3) of 90 packets"
    [ "$(sent_by 1:1)" -ge 40 ] || fail "no queue: $(sent_by 1:1) of 40 packets"
    for version in 10 11 12 13 14 15; do
        ovs-ofctl -O "OpenFlow$version" queue-stats br0 2 > "$dir/stats"
        grep -q 'port .* queue 1: bytes=22720, pkts=160, errors=0' "$dir/stats" || fail "OpenFlow$version: $(cat "$dir/stats")"
        grep -q 'queue 2: bytes=12780, pkts=90, errors=0' "$dir/stats" || fail "OpenFlow$version: $(cat "$dir/stats")"
        ovs-ofctl -O "OpenFlow$version" queue-get-config br0 2 > "$dir/config"
        [ "$(grep -Ec '^ *queue [012]:' "$dir/config")" = 3 ] || fail "OpenFlow$version: $(cat "$dir/config")"
    done
    ovs-appctl qos/show p2 > "$dir/show"
    tr -d '\n' < "$dir/show" | grep -q 'QoS: p2 linux-htbmax-rate: 800000000.*Queue 1:.*tx_packets: 160.*Queue 2:.*tx_packets: 90' ||
        fail "$(cat "$dir/show")"

    # A class that stays keeps its counters; one that comes begins with none.
    ovs-vsctl set qos . other-config:max-rate=400000000 -- remove qos . queues 2 -- set qos . queues:7=@q7 -- --id=@q7 create queue dscp=1
    class 1:fffe | grep -q 'rate 400Mbit' || fail "the port's class: $(class 1:fffe)"
    ! class 1:3 || fail "the class of queue 2 is still there"
    [ "$(sent_by 1:2) $(sent_by 1:8)" = "160 0" ] || fail "after the change: $(inside tc -s class show dev p2)"
    forget_htb
    is_usual || fail "the device is left as $(inside tc qdisc show dev p2)"
    ovs-appctl qos/show p2 | grep -q 'QoS not configured on p2' || fail "$(ovs-appctl qos/show p2)"
    ovs-vsctl set interface p2 type=system
    echo "qos: $kind: 160, 90 and at least 40 packets in their classes"
}
if [ -n "$has_htb" ]; then
    queues system
    queues afxdp

    kind='a device that goes and comes back'
    configure_htb
    ip -n "$s" link del p2
    link 2 "$b"
    until_true class 1:3 || fail "no classes: $(inside tc class show dev p2)"
    until_true ip netns exec "$a" ping -c 1 -W 1 10.9.0.2 || fail "the hosts do not talk"

    kind='DSCP'
    mkfifo "$dir/end"
    ip netns exec "$b" python3 tests/privileged/common/datagrams.py receive 1001 1002 < "$dir/end" > "$dir/came" &
    receiver=$!
    exec 3> "$dir/end"
    until_true grep -q ready "$dir/came" || fail "no receiver"
    datagrams 128 1001=20 1002=20
    until_true sent 1:2 20 || fail "$(sent_by 1:2) of 20 packets"
    until_true sent 1:3 20 || fail "$(sent_by 1:3) of 20 packets"
    exec 3>&-
    wait "$receiver"
    grep -q 'port 1001 tos 184: 20' "$dir/came" && grep -q 'port 1002 tos 0: 20' "$dir/came" || fail "$(cat "$dir/came")"

    kind='a port that is removed'
    ovs-vsctl del-port p2
    is_usual || fail "the device is left as $(inside tc qdisc show dev p2)"
    ovs-vsctl -- --all destroy qos -- --all destroy queue -- add-port br0 p2 -- set interface p2 ofport_request=2
fi

# Kernels are built without some of them: then the port works without, and the log says so.
kind='other disciplines'
for type in hfsc sfq codel fq_codel netem; do
    ovs-vsctl set port p2 qos=@qos -- --id=@qos create qos "type=linux-$type"
    if has_qdisc "qdisc $type 1: root"; then
        ovs-appctl qos/show p2 | grep -q "QoS: p2 linux-$type" || fail "$(ovs-appctl qos/show p2)"
        has_what=1
    else
        grep -q 'p2: Failed to install new qdisc: No such file or directory' "$log" || fail "linux-$type is not there, and nobody says so"
        ovs-appctl qos/show p2 | grep -q 'QoS not configured on p2' || fail "$(ovs-appctl qos/show p2)"
        has_what=0
        echo "SKIPPED qos: linux-$type: this kernel lacks sch_$type"
    fi
    echo "lane qos-$type: $has_what passed, 0 failed, $((1 - has_what)) skipped"
    ovs-vsctl clear port p2 qos -- --all destroy qos
    is_usual || fail "linux-$type left the device as $(inside tc qdisc show dev p2)"
done
inside tc qdisc add dev p2 root handle 5: tbf rate 1gbit burst 10k latency 1s
ovs-vsctl set port p2 qos=@qos -- --id=@qos create qos type=linux-noop
has_qdisc tbf || fail "linux-noop changed the device: $(inside tc qdisc show dev p2)"
ovs-vsctl clear port p2 qos -- --all destroy qos
has_qdisc tbf || fail "a discipline of somebody else's went: $(inside tc qdisc show dev p2)"
inside tc qdisc del dev p2 root

# Tokens that a rate makes from its configuration on, by the clock of this script, which begins before and ends after.
now_ms() { echo $((10#$(date +%s%3N))); }
# That of $1 packets of $2 tokens each, $3 passed, if $4 fit into the burst and the rate is $5 tokens a second.
within_bounds() {
    local elapsed_ms=$(($(now_ms) - began))
    [ "$3" -ge "$4" ] || fail "$3 of $1 packets passed, and $4 fit into the burst"
    [ $(($3 * $2)) -le $(($4 * $2 + $2 + $5 * elapsed_ms / 1000)) ] || fail "$3 of $1 packets passed in $elapsed_ms ms"
    echo "qos: $kind: $3 of $1 packets passed, $4 fit into the burst"
}
passed() { ovs-ofctl dump-flows br0 | sed -n 's/.*n_packets=\([0-9]*\),.*in_port=1 .*/\1/p'; }
arrived() { [ "$(($(passed) + $(ovs-appctl coverage/read-counter drop_ingress_policer)))" -ge "$1" ]; }

kind='kilobits a second'
before=$(passed)
dropped=$(ovs-appctl coverage/read-counter drop_ingress_policer)
began=$(now_ms)
# A thousand bytes a second, after a burst of fifty thousand.
ovs-vsctl set interface p1 ingress_policing_rate=8 ingress_policing_burst=400
datagrams 1000 1009=300
until_true arrived $((before + dropped + 300)) || fail "not all packets came"
within_bounds 300 1000 $(($(passed) - before)) 50 1000
! ovs-vsctl get interface p1 status | grep -q unsupported || fail "$(ovs-vsctl get interface p1 status)"
ovs-ofctl dump-ports br0 1 | grep -q 'rx pkts=.* drop=[1-9]' || fail "the port does not count them: $(ovs-ofctl dump-ports br0 1)"

kind='packets a second'
before=$(passed)
dropped=$(ovs-appctl coverage/read-counter drop_ingress_policer)
began=$(now_ms)
ovs-vsctl set interface p1 ingress_policing_rate=0 ingress_policing_kpkts_rate=1 ingress_policing_kpkts_burst=1
datagrams 100 1009=3000
until_true arrived $((before + dropped + 3000)) || fail "not all packets came"
within_bounds 3000 1 $(($(passed) - before)) 1000 1000

kind='no policing any more'
ovs-vsctl set interface p1 ingress_policing_kpkts_rate=0
before=$(passed)
dropped=$(ovs-appctl coverage/read-counter drop_ingress_policer)
datagrams 1000 1009=500
until_true arrived $((before + dropped + 500)) || fail "not all packets came"
[ "$(ovs-appctl coverage/read-counter drop_ingress_policer)" = "$dropped" ] || fail "packets were dropped"

kind=egress-policer
ovs-vsctl add-port br0 p3 -- set interface p3 type=null ofport_request=3
ovs-appctl qos/show-types p3 | sort | tr '\n' ' ' | grep -q 'QoS type: egress-policer QoS type: trtcm-policer' || fail "$(ovs-appctl qos/show-types p3)"
ovs-ofctl --bundle replace-flows br0 - <<< 'in_port=1 actions=set_queue:4,output:3'
sent_to_p3() { ovs-ofctl dump-ports br0 3 | sed -n 's/.*tx pkts=\([0-9]*\),.*/\1/p'; }
sent_or_dropped() { [ "$(($(sent_to_p3) + $(ovs-appctl coverage/read-counter drop_egress_policer)))" -ge "$1" ]; }
began=$(now_ms)
ovs-vsctl set port p3 qos=@qos -- --id=@qos create qos type=egress-policer other-config:cir=1000 other-config:cbs=20000
ovs-appctl qos/show p3 | tr '\n' ' ' | grep -q 'QoS: p3 egress-policer cbs: 20000 cir: 1000' || fail "$(ovs-appctl qos/show p3)"
datagrams 1000 1009=300
until_true sent_or_dropped 300 || fail "not all packets came"
within_bounds 300 1000 "$(sent_to_p3)" 20 1000

kind=trtcm-policer
before=$(sent_to_p3)
ovs-vsctl clear port p3 qos -- --all destroy qos
began=$(now_ms)
# The queue's committed and excess bursts, thirty packets and ten, are less than the port's.
ovs-vsctl set port p3 qos=@qos -- --id=@qos create qos type=trtcm-policer other-config:cir=100000 other-config:cbs=100000 \
    other-config:eir=100000 other-config:ebs=100000 queues:4=@q4 -- --id=@q4 create queue other-config:cir=500 \
    other-config:cbs=30000 other-config:eir=500 other-config:ebs=10000
datagrams 1000 1009=300
of_queue() { ovs-ofctl queue-stats br0 3 4 | sed -n 's/.*pkts=\([0-9]*\), errors=\([0-9]*\),.*/\1 \2/p'; }
counted() { read -r in_queue beyond <<< "$(of_queue)"; [ $((in_queue + beyond)) = "$1" ]; }
until_true counted 300 || fail "$(ovs-ofctl queue-stats br0 3)"
within_bounds 300 1000 "$in_queue" 40 1000
[ $(($(sent_to_p3) - before)) = "$in_queue" ] || fail "the port sent $(($(sent_to_p3) - before)) packets of $in_queue"
ovs-vsctl clear port p3 qos -- --all destroy qos -- --all destroy queue
ovs-vsctl set port p3 qos=@qos -- --id=@qos create qos type=egress-policer other-config:cbs=2048
grep -q 'Failed to set QoS type egress-policer on port p3: Invalid argument' "$log" || fail "no rate, and nobody says so"
ovs-appctl qos/show p3 | grep -q 'QoS not configured on p3' || fail "$(ovs-appctl qos/show p3)"

kind='exit --cleanup'
if [ -n "$has_htb" ]; then
    configure_htb
    class 1:3 > /dev/null || fail "no classes"
fi
stop_daemon
is_usual || fail "the device is left as $(inside tc qdisc show dev p2)"
stop_database
for ns in "$a" "$b" "$s"; do ip netns del "$ns"; done
