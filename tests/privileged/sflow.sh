#!/usr/bin/env bash
# sFlow beside Open vSwitch's: both daemons get the same packets by dummy devices, and their samples of packets and counters are
# the same field by field, as Wireshark and nfdump's collector read them. Among the packets: tags that come, go and change, labels,
# drops, several outputs, a tunnel that packets leave by and one that they come by.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/vswitchd.bash
for program in tshark text2pcap sfcapd nfdump; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program"; exit 77; }
done
packet='eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:0a)'
receive() { ovs-appctl netdev-dummy/receive "$@" >/dev/null; }
flow() { echo "in_port(1),$packet,eth_type(0x0800),ipv4(src=192.168.0.$1,dst=192.168.0.9,proto=17,tos=8,ttl=64,frag=no),udp(src=$1,dst=9)"; }

# The tables' rule for each source port, and the packet.
packets() {
    receive p1 "$(flow 1)"
    # 314 bytes, of which 128 are sampled.
    receive p1 "50540000000a50540000000508004500012c00000000401165b70a0000020a0000090002000901180000$(printf '%0544d' 0)"
    receive p1 "$(flow 3)"
    receive p1 "$(flow 4)"
    receive p1 "$(flow 5)"
    receive p1 "$(flow 6)"
    receive p1 "in_port(1),$packet,eth_type(0x8100),vlan(vid=7,pcp=3),encap(eth_type(0x0800),ipv4(src=192.168.0.7,dst=192.168.0.9,proto=17,tos=0,ttl=64,frag=no),udp(src=7,dst=9))"
    receive p1 "in_port(1),$packet,eth_type(0x8100),vlan(vid=7,pcp=3),encap(eth_type(0x0800),ipv4(src=192.168.0.8,dst=192.168.0.9,proto=17,tos=0,ttl=64,frag=no),udp(src=8,dst=9))"
    receive p1 "in_port(1),$packet,eth_type(0x8847),mpls(label=100,tc=3,ttl=64,bos=1)"
    receive p1 "$(flow 10)"
    # VXLAN of network 77 for 1.1.2.88, with an ARP request within.
    receive u1 aa55aa550000f8bc124434b608004500004e00004000401133ea0101025c01010258c00012b5003a00000800000000004d00ffffffffff\
ff505400000005080600010800060400015054000000050101010100000000000001010102
}
RULES='udp,tp_src=1,actions=output:2
udp,tp_src=2,actions=output:3
udp,tp_src=3,actions=output:2,output:3
udp,tp_src=4,actions=drop
udp,tp_src=5,actions=mod_vlan_vid:5,mod_vlan_pcp:2,output:2
udp,tp_src=6,actions=push_mpls:0x8847,set_field:77->mpls_label,output:2
udp,tp_src=7,actions=strip_vlan,output:2
udp,tp_src=8,actions=mod_vlan_vid:9,output:2
udp,tp_src=10,actions=output:4
in_port=4,actions=output:2
mpls,actions=output:2'
FLOW_SAMPLES=11

with() { # daemon, name of results
    kind=$2
    ln -sfn "$1" "$dir/bin/ovs-vswitchd"
    start_all --enable-dummy --disable-system
    mkdir "$dir/$2"
    inside python3 tests/privileged/common/sflow_samples.py "$dir/$2/samples" 6344 $FLOW_SAMPLES 101:10:0 102:0:8 > "$dir/$2/ready" &
    collector=$!
    inside sfcapd -p 6343 -b 127.0.0.1 -w "$dir/$2" -P "$dir/$2/sfcapd.pid" -t 3600 > "$dir/$2/sfcapd.log" 2>&1 &
    until_true grep -q listening "$dir/$2/ready" || fail "no collector"
    until_true test -s "$dir/$2/sfcapd.pid" || fail "no sfcapd: $(cat "$dir/$2/sfcapd.log")"
    ovs-vsctl add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure other_config:datapath-id=00000000000000b0 \
        -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 options:ifindex=101 \
        -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2 options:ifindex=102 \
        -- add-port br0 p3 -- set interface p3 type=dummy ofport_request=3 \
        -- add-port br0 t1 -- set interface t1 type=vxlan ofport_request=4 options:remote_ip=1.1.2.92 options:key=77 \
        -- add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=standalone 'other_config:hwaddr="aa:55:aa:55:00:00"' \
        -- add-port br1 u1 -- set interface u1 type=dummy
    ovs-appctl netdev-dummy/ip4addr br1 1.1.2.88/24 >/dev/null
    ovs-appctl ovs/route/add 1.1.2.0/24 br1 >/dev/null
    ovs-appctl tnl/arp/set br1 1.1.2.92 f8:bc:12:44:34:b6 >/dev/null
    ovs-ofctl add-flows br0 - <<<"$RULES"
    ovs-vsctl -- --id=@sf create sflow 'targets="127.0.0.1:6343","127.0.0.1:6344"' agent=127.0.0.1 sampling=1 polling=1 header=128 \
        -- set bridge br0 sflow=@sf >/dev/null
    packets
    wait "$collector" || fail "not all samples came; $(ovs-appctl dpctl/dump-flows)"
    ovs-appctl dpctl/dump-flows | grep -o 'sFlow([^)]*)' | sort > "$dir/$2/text"
    sfcapd=$(cat "$dir/$2/sfcapd.pid")
    kill "$sfcapd"
    until_true gone "$sfcapd" || fail "sfcapd does not end"
    text2pcap -q -u 1000,6343 "$dir/$2/samples" "$dir/$2/pcap" 2>/dev/null
    tshark -r "$dir/$2/pcap" -O sflow -V -d udp.port==6343,sflow 2>/dev/null | grep -v '^Frame' > "$dir/$2/tshark"
    # nfdump 1.7.1 reads no more of a datagram behind the number of a virtual network, whoever sent it.
    # Of what the collector makes of the packets, all but when they came.
    nfdump -q -r "$(ls "$dir/$2"/nfcapd.2* | head -1)" -o 'fmt:%sa %da %sp %dp %pr %tos %pkt %byt %in %out %svln %dvln' | sort > "$dir/$2/nfdump"
    stop_all
    rm -f "$dir/conf.db" "$log"
}
with /usr/sbin/ovs-vswitchd theirs
with "$(readlink -f "${DAEMON:-$sluice}")" ours
for what in tshark nfdump text; do
    [ -s "$dir/theirs/$what" ] || fail "$what says nothing of Open vSwitch's samples"
    diff "$dir/theirs/$what" "$dir/ours/$what" || fail "$what: Open vSwitch's samples differ (<)"
done
echo "sflow: $FLOW_SAMPLES samples of packets and 2 of counters are Open vSwitch's, $(wc -l < "$dir/ours/tshark") lines of tshark, $(wc -l < "$dir/ours/nfdump") of nfdump"
