# Sourced by the lanes here: a switch of this tree in a namespace of its own, and two hosts behind it. What was started
# is ended, and what was made is removed, when the script ends.
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
lane=$(basename "$0" .sh)
cargo build -q -p sluice ${SLUICE_FEATURES:+--features "$SLUICE_FEATURES"}
sluice=$PWD/target/debug/sluice
dir=$(mktemp -d)
# The switch becomes an ordinary user, who has to come by.
chmod 711 "$dir"
a=$lane-$$-a b=$lane-$$-b s=$lane-$$-s
kind=
pid= server=

finish() {
    local job
    for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
    for ns in "$a" "$b" "$s"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap finish EXIT
fail() {
    [ ! -e "$dir/log" ] || { ctl sluice/drops || true; cat "$dir/log"; } >&2
    echo "$lane:${kind:+ $kind:} $*" >&2
    exit 1
}
ctl() { "$sluice" ctl -T 20 -t "$dir/run/sluice.ctl" "$@"; }

# Waits up to a minute until the command succeeds; whether it did.
until_true() {
    local _
    for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done
    return 1
}
logged() { until_true grep -q "$1" "$dir/log" || fail "the log never said: $1"; }

times_logged() { grep -c "$1" "$dir/log" || true; }
# More often than $2 times.
logged_again() { [ "$(times_logged "$1")" -gt "$2" ]; }

make_namespaces() { for ns in "$a" "$b" "$s"; do ip netns add "$ns"; done; }
remove_namespaces() { for ns in "$a" "$b" "$s"; do ip netns del "$ns"; done; }

# What every configuration here begins with: one PMD, on core 0.
head_of_configuration() {
    cat <<TOML
[switch]
rundir = "$dir/run"
pmd-cores = [0]
[datapath]
pmd-sleep-max = "50us"
TOML
}

# Writes the configuration: a learning switch on core 0. Port lines come on standard input, `NAME TYPE [KEY = VALUE; …]`,
# numbered from 1.
configure() {
    local name type more number=0
    {
        head_of_configuration
        printf '[[bridge]]\nname = "br0"\nfail-mode = "standalone"\n'
    } > "$dir/switch.toml"
    while read -r name type more; do
        number=$((number + 1))
        printf '[[bridge.port]]\nname = "%s"\ntype = "%s"\nofport = %d\n' "$name" "$type" "$number"
        tr ';' '\n' <<< "$more"
    done >> "$dir/switch.toml"
}

# Becomes a command that comes before what else the machine does, for programs that poll a core. In a session of its own:
# kernels that share cores out by session (sched_autogroup) heed niceness only within one.
ahead() {
    # shellcheck disable=SC2016
    exec setsid nice -n -15 bash -c '{ echo -15 > /proc/$$/autogroup; } 2>/dev/null; exec "$@"' ahead "$@"
}

# Watches the first two cores: how long each was not to be had by a program that comes before what else the machine does.
watch_cores() {
    local core watcher _
    for core in 0 1; do
        # What starts it may be away for a minute, too; then another one is started.
        for _ in 1 2 3; do
            ahead python3 tests/privileged/common/stalls.py "$core" >> "$dir/stalls" 2>> "$dir/stalls.err" &
            watcher=$!
            until_true watches "$core" && continue 2
            ps -o pid,stat,wchan:30,psr,etime,time,args -p "$watcher" >> "$dir/stalls.err" || echo "it is gone" >> "$dir/stalls.err"
            kill "$watcher" 2>/dev/null || true
        done
        fail "core $core cannot be watched: $(cat "$dir/stalls.err" "$dir/stalls")"
    done
}
# Whether the watchers of cores 0 to $1 have begun.
watches() { [ "$(grep -c '^0' "$dir/stalls")" -gt "$1" ]; }
stalls() { wc -l < "$dir/stalls"; }

# What a paced run shows: $1 packets a second were sent where $2 were wanted at least, $3 were lost, and there were $4 stalls
# before. Succeeds if it kept its pace and lost nothing. If it kept its pace, lost packets, and both cores were there all the time
# but for $5 ms, that is a failure; else the machine kept it from showing anything.
paced_well() {
    local away
    [ "$3" != 0 ] || [ "$1" -lt "$2" ] || return 0
    away=$(tail -n +$(($4 + 1)) "$dir/stalls" | sort -n | tail -1)
    [ "$1" -lt "$2" ] || [ "${away:-0}" -gt "$5" ] || fail "$3 packets were lost at $1 a second, half of the maximum"
    echo "$lane:${kind:+ $kind:} that shows nothing: $1 of $2 packets a second were sent, and a core was away for ${away:-0} ms"
    return 1
}
# Runs a command up to ten times until it succeeds. If it never does, what it is to show counts as skipped.
ten_times() {
    local _
    for _ in $(seq 10); do "$@" && return; done
    echo "SKIPPED $lane: no loss at half of the maximum: the machine is too busy for a run at that pace"
    echo "lane $lane-paced${kind:+-$kind}: 0 passed, 0 failed, 1 skipped"
}

# Runs the switch in namespace s and waits until it is there.
start() {
    ahead ip netns exec "$s" "$sluice" run "$dir/switch.toml" > "$dir/out" 2> "$dir/log" &
    pid=$!
    until_true ctl version || fail "it did not start"
}

# Ends it; it must end well.
stop() {
    kill -TERM "$pid"
    wait "$pid" || fail "it ended with $?"
    pid=
}

# A server for one iperf3 in namespace $1.
serve() {
    ip netns exec "$1" iperf3 -s -1 > /dev/null &
    server=$!
    until_true sh -c "ip netns exec $1 ss -ltnH 'sport = :5201' | grep -q ." || fail "no iperf3 server"
}
served() { wait "$server" || true; server=; }
