#!/usr/bin/env bash
# What the database may do to the daemon: ports that cannot be, schemas of other versions, a server that is killed, restarted and
# converted, a second daemon, a thousand rows at once, bridges that come and go a hundred times. Two hosts ping each other meanwhile,
# and not a packet is lost. What ovs-vsctl says and what then stands in the database is compared with Open vSwitch's.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/vswitchd.bash

# Each command with its answer and its exit code; then the columns that tell what became of it.
transcript() {
    local command
    while read -r command; do
        echo "\$ $command"
        eval "$command" 2>&1 && echo "exit 0" || echo "exit $?"
    done <<'COMMANDS'
ovs-vsctl add-br br1 -- set bridge br1 datapath_type=netdev
ovs-vsctl add-port br1 none0
ovs-vsctl get interface none0 ofport error
ovs-vsctl add-port br1 typo -- set interface typo type=intrenal
ovs-vsctl get interface typo ofport
ovs-vsctl add-port br1 lonely -- set interface lonely type=patch
ovs-vsctl get interface lonely ofport error
ovs-vsctl add-port br1 selfish -- set interface selfish type=patch options:peer=selfish
ovs-vsctl get interface selfish ofport
ovs-vsctl add-port br1 early -- set interface early type=patch options:peer=late
ovs-vsctl get interface early ofport
ovs-vsctl add-port br1 five -- set interface five type=internal ofport_request=5
until_true ovs-vsctl get interface five status:driver_name
ovs-vsctl get interface five status
ovs-vsctl add-port br1 six -- set interface six type=internal ofport_request=5
ovs-vsctl get interface five ofport
ovs-vsctl get interface six ofport
ovs-vsctl add-port br1 far -- set interface far type=internal ofport_request=70000
ovs-vsctl add-port br1 averyveryverylongname -- set interface averyveryverylongname type=internal
ovs-vsctl get interface averyveryverylongname ofport error
until_true ip -n "$s" link show averyveryverylo > "$dir/link"
ovs-vsctl --if-exists del-port none0
ovs-vsctl del-br br1
ovs-vsctl list-br
COMMANDS
}
kind='as Open vSwitch'
# With each daemon in turn.
with() { # daemon, file
    ln -sf "$1" "$dir/bin/ovs-vswitchd"
    start_all
    transcript > "$2"
    stop_all
    rm -f "$dir/conf.db" "$log"
}
with /usr/sbin/ovs-vswitchd "$dir/theirs"
with "$(readlink -f "${DAEMON:-$sluice}")" "$dir/ours"
diff "$dir/theirs" "$dir/ours" || fail "Open vSwitch answers otherwise (<)"
echo "database: $(grep -c '^\$' "$dir/ours") answers are Open vSwitch's"

# An older schema lacks tables and columns, a newer one has more.
schema() { # file, Python that changes `schema`
    python3 -c "
import json, sys
schema = json.load(open('/usr/share/openvswitch/vswitch.ovsschema'))
tables = schema['tables']
$2
schema.pop('cksum', None)
json.dump(schema, open('$1', 'w'))"
}
schema "$dir/older" "
schema['version'] = '7.0.0'
for table, column in [('Open_vSwitch', 'dpdk_version'), ('Open_vSwitch', 'datapaths'), ('Interface', 'error'), ('Port', 'protected'), ('Port', 'cvlans'), ('Bridge', 'datapath_version')]:
    tables[table]['columns'].pop(column)
for table in ['Datapath', 'CT_Zone', 'CT_Timeout_Policy']:
    tables.pop(table)"
schema "$dir/newer" "
schema['version'] = '9.0.0'
tables['Bridge']['columns']['colour'] = {'type': 'string'}
tables['Flow_Table']['columns']['prefixes']['type']['max'] = 4
tables['News'] = {'columns': {'text': {'type': 'string'}}, 'isRoot': True}"
for kind in older newer; do
    ip netns add "$s"
    ip -n "$s" link set lo up
    start_database "$dir/$kind"
    ovs-vsctl --no-wait init
    start_daemon
    ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 i0 -- set interface i0 type=internal
    ovs-ofctl dump-ports-desc br0 | grep -q '(i0)' || fail "no port with a schema that is $kind"
    stop_all
    rm "$dir/conf.db"
done

# Two hosts ping each other through br0 until the last step is done.
kind='two hosts'
start_all
ip netns add "$a"
ip netns add "$b"
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev
for end in "1 $a" "2 $b"; do
    read -r n ns <<< "$end"
    ip -n "$s" link add "p$n" type veth peer name eth0 netns "$ns"
    ip -n "$s" link set "p$n" up
    ip -n "$ns" addr add "10.9.0.$n/24" dev eth0
    ip -n "$ns" link set eth0 up
    ovs-vsctl add-port br0 "p$n"
done
pings() { ip netns exec "$a" ping -q -c 1 -W 1 10.9.0.2; }
until_true pings || fail "the hosts do not talk"
ip netns exec "$a" ping -i 0.05 -W 10 10.9.0.2 > "$dir/ping" &
pinging=$!
# Every packet up to the last that came back; those that are under way when ping ends are not counted.
no_loss() {
    kill -INT "$pinging"
    wait "$pinging" || true
    awk -F'icmp_seq=' 'NF > 1 { n = $2 + 0; seen[n]; if (n > last) last = n }
        END { for (i = 1; i <= last; i++) if (!(i in seen)) { print "lost: " i; lost = 1 }; exit lost || last < 100 }' "$dir/ping" ||
        fail "packets were lost: $(tail -3 "$dir/ping")"
}
daemon=$(cat "$dir/ovs-vswitchd.pid")

kind='server killed'
stop_database -KILL
sleep 2
# Open vSwitch answers no OpenFlow without its database.
[ -n "${DAEMON:-}" ] || ovs-ofctl dump-flows br0 > "$dir/flows" || fail "no OpenFlow without the database"
rm -f "$dir/db.sock" "$dir/ovsdb-server.pid"
start_database
ovs-vsctl add-port br0 back -- set interface back type=internal
[ "$(ovs-vsctl get interface back ofport)" -gt 0 ] || fail "no port after the server came back"

kind='server converted'
ovsdb-client convert "unix:$dir/db.sock" "$dir/newer" || fail "the server does not convert"
ovs-vsctl add-port br0 converted -- set interface converted type=internal
[ "$(ovs-vsctl get interface converted ofport)" -gt 0 ] || fail "no port after the conversion"

kind='a second daemon'
! inside "$dir/bin/ovs-vswitchd" --no-chdir --pidfile --log-file="$dir/second.log" -vconsole:off > "$dir/said" 2>&1 || fail "two daemons with one pidfile"
grep -q 'already running as pid' "$dir/said" "$dir/second.log" || fail "the second does not say why it ends: $(cat "$dir/said" "$dir/second.log")"
inside "$dir/bin/ovs-vswitchd" --no-chdir --pidfile="$dir/second.pid" --unixctl="$dir/second.ctl" --log-file="$dir/second.log" -vconsole:off > "$dir/said" 2>&1 &
second=$!
until_true grep -q 'another ovs-vswitchd process is running, disabling this process' "$dir/second.log" || fail "the second does not wait: $(cat "$dir/second.log")"
ovs-vsctl add-port br0 first -- set interface first type=internal
kill "$second"
wait "$second" || true

kind='a thousand rows'
rows=()
for bridge in $(seq 10); do
    rows+=(-- add-br "many$bridge" -- set bridge "many$bridge" datapath_type=netdev)
    for port in $(seq 98); do
        rows+=(-- add-port "many$bridge" "m$bridge-$port" -- set interface "m$bridge-$port" type=patch "options:peer=w$bridge-$port")
    done
done
ovs-vsctl "${rows[@]:1}"
[ "$(ovs-ofctl dump-ports-desc many10 -O OpenFlow14 | grep -c '(m10-')" = 98 ] || fail "not all ports are there"
rows=()
for bridge in $(seq 10); do rows+=(-- del-br "many$bridge"); done
ovs-vsctl "${rows[@]:1}"
[ -z "$(find "$dir" -name 'many*')" ] || fail "sockets are left: $(find "$dir" -name 'many*')"

kind='bridges that come and go'
descriptors() { find "/proc/$daemon/fd" | wc -l; }
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$daemon/status"; }
threads() { find "/proc/$daemon/task" -maxdepth 1 | wc -l; }
come_and_go() {
    local _
    for _ in $(seq "$1"); do
        ovs-vsctl add-br come -- set bridge come datapath_type=netdev -- add-port come go -- set interface go type=internal
        ovs-vsctl del-br come
    done
}
come_and_go 20
held() { echo "$(descriptors) descriptors, $(threads) threads"; }
# A thread that has been asked to end may take half a second.
sleep 1
before=$(held)
memory=$(resident)
come_and_go 100
is_as_before() { [ "$before" = "$(held)" ]; }
until_true is_as_before || fail "$before became $(held)"
# A leak of a hundredth of a bridge's memory each time would be seen; an allocator's moods are not.
[ $(($(resident) - memory)) -lt 4096 ] || fail "a hundred bridges left $(($(resident) - memory)) KiB"

kind='two hosts'
no_loss
echo "database: $(grep -o '^[0-9]* packets transmitted.*' "$dir/ping")"
[ "$daemon" = "$(cat "$dir/ovs-vswitchd.pid")" ] && kill -0 "$daemon" || fail "the daemon was restarted"
kind=
stop_all
ip netns del "$a"
ip netns del "$b"
