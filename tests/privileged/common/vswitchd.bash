# Sourced behind switch.bash by the lanes that drive the daemon through its database: a private ovsdb-server, and Sluice under the
# name ovs-vswitchd, in network namespace s. DAEMON=/usr/sbin/ovs-vswitchd puts Open vSwitch in its place: the lanes pass with both.
for program in ovs-vsctl ovs-ofctl ovs-appctl ovsdb-server ovsdb-tool ovsdb-client; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program"; exit 77; }
done
export OVS_RUNDIR=$dir OVS_LOGDIR=$dir OVS_DBDIR=$dir OVS_SYSCONFDIR=$dir OVS_CTL_TIMEOUT=60
# Programs find their sockets in OVS_RUNDIR.
chmod 755 "$dir"
mkdir "$dir/bin"
ln -s "$(readlink -f "${DAEMON:-$sluice}")" "$dir/bin/ovs-vswitchd"
log=$dir/ovs-vswitchd.log

inside() { ip netns exec "$s" "$@"; }
finish_daemons() {
    local pidfile
    for pidfile in "$dir"/*.pid; do [ -e "$pidfile" ] && kill "$(cat "$pidfile")" 2>/dev/null; done
    finish
}
trap finish_daemons EXIT
fail() { echo "$lane:${kind:+ $kind:} $*" >&2; tail -50 "$log" >&2; exit 1; }

# The database server alone, with schema $1.
start_database() {
    [ -e "$dir/conf.db" ] || ovsdb-tool create "$dir/conf.db" "${1:-/usr/share/openvswitch/vswitch.ovsschema}"
    inside ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" --detach --no-chdir --pidfile --log-file -vconsole:off
}
stop_database() {
    local server
    server=$(cat "$dir/ovsdb-server.pid")
    kill "${1:--TERM}" "$server"
    until_true gone "$server" || fail "ovsdb-server does not end"
}
# Returns when the first configuration is done.
start_daemon() { inside "$dir/bin/ovs-vswitchd" --detach --no-chdir --pidfile --log-file -vconsole:off "$@" || fail "ovs-vswitchd ended with $?"; }
stop_daemon() {
    daemon=$(cat "$dir/ovs-vswitchd.pid")
    ovs-appctl exit --cleanup || fail "no answer to exit"
    until_true gone "$daemon" || fail "the daemon does not end"
}
gone() { ! kill -0 "$1" 2>/dev/null; }
start_all() {
    ip netns add "$s"
    ip -n "$s" link set lo up
    start_database
    ovs-vsctl --no-wait init
    start_daemon "$@"
}
stop_all() {
    stop_daemon
    stop_database
    ip netns del "$s"
}
