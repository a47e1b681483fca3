#!/usr/bin/env bash
# dpdk-testpmd's virtio-user behind vhost-user ports, through the whole switch: every packet that its tx accepted is
# delivered or counted, none is lost when paced (to half of the maximum on a quiet machine), and either side may be killed
# and started again.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
# `./ci.sh privileged` counts 77 as skipped.
command -v dpdk-testpmd >/dev/null || { echo "vhost: dpdk-testpmd is not installed (Debian: dpdk-dev)"; exit 77; }
packets=200000
too_busy=
# Both poll a core; what else the machine runs shall not keep them from it for as long as the rings are long.
niceness=-15

# A testpmd that waits at $dir/vm/SOCKET, with forwarding mode $1; as an ordinary user, on core 1, without huge pages.
guest_start() {
    rm -f "$dir/guest.in" "$dir/vm/sock"
    mkfifo "$dir/guest.in"
    nice -n "$niceness" setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$dir/vm" XDG_RUNTIME_DIR="$dir/vm" \
        stdbuf -oL dpdk-testpmd -l 0,1 --no-pci --no-huge -m 256 --no-telemetry --file-prefix="sluice-$$" \
        --vdev "net_virtio_user0,path=$dir/vm/sock,server=1,queues=1,queue_size=1024" -- -i --no-flush-rx --forward-mode="$1" \
        --total-num-mbufs=8192 < "$dir/guest.in" > "$dir/guest.out" 2>&1 &
    guest=$!
    exec 7> "$dir/guest.in"
    local before
    before=$(times_logged 'port vm is up')
    until_true logged_again 'port vm is up' "$before" || fail "testpmd did not come up: $(tail -5 "$dir/guest.out")"
    guest_say start
}
guest_say() { echo "$*" >&7; }
guest_kill() {
    local before
    before=$(times_logged 'port vm is down')
    kill -KILL "$guest"
    wait "$guest" 2>/dev/null || true
    exec 7>&-
    until_true logged_again 'port vm is down' "$before" || fail "the guest that has gone was not noticed"
}
# What testpmd has counted, such as TX-packets.
guest_count() {
    local marks
    marks=$(grep -c 'NIC statistics for port 0' "$dir/guest.out" || true)
    guest_say show port stats 0
    until_true sh -c "[ \$(grep -c 'Tx-bps' $dir/guest.out) -gt $marks ]" || fail "testpmd does not answer"
    awk -v what="$1:" '{ for (i = 1; i < NF; i++) if ($i == what) n = $(i + 1) } END { print n }' "$dir/guest.out"
}

# What port $1 has counted: RX or TX ($2), and which ($3): packets, dropped.
port_count() { ctl dpctl/show -s | awk -v port="$1" -v way="$2" -v what="$3" '
    / port [0-9]+: / { here = $3 == port }
    here && $1 == way { for (i = 2; i <= NF; i++) { split($i, part, ":"); if (part[1] == what || $1 " " part[1] == way " " what) print part[2] } }'; }
# Waits until a count stays the same; prints it.
settled() {
    local last=-1 now
    now=$("$@")
    while [ "$now" != "$last" ]; do last=$now; sleep 0.3; now=$("$@"); done
    echo "$now"
}
sink_count() { port_count sink TX packets; }

mkdir -m 777 "$dir/vm"
make_namespaces
printf '%s\n' "vm vhost-user options = { path = \"$dir/vm/sock\" }" "sink null" | configure
start
ctl bridge/del-flows br0
ctl bridge/add-flow br0 'in_port=vm,actions=output:sink'
ctl bridge/add-flow br0 'in_port=10,actions=output:vm'

# Everything it can send. What its tx took has come in, and what came in left by the other port.
guest_start txonly
until_true sh -c "[ \$($sluice ctl -t $dir/run/sluice.ctl coverage/read-counter received) -gt $packets ]" || fail "nothing comes"
guest_say stop
received=$(settled port_count vm RX packets)
dropped=$(port_count vm RX dropped)
accepted=$(guest_count TX-packets)
echo "vhost: testpmd's tx accepted $accepted packets; $received received, $dropped dropped by name, $(sink_count) delivered"
[ $((received + dropped)) = "$accepted" ] || fail "testpmd sent $accepted, $((received + dropped)) came in"
[ "$(sink_count)" = "$received" ] || fail "$received came in, $(sink_count) went out"
guest_kill

# Another one takes its place, which returns what it gets. At full speed, then paced to half of that.
guest_start macswap
paced() { # packets a second, packets
    local before
    before=$(sink_count)
    ctl bridge/add-port br0 gen ofport=10 type=generator "rate=$1" "count=$2" flows=1000
    # Nothing of ours runs meanwhile.
    sleep $(($2 / $1 + 1))
    back=$(($(settled sink_count) - before))
    ctl bridge/del-port br0 gen
}
all_return() { paced 10000 1000; [ "$back" = 1000 ]; }
# What comes back in a second of as many as can be made.
maximum() {
    local before start
    ctl bridge/add-port br0 gen ofport=10 type=generator rate=max flows=1000
    sleep 0.3
    before=$(sink_count)
    start=$(date +%s%6N)
    sleep 1
    echo $((($(sink_count) - before) * 1000000 / ($(date +%s%6N) - start)))
    ctl bridge/del-port br0 gen
    settled sink_count > /dev/null
}
# At half the maximum, five times. What else the machine runs may take a core away for longer than the rings are long, so then more
# slowly; the lines say at which rate all came back.
for part in 2 2 2 2 2 4 8 16; do
    rate=$(($(maximum) / part))
    # A machine too busy to return anything is asked for something all the same.
    [ "$rate" -gt 20000 ] || rate=20000
    paced "$rate" "$packets"
    echo "vhost: at $rate packets a second, 1/$part of what it can take and return, $back of $packets came back"
    [ "$back" != "$packets" ] || break
done
# Then nothing is learnt of what is lost on a machine with cores to itself; the rest is still to be seen.
[ "$back" = "$packets" ] || too_busy="packets were lost even at a sixteenth of the rate"
guest_kill

# The guest again, and then the switch under its feet.
guest_start macswap
until_true all_return || fail "$back of 1000 packets came back after testpmd was started again"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
start
ctl bridge/del-flows br0
ctl bridge/add-flow br0 'in_port=vm,actions=output:sink'
ctl bridge/add-flow br0 'in_port=10,actions=output:vm'
# The guest was there before us, so the log has nothing to say.
some_return() { paced 10000 100; [ "$back" = 100 ]; }
until_true some_return || fail "nothing comes back after the switch was started again"
until_true all_return || fail "$back of 1000 packets came back after the switch was started again"
guest_kill
ctl sluice/drops
stop
remove_namespaces
[ -z "$too_busy" ] || { echo "vhost: $too_busy: this machine is too busy to tell whether any are at half of it"; exit 77; }
