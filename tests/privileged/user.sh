#!/usr/bin/env bash
# The daemon becomes another user (--user): it is not root any more, its files are that user's, and yet ports that the database
# names later are opened.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/vswitchd.bash
chown nobody:nogroup "$dir"
ip netns add "$s"
ip -n "$s" link set lo up
start_database
ovs-vsctl --no-wait init
chown nobody:nogroup "$dir/db.sock"
start_daemon --user=nobody:nogroup
daemon=$(cat "$dir/ovs-vswitchd.pid")
ids() { awk -v what="$1" '$1 == what ":" { print $2, $3, $4, $5 }' "/proc/$daemon/status"; }
nobody=$(id -u nobody) nogroup=$(getent group nogroup | cut -d: -f3)
[ "$(ids Uid)" = "$nobody $nobody $nobody $nobody" ] || fail "user numbers $(ids Uid)"
[ "$(ids Gid)" = "$nogroup $nogroup $nogroup $nogroup" ] || fail "group numbers $(ids Gid)"
for file in ovs-vswitchd.pid ovs-vswitchd.log "ovs-vswitchd.$daemon.ctl"; do
    [ "$(stat -c %U "$dir/$file")" = nobody ] || fail "$file is of $(stat -c %U "$dir/$file")"
done
ip -n "$s" link add v0 type veth peer name v1
ip -n "$s" link set v0 up
ip -n "$s" link set v1 up
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 v0 -- add-port br0 i0 -- set interface i0 type=internal
for port in v0 i0; do
    [ "$(ovs-vsctl get interface "$port" error)" = '[]' ] || fail "$port: $(ovs-vsctl get interface "$port" error)"
done
inside ip link set br0 up
inside ip addr add 10.8.0.1/24 dev br0
received() { [ "$(ovs-vsctl get interface v0 statistics:tx_packets)" -gt 0 ]; }
inside ping -c 3 -W 1 10.8.0.2 > "$dir/ping" || true
until_true received || fail "v0 sends nothing: $(ovs-vsctl get interface v0 statistics)"
! inside "$dir/bin/ovs-vswitchd" --user=no-such-user --pidfile="$dir/x.pid" --unixctl=none > "$dir/said" 2>&1 || fail "a user that there is not"
grep -q 'user no-such-user not found, aborting' "$dir/said" || fail "$(cat "$dir/said")"
stop_all
echo "user: ports open without root"
