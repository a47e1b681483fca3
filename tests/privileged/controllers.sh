#!/usr/bin/env bash
# Controllers make a network of four hosts: ovs-testcontroller, and a learning switch of os-ken (3.1.0 has no simple_switch_13 of its own) if pip can have it. What
# happens when the controller dies: a secure bridge keeps its flows, a standalone one forwards by itself.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
hosts=("$lane-$$-1" "$lane-$$-2" "$lane-$$-3" "$lane-$$-4")
finish_all() {
    local job ns
    for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
    for ns in "${hosts[@]}" "$s"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap finish_all EXIT

# A bridge with four hosts on taps, and a controller to be.
network() { # fail-mode
    local n
    for ns in "${hosts[@]}" "$s"; do ip netns add "$ns"; done
    ip -n "$s" link set lo up
    for n in 1 2 3 4; do echo "h$n tap"; done | configure
    sed -i "s/^fail-mode = .*/fail-mode = \"$1\"\ncontrollers = [\"tcp:127.0.0.1:6653\"]/" "$dir/switch.toml"
    start
    for n in 1 2 3 4; do
        ip -n "$s" link set "h$n" netns "${hosts[n - 1]}"
        ip -n "${hosts[n - 1]}" addr add "10.9.1.$n/24" dev "h$n"
        ip -n "${hosts[n - 1]}" link set "h$n" up
    done
}
remove_network() {
    stop
    for ns in "${hosts[@]}" "$s"; do ip netns del "$ns"; done
}

pings() { ip netns exec "${hosts[$1 - 1]}" ping -q -c 3 -i 0.2 -W 2 "10.9.1.$2" >"$dir/ping"; }
all_ping() { local n; for n in 2 3 4; do until_true pings 1 "$n" && until_true pings "$n" 1 || fail "$1: hosts 1 and $n: $(cat "$dir/ping")"; done; }
flows() { ctl bridge/dump-flows br0; }

# Starts the controller $1 and waits for the switch.
control() {
    local before
    before=$(times_logged ':6653: connected')
    case $1 in
    ovs) OVS_RUNDIR=$dir ip netns exec "$s" ovs-testcontroller ptcp:6653:127.0.0.1 >"$dir/controller" 2>&1 & ;;
    os-ken) OSKEN_HUB_TYPE=eventlet ip netns exec "$s" "$dir/v/bin/osken-manager" --ofp-tcp-listen-port 6653 tests/privileged/common/learning_switch.py >"$dir/controller" 2>&1 & ;;
    esac
    controller=$!
    until_true logged_again ':6653: connected' "$before" || fail "$1: no connection: $(cat "$dir/controller")"
}
# The controller dies without a word.
lose() { kill -KILL "$controller"; wait "$controller" 2>/dev/null || true; logged 'tcp:127.0.0.1:6653: connection \(closed by peer\|dropped\)'; }

controllers=()
command -v ovs-testcontroller >/dev/null && controllers+=(ovs) || echo "SKIPPED ovs-testcontroller: not installed"
if python3 -m venv "$dir/v" && "$dir/v/bin/pip" -q install os-ken==3.1.0 >"$dir/pip" 2>&1; then controllers+=(os-ken)
else echo "SKIPPED os-ken: pip cannot have it"; fi

for kind in "${controllers[@]}"; do
    network secure
    control "$kind"
    all_ping "with a controller"
    before=$(flows | wc -l)
    lose
    [ "$(flows | wc -l)" -ge "$before" ] || fail "flows went with the controller: $(flows)"
    control "$kind"
    all_ping "after the controller came back"
    remove_network
    echo "$kind: $before flows kept without it"
done

kind=standalone
network standalone
all_ping "before any controller"
if [ ${#controllers[@]} != 0 ]; then
    control "${controllers[0]}"
    all_ping "with a controller"
    lose
    for _ in $(seq 30); do grep -q 'failing open' "$dir/log" && break; sleep 1; done
    logged 'failing open'
    all_ping "without a controller"
    control "${controllers[0]}"
    logged 'No longer in fail-open mode'
    all_ping "with a controller again"
fi
remove_network
