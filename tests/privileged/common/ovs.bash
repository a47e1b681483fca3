# Sourced by the lanes that put Open vSwitch beside Sluice: a private one, with its own database and sockets in $dir/ovs.
# Nothing of the machine's own is touched. What is started here is a job of the sourcing shell, which ends its jobs.
for program in ovs-ofctl ovs-vswitchd ovsdb-server ovs-vsctl ovsdb-tool; do
    command -v "$program" >/dev/null || { echo "SKIPPED: no $program"; exit 77; }
done

# Starts it in namespace $1, or in ours if that is empty; further arguments are ovs-vswitchd's.
start_ovs() {
    local -a inside=()
    [ -z "$1" ] || inside=(ip netns exec "$1")
    shift
    export OVS_RUNDIR=$dir/ovs OVS_LOGDIR=$dir/ovs OVS_DBDIR=$dir/ovs
    mkdir "$dir/ovs"
    ovsdb-tool create "$dir/ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
    ovsdb-server "$dir/ovs/conf.db" --remote="punix:$dir/ovs/db.sock" --pidfile --unixctl="$dir/ovs/db.ctl" >"$dir/db.log" 2>&1 &
    until [ -S "$dir/ovs/db.sock" ]; do kill -0 $! || { cat "$dir/db.log"; exit 1; }; sleep 0.05; done
    vsctl --no-wait init
    "${inside[@]}" ovs-vswitchd "$@" "unix:$dir/ovs/db.sock" --pidfile --unixctl="$dir/ovs/vs.ctl" >"$dir/vs.log" 2>&1 &
}
vsctl() { ovs-vsctl --timeout=60 "--db=unix:$dir/ovs/db.sock" "$@"; }
