#!/usr/bin/env bash
# The lab beyond the process: the search through a switch elsewhere, over packet sockets, AF_XDP, with trafgen and tcpreplay, and what
# it counts as lost, out of order and astray; what the autopilot says of a slow port; the Prometheus endpoint, judged by promtool.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"

make_namespaces
ip -n "$s" link set lo up
# The kernel's own solicitations would be counted as packets of the search.
ip netns exec "$s" sh -c 'for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6; done'
ip -n "$s" link add g1 type veth peer name s1
ip -n "$s" link add g2 type veth peer name s2
for link in g1 g2 s1 s2; do ip -n "$s" link set "$link" up; done
printf '%s\n' 's1 af_packet options = { device = "s1" }' 's2 af_packet options = { device = "s2" }' | configure
sed -i 's/^\[switch\]$/[switch]\nmetrics = "127.0.0.1:9155"/' "$dir/switch.toml"
start

# search NAME LOSS ARGS…: a busy machine may keep a generator from its rate, which is an error; the search goes on from there.
search() {
    local _
    for _ in $(seq 20); do
        if (ahead ip netns exec "$s" "$sluice" lab search examples/profiles/seed.json --max-rate 1000 --min-rate 400 \
            --sniff 0 --search 0.3 --validation 0.5 --granularity 0.5 --warmup 0.2 --out "$dir/$1" --resume --loss "$2" "${@:3}" \
            > "$dir/$1.txt" 2>&1); then
            grep -q 'loss of at most 50 %:  [0-9.]* Mpps' "$dir/$1.txt" || fail "$1: no answer: $(cat "$dir/$1.txt")"
            return
        fi
        grep -q 'the generator sent' "$dir/$1.txt" || fail "$1: $(cat "$dir/$1.txt")"
    done
    fail "$1: $(cat "$dir/$1.txt")"
}
# A busy machine may lose more packets than the rules do, but none may come out of order or elsewhere.
in_order() {
    grep -q 'passed .* out of order' "$dir/$1.txt" || fail "$1: no trial: $(cat "$dir/$1.txt")"
    ! grep ' out of order' "$dir/$1.txt" | grep -vq '  0 out of order, 0 astray$' || fail "$1: order: $(cat "$dir/$1.txt")"
}
search sockets 0.5 --ports af_packet:g1,af_packet:g2
in_order sockets
search xdp 0.5 --ports af_xdp:g1,af_xdp:g2
in_order xdp
# Two of the profile's ten destinations are dropped: a fifth of the packets (a trial is longer than the 100 flows), within a limit
# of a half and above one of a tenth.
ctl bridge/add-flow br0 'priority=10,ip,nw_dst=8.0.0.2/31,actions=drop'
search fifth 0.5,0.1 --ports af_packet:g1,af_packet:g2
grep -q 'loss of at most 10 %:  none' "$dir/fifth.txt" || fail "a fifth is lost, but the report does not say so: $(cat "$dir/fifth.txt")"
in_order fifth
ctl bridge/del-flows br0 'ip,nw_dst=8.0.0.2/31'
search trafgen 0.5 -- examples/trafgen.sh g1 g2 '{rate}' '{seconds}'
# A hundred packets of UDP, one after the other.
echo '{ eth(da=02:00:00:00:00:02, sa=02:00:00:00:00:01), ipv4(ttl=64, da=8.0.0.1, sa=10.0.0.1), udp(sp=1000, dp=2000), fill(0, 18) }' > "$dir/frame"
trafgen --out "$dir/in.pcap" --conf "$dir/frame" --num 100 > /dev/null
search tcpreplay 0.5 -- examples/tcpreplay.sh g1 g2 "$dir/in.pcap" '{rate}' '{seconds}'
# Stopped in the middle of a trial, nothing of the generator is left.
ip netns exec "$s" "$sluice" lab search examples/profiles/seed.json --out "$dir/stopped" --warmup 0 --sniff 0 --search 600 \
    --max-rate 2000 -- examples/tcpreplay.sh g1 g2 "$dir/in.pcap" '{rate}' '{seconds}' > "$dir/stopped.txt" 2>&1 &
stopped=$!
until_true pgrep -f "tcpreplay --intf1=g1.*$dir/in.pcap" || fail "the generator did not start: $(cat "$dir/stopped.txt")"
kill -INT "$stopped"
wait "$stopped" && fail "an interrupted search ended well"
grep -q '^sluice: stopped: the trials so far are kept' "$dir/stopped.txt" || fail "stopped: $(cat "$dir/stopped.txt")"
none_left() { [ -z "$(pgrep -f "tcpreplay.*$dir/in.pcap")" ]; }
until_true none_left || fail "the generator goes on after its search"

# At 50 Mbit/s on packet sockets the autopilot neither tries nor claims anything, and says why.
sed 's/fill(0, 18)/fill(0, 958)/' "$dir/frame" > "$dir/long-frame"
trafgen --out "$dir/long.pcap" --conf "$dir/long-frame" --num 100 > /dev/null
ip netns exec "$s" tcpreplay --intf1=g1 --mbps=50 --loop=1000000 --duration=90 "$dir/long.pcap" > "$dir/replayed" 2>&1 &
replay=$!
of_s1() { ctl sluice/autopilot-show | sed -n '/port: s1 /,/port: [^s]\|port: s[^1]/p' > "$dir/autopilot"; }
is_low() { of_s1 && grep -q 'now: load is low: no packet waits, so nothing is tried and nothing measured' "$dir/autopilot"; }
until_true is_low || fail "at 50 Mbit/s the autopilot says: $(cat "$dir/autopilot" "$dir/replayed")"
! grep -q 'flies\|cycles/pkt\|changes too often' "$dir/autopilot" || fail "at low load the autopilot tries or claims: $(cat "$dir/autopilot")"
kill "$replay"
ip netns exec "$s" curl -sf http://127.0.0.1:9155/metrics > "$dir/metrics" || fail "no metrics"
promtool check metrics < "$dir/metrics" || fail "promtool does not like the metrics"
grep -q '^sluice_port_sent_packets_total{port="s2",type="af_packet"} [1-9]' "$dir/metrics" || fail "no packets counted"
