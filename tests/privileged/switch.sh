#!/usr/bin/env bash
# The switch as root: it leaves root on every thread, keeps what its ports need to be opened again, and joins two
# namespaces over tap devices, with NORMAL and with rules that come and go at run time.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build -q -p sluice
sluice=$PWD/target/debug/sluice
dir=$(mktemp -d)
a=sw-$$-a b=sw-$$-b s=sw-$$-s
pid=
finish() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    for ns in "$a" "$b" "$s"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap finish EXIT
fail() { echo "switch: $*" >&2; cat "$dir/log" >&2; exit 1; }
ctl() { "$sluice" ctl -T 20 -t "$dir/run/sluice.ctl" "$@"; }

for ns in "$a" "$b" "$s"; do ip netns add "$ns"; done
cat > "$dir/switch.toml" <<TOML
[switch]
rundir = "$dir/run"
pmd-cores = [0]
[datapath]
pmd-sleep-max = "100us"
[[bridge]]
name = "br0"
fail-mode = "standalone"
[[bridge.port]]
name = "t1"
ofport = 1
type = "tap"
[[bridge.port]]
name = "t2"
ofport = 2
type = "tap"
TOML
ip netns exec "$s" "$sluice" run "$dir/switch.toml" > "$dir/out" 2> "$dir/log" &
pid=$!
for _ in $(seq 200); do [ -S "$dir/run/sluice.ctl" ] && break; sleep 0.1; done
[ -S "$dir/run/sluice.ctl" ] || fail "it did not start"

# CAP_DAC_READ_SEARCH is bit 2, CAP_NET_ADMIN bit 12.
for task in /proc/"$pid"/task/*/status; do
    grep -q '^Uid:.*\b0\b' "$task" && fail "$task: still root"
    grep -q '^CapEff:[[:space:]]*0000000000001004$' "$task" || fail "$task: $(grep CapEff "$task")"
done
grep -q 'capabilities kept: dac_read_search, net_admin' "$dir/log" || fail "the log does not say what was kept"

ip -n "$s" link set t1 netns "$a"
ip -n "$s" link set t2 netns "$b"
ip -n "$a" addr add 10.9.0.1/24 dev t1; ip -n "$a" link set t1 up
ip -n "$b" addr add 10.9.0.2/24 dev t2; ip -n "$b" link set t2 up
ip netns exec "$a" ping -q -c 5 -i 0.2 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping over NORMAL: $(cat "$dir/ping")"
ctl fdb/show br0 | grep -q "$(ip -n "$a" -br link show t1 | awk '{print $3}')" || fail "the station was not learned"
# The counters add up: what was received was sent, or dropped by name.
ctl sluice/drops

ctl bridge/add-flow br0 'priority=10,icmp,actions=drop'
ip netns exec "$a" ping -q -c 2 -i 0.2 -W 1 10.9.0.2 > "$dir/ping" && fail "ping passes a drop rule"
ctl bridge/del-flows br0 icmp
ip netns exec "$a" ping -q -c 2 -i 0.2 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping after the rule has gone"

ip -n "$b" link set t2 down
for _ in $(seq 100); do grep -q 'port t2 is down' "$dir/log" && break; sleep 0.1; done
grep -q 'port t2 is down' "$dir/log" || fail "the link that went down was not noticed"
ip -n "$b" link set t2 up
for _ in $(seq 100); do grep -q 'port t2 is up' "$dir/log" && break; sleep 0.1; done
ip netns exec "$a" ping -q -c 2 -i 0.2 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping after the link came back"

# What was kept is enough for another tap, and rules are read past file modes.
ctl bridge/add-port br0 t3 ofport=3 type=tap || fail "no third tap"
(umask 077; echo 'priority=5,actions=NORMAL' > "$dir/rules")
ctl bridge/replace-flows br0 "$dir/rules" || fail "rules of a private file were not read"
ctl bridge/dump-flows br0 | grep -q 'priority=5,actions=NORMAL' || fail "the rules are not there"

kill -TERM "$pid"
wait "$pid" || fail "it ended with $?"
pid=
[ ! -e "$dir/run/sluice.ctl" ] || fail "the control socket is still there"
echo "left root, joined two namespaces, cleaned up"
