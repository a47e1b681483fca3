#!/usr/bin/env bash
# What a stranger looks at: `sluice capture` of taps into tcpdump and tshark; Prometheus, which scrapes the switch and knows its
# metrics; an AF_XDP port that takes a device's own traffic, and says so; a pcap port whose pipe stalls.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"

make_namespaces
ip -n "$s" link set lo up
ip -n "$s" link add own type veth peer name far
ip -n "$s" addr add 10.8.0.1/24 dev own
for link in own far; do ip -n "$s" link set "$link" up; done
mkfifo "$dir/pipe"
chmod 666 "$dir/pipe"
# A reader that reads nothing.
sleep 600 < "$dir/pipe" &
printf '%s\n' "t1 tap" "t2 tap" "stalls pcap options = { tx = \"$dir/pipe\" }" 'own af_xdp' | configure
sed -i 's/^\[switch\]$/[switch]\nmetrics = "127.0.0.1:9155"\nport-types = ["af_xdp"]/' "$dir/switch.toml"
# Nothing listens there: a controller that is not connected is a metric, too.
printf '[[bridge]]\nname = "br9"\nfail-mode = "secure"\ncontrollers = ["tcp:127.0.0.1:6699"]\n' >> "$dir/switch.toml"
start
grep -q 'port own: device own has the address 10.8.0.1 and a route: all that it receives comes to this port now' "$dir/log" ||
    fail "AF_XDP takes the device's own traffic without a word"
[ "$("$sluice" run --help-config | grep -c 'also what is meant for this host itself')" = 1 ] || fail "--help-config does not say so"

ip -n "$s" link set t1 netns "$a"
ip -n "$s" link set t2 netns "$b"
ip -n "$a" addr add 10.9.0.1/24 dev t1; ip -n "$a" link set t1 up
ip -n "$b" addr add 10.9.0.2/24 dev t2; ip -n "$b" link set t2 up
ip netns exec "$a" ping -q -i 0.02 10.9.0.2 > "$dir/ping" &
ping=$!

# All hosts see what a learning switch floods: the pipe fills, and nothing else waits for it.
ctl bridge/add-flow br0 'priority=9,icmp,in_port=t1,actions=output:t2,output:stalls' || fail "no rule"
capture() { "$sluice" capture -t "$dir/run/sluice.ctl" "$@"; }
capture -c 20 t2 icmp 2> "$dir/said" | tcpdump -nr - > "$dir/tcpdump" 2>> "$dir/said" || fail "tcpdump: $(cat "$dir/said")"
[ "$(grep -c 'ICMP echo' "$dir/tcpdump")" = 20 ] || fail "tcpdump does not see the pings: $(cat "$dir/tcpdump" "$dir/said")"
capture -c 10 t1 icmp,icmp_type=8 -w "$dir/t1.pcapng" 2> /dev/null
tshark -r "$dir/t1.pcapng" -T fields -e frame.interface_name -e frame.comment -e icmp.type > "$dir/tshark" 2> /dev/null
[ "$(grep -c '^t1	port=t1 direction=rx verdict=actions:t2,stalls rule=cookie=0x0,table=0,priority=9 megaflow=.*	8$' "$dir/tshark")" = 10 ] ||
    fail "tshark does not see the comments: $(cat "$dir/tshark")"
ctl bridge/add-flow br0 'priority=10,cookie=0x77,icmp,actions=drop'
capture -c 3 DROPS icmp -w "$dir/drops.pcapng" 2> /dev/null
tshark -r "$dir/drops.pcapng" -T fields -e frame.comment 2> /dev/null |
    grep -q 'port=t1 direction=drop verdict=dropped reason=rules rule=cookie=0x77,table=0,priority=10' || fail "no drops: $(tshark -r "$dir/drops.pcapng")"
ctl bridge/del-flows br0 'icmp,cookie=0x77/-1'

# The pipe is full by and by; pings pass as before.
full() { ctl sluice/drops | grep -q 'tx-full'; }
ip netns exec "$a" ping -q -s 1400 -i 0.002 -c 1500 -W 5 10.9.0.2 > "$dir/flood" || fail "no ping beside a stalled pipe: $(cat "$dir/flood")"
until_true full || fail "the pipe never filled: $(ctl sluice/drops)"
grep -q ' 0% packet loss' "$dir/flood" || fail "a stalled pipe costs others packets: $(cat "$dir/flood")"
kill "$ping"

# Debian's Prometheus scrapes it.
cat > "$dir/prometheus.yml" <<'YML'
global: { scrape_interval: 200ms }
scrape_configs: [ { job_name: sluice, static_configs: [ { targets: ["127.0.0.1:9155"] } ] } ]
YML
ip netns exec "$s" prometheus --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/tsdb" \
    --web.listen-address=127.0.0.1:9090 > "$dir/prometheus.log" 2>&1 &
prometheus=$!
ask() { ip netns exec "$s" curl -sf --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query; }
knows() { ask "$1" | grep -q "$2"; }
until_true knows 'up{job="sluice"}' ',"1"\]' || fail "prometheus does not scrape: $(tail -3 "$dir/prometheus.log")"
for metric in build_info conntrack_connections rules datapath_megaflows limit_used limit_met_total resident_memory_bytes port_up \
    controller_connected; do
    until_true knows "sluice_$metric" '"value":\[' || fail "prometheus knows no sluice_$metric"
done
until_true knows 'sluice_controller_connected{bridge="br9",target="tcp:127.0.0.1:6699"}' ',"0"\]' || fail "the controller is not told of"
ip netns exec "$s" curl -sf http://127.0.0.1:9155/metrics > "$dir/metrics"
promtool check metrics < "$dir/metrics" || fail "promtool does not like the metrics"
[ "$(grep -c '^# HELP' "$dir/metrics")" = "$(grep -c '^# TYPE' "$dir/metrics")" ] || fail "a metric has no help"
kill "$prometheus"
ctl sluice/drops
stop
echo "captures in tcpdump and tshark, metrics in Prometheus, and a pipe that stalls nobody"
