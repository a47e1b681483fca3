#!/usr/bin/env bash
# dpdk-testpmd's virtio-user behind vhost-user ports, through the whole switch: every packet that its tx accepted is
# delivered or counted, none is lost when paced to half of the maximum, and either side may be killed and started again.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
# `./ci.sh privileged` counts 77 as skipped.
command -v dpdk-testpmd >/dev/null || { echo "vhost: dpdk-testpmd is not installed (Debian: dpdk-dev)"; exit 77; }
packets=200000
# Entries of a ring: at a few hundred thousand packets a second some scheduler's slices long.
ring=16384

# A testpmd that waits at $dir/vm/SOCKET, with forwarding mode $1; as an ordinary user, on core 1, without huge pages.
# Its own rings have 512 entries, however long the device's are, unless it is told. $2 are further parameters of its device.
guest_start() {
    rm -f "$dir/guest.in" "$dir/vm/sock"
    mkfifo "$dir/guest.in"
    ahead setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$dir/vm" XDG_RUNTIME_DIR="$dir/vm" \
        stdbuf -oL dpdk-testpmd --lcores 0@1,1@1 --no-pci --no-huge -m 512 --no-telemetry --file-prefix="sluice-$$" \
        --vdev "net_virtio_user0,path=$dir/vm/sock,server=1,queues=1,queue_size=$ring${2:-}" -- -i --no-flush-rx \
        --forward-mode="$1" --rxd=$ring --txd=$ring --total-num-mbufs=$((3 * ring)) \
        < "$dir/guest.in" > "$dir/guest.out" 2>&1 &
    guest=$!
    exec 7> "$dir/guest.in"
    local before
    before=$(times_logged 'port vm is up')
    until_true logged_again 'port vm is up' "$before" || fail "testpmd did not come up: $(tail -5 "$dir/guest.out")"
    guest_say start
}
guest_say() { echo "$*" >&7; }
# Whether the guest's link is up for the switch, which looks once a second; a link that was up from the start is not logged.
link_is_up() { ! grep -o 'port vm is [a-z]*' "$dir/log" | tail -1 | grep -q down; }
guest_kill() {
    local before
    before=$(times_logged 'port vm is down')
    kill -KILL "$guest"
    wait "$guest" 2>/dev/null || true
    exec 7>&-
    until_true logged_again 'port vm is down' "$before" || fail "the guest that has gone was not noticed"
}
# The last number behind $2 in what testpmd says to command $1. The answer is whole when it says that the next is none.
guest_count() {
    local answered
    answered=$(grep -c 'Command not found' "$dir/guest.out" || true)
    guest_say "$1"
    guest_say 'that was all'
    until_true sh -c "[ \$(grep -c 'Command not found' $dir/guest.out) -gt $answered ]" || fail "testpmd does not answer"
    awk -v what="$2:" '{ for (i = 1; i < NF; i++) if ($i == what) n = $(i + 1) } END { print n }' "$dir/guest.out"
}

# What port $1 has counted: RX or TX ($2), and which ($3): packets, dropped.
port_count() { ctl dpctl/show -s | awk -v port="$1" -v way="$2" -v what="$3" '
    / port [0-9]+: / { here = $3 == port }
    here && $1 == way { for (i = 2; i <= NF; i++) { split($i, part, ":"); if (part[1] == what || $1 " " part[1] == way " " what) print part[2] } }'; }
sink_count() { port_count sink TX packets; }
# Packets that the port or the guest counted as lost: there was no room in a ring.
losses() { echo $(($(port_count vm TX dropped) + $(guest_count 'show fwd stats all' TX-dropped))); }

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
all_in() {
    accepted=$(guest_count 'show port stats 0' TX-packets)
    received=$(port_count vm RX packets)
    dropped=$(port_count vm RX dropped)
    delivered=$(sink_count)
    [ $((received + dropped)) = "$accepted" ] && [ "$delivered" = "$received" ]
}
until_true all_in || fail "testpmd sent $accepted, $((received + dropped)) came in, $delivered went out"
echo "vhost: testpmd's tx accepted $accepted packets; $received received, $dropped dropped by name, $delivered delivered"
guest_kill

# Another one takes its place, which returns what it gets.
given_before=$(port_count vm TX packets)
came_before=$(port_count vm RX packets)
guest_start macswap
accounted() {
    back=$(($(sink_count) - sink_before))
    lost=$(($(losses) - losses_before))
    [ $((back + lost)) = "$1" ]
}
all_sent() { [ "$(port_count gen RX packets)" = "$1" ]; }
# Sends $2 packets, $1 a second, and waits until each has come back or is counted as lost; sets how many a second were sent.
# A stall is made up for by a burst of a quarter of a ring at most; what a longer one keeps from being sent is sent later, and
# the generator counts it: for so many more there would have been time.
paced() {
    local catch_up=$((ring * 250 / $1))
    sink_before=$(sink_count)
    losses_before=$(losses)
    ctl bridge/add-port br0 gen ofport=10 type=generator "rate=$1" "catch-up=$((catch_up > 100 ? 100 : catch_up))" "count=$2" flows=1000
    until_true all_sent "$2" || fail "$2 packets are not sent at $1 a second"
    was=$(($1 * $2 / ($2 + $(port_count gen RX dropped))))
    until_true accounted "$2" || fail "of $2 packets $back came back and $lost are counted as lost"
    ctl bridge/del-port br0 gen
}
# How many it returns in a second of as many as can be made: over a second at least, and until there are some.
maximum() {
    local before start count=0 took=0
    ctl bridge/add-port br0 gen ofport=10 type=generator rate=max flows=1000
    sleep 0.3
    before=$(sink_count)
    start=$(date +%s%6N)
    while [ "$took" -lt 1000000 ] || [ "$count" -lt 10000 ]; do
        [ "$took" -lt 60000000 ] || fail "$count packets came back in a minute"
        sleep 0.1
        count=$(($(sink_count) - before))
        took=$(($(date +%s%6N) - start))
    done
    ctl bridge/del-port br0 gen
    echo $((count * 1000000 / took))
}
# Whether nothing is under way: what the guest was given has come back, or it has counted it as lost.
all_back() {
    given=$(($(port_count vm TX packets) - given_before))
    [ "$given" = $(($(port_count vm RX packets) - came_before + $(guest_count 'show fwd stats all' TX-dropped))) ]
}
# A tenth more than half of the maximum is asked for, so that half is reached. A core may be away for as long as half a ring lasts.
at_half_of_the_maximum() {
    local max before
    max=$(maximum) || exit 1
    until_true all_back || fail "the guest was given $given packets and has not returned or counted them all"
    before=$(stalls)
    paced $((max * 11 / 20)) "$packets"
    echo "vhost: $max packets a second at most; at $was a second as sent $back of $packets came back, $lost are counted as lost"
    paced_well "$was" $((max / 2)) "$lost" "$before" $((ring * 500 / max))
}
watch_cores
ten_times at_half_of_the_maximum
guest_kill

# The guest again, and then the switch under its feet.
all_return() { paced 10000 1000; [ "$lost" = 0 ]; }
guest_start macswap
until_true all_return || fail "$back of 1000 packets came back after testpmd was started again"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
start
ctl bridge/del-flows br0
ctl bridge/add-flow br0 'in_port=vm,actions=output:sink'
ctl bridge/add-flow br0 'in_port=10,actions=output:vm'
# The guest was there before us, so the log has nothing to say.
until_true all_return || fail "$back of 1000 packets came back after the switch was started again"
until_true link_is_up || fail "the guest's link did not come up after the switch was started again"
guest_kill

# A guest with packed rings, and the switch under its feet.
guest_start macswap ,packed_vq=1
until_true all_return || fail "$back of 1000 packets came back through packed rings"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
start
ctl bridge/del-flows br0
ctl bridge/add-flow br0 'in_port=vm,actions=output:sink'
ctl bridge/add-flow br0 'in_port=10,actions=output:vm'
until_true all_return || fail "$back of 1000 packets came back through packed rings after the switch was started again"
until_true link_is_up || fail "the guest's link did not come up after the switch was started again"
guest_kill
ctl sluice/drops
stop
remove_namespaces
