#!/usr/bin/env bash
# What flow-mods cost the switch: CPU time of all its threads but the PMDs, by flow-mod, for a table of N flows (1 million) added
# one by one and as a bundle, what a dump of them costs, and the memory they take.  Usage: benches/flow_mods.sh [N] [SLUICE]
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-1000000} sluice=${2:-target/release/sluice}
dir=$(mktemp -d)
# The switch becomes an ordinary user, who has to come by.
chmod 0711 "$dir"
pid=
finish() { [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"; }
trap finish EXIT
cat > "$dir/s.toml" <<TOML
[switch]
rundir = "$dir/run"
[datapath]
pmd-sleep-max = "10ms"
[[bridge]]
name = "br0"
[[bridge.port]]
name = "p1"
ofport = 1
type = "null"
TOML
awk -v n="$n" 'BEGIN { for (i = 0; i < n; i++) printf "priority=%d,tcp,nw_src=10.%d.%d.%d,tp_dst=%d,actions=output:1\n", 1 + i % 60000, i / 65536 % 256, i / 256 % 256, i % 256, 1 + i % 50000 }' > "$dir/flows"

# Threads of connections that end take their times with them, so the whole process is asked, and the PMDs are taken off.
process_ms() {
    local line pmds=0 task all
    line=$(cat /proc/"$pid"/stat); set -- ${line##*) }; all=$((${12} + ${13}))
    for task in /proc/"$pid"/task/*; do
        line=$(cat "$task/stat" 2>/dev/null) || continue
        case $line in *"(pmd"*) set -- ${line##*) }; pmds=$((pmds + ${12} + ${13})) ;; esac
    done
    echo $(((all - pmds) * 1000 / $(getconf CLK_TCK)))
}
measured() { # name, command
    local before after
    before=$(process_ms)
    "${@:2}" > "$dir/out" 2>/dev/null
    after=$(process_ms)
    awk -v name="$1" -v ms=$((after - before)) -v n="$n" 'BEGIN { printf "%-28s %8d ms  %6.2f us a flow\n", name, ms, ms * 1000 / n }'
}
resident_kib() { awk '/^VmRSS/ { print $2 }' /proc/"$pid"/status; }
# Says what a table takes, which must hold all the flows.
held() { # memory before
    ovs-ofctl dump-aggregate "$bridge" | grep -q "flow_count=$n\b" || { echo "some flows are missing"; exit 1; }
    awk -v before="$1" -v after="$(resident_kib)" -v n="$n" 'BEGIN { printf "%28s %8d KiB %6.0f bytes a flow\n", "", after - before, (after - before) * 1024 / n }'
}
"$sluice" run "$dir/s.toml" > "$dir/log" 2>&1 &
pid=$!
until [ -S "$dir/run/sluice.ctl" ]; do kill -0 "$pid" || { cat "$dir/log"; exit 1; }; sleep 0.05; done
bridge=unix:$dir/run/br0.mgmt
empty=$(resident_kib)
for version in OpenFlow10 OpenFlow14; do
    measured "$version add-flows" ovs-ofctl -O "$version" add-flows "$bridge" "$dir/flows"
    [ "$version" != OpenFlow10 ] || held "$empty"
    measured "$version add-flows again" ovs-ofctl -O "$version" add-flows "$bridge" "$dir/flows"
    measured "$version dump-flows" ovs-ofctl -O "$version" dump-flows "$bridge"
    measured "$version del-flows" ovs-ofctl -O "$version" del-flows "$bridge"
done
measured "OpenFlow14 --bundle add-flows" ovs-ofctl -O OpenFlow14 --bundle add-flows "$bridge" "$dir/flows"
held "$empty"
grep VmHWM /proc/"$pid"/status
