# Two daemons side by side, each with a database and a network namespace of its own: Sluice under the name ovs-vswitchd, and Open vSwitch.
# Sourced by scripts that measure one beside the other; `sluice` is the binary. What is begun ends with the script.
daemons=(sluice ovs)
dir=$(mktemp -d)
finish() {
    local pidfile
    for pidfile in "$dir"/*/*.pid; do [ -e "$pidfile" ] && kill "$(cat "$pidfile")" 2>/dev/null || true; done
    for who in "${daemons[@]}"; do ip netns del "beside-$$-$who" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap finish EXIT

# Runs the rest of the words with the environment and in the namespace of one of the two.
at() { OVS_RUNDIR=$dir/$1 OVS_LOGDIR=$dir/$1 OVS_DBDIR=$dir/$1 ip netns exec "beside-$$-$1" "${@:2}"; }

# Starts one of the two, with a userspace bridge br0 without ports.
start() { # sluice|ovs
    local daemon=/usr/sbin/ovs-vswitchd
    [ "$1" != sluice ] || daemon=$sluice
    mkdir "$dir/$1"
    ip netns add "beside-$$-$1"
    ln -s "$daemon" "$dir/$1/ovs-vswitchd"
    ovsdb-tool create "$dir/$1/conf.db" /usr/share/openvswitch/vswitch.ovsschema
    at "$1" ovsdb-server "$dir/$1/conf.db" --remote="punix:$dir/$1/db.sock" --detach --no-chdir --pidfile -vconsole:off
    at "$1" ovs-vsctl --no-wait init
    at "$1" "$dir/$1/ovs-vswitchd" --detach --no-chdir --pidfile --log-file -vconsole:off 2> /dev/null
    at "$1" ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev
}
# Milliseconds of processor time of a daemon so far.
used_ms() { awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%d", ($12 + $13) * 1000 / hz }' "/proc/$(cat "$dir/$1/ovs-vswitchd.pid")/stat"; }
stop() {
    # Open vSwitch removes its pidfile when it ends for whatever reason: its log says which.
    [ -e "$dir/$1/ovs-vswitchd.pid" ] || { echo "${0##*/}: the daemon of $1 has ended before its time:" >&2; tail -5 "$dir/$1/ovs-vswitchd.log" >&2; exit 1; }
    at "$1" ovs-appctl exit --cleanup
    kill "$(cat "$dir/$1/ovsdb-server.pid")"
    ip netns del "beside-$$-$1"
    rm -rf "${dir:?}/$1"
}
