#!/usr/bin/env bash
# The Ryu switch certification suite of os-ken 3.1.0, by its own tester, against Sluice and against Open vSwitch (userspace): every
# test that Open vSwitch passes must pass. The tester sends and receives through an Open vSwitch bridge, joined to the switch
# under test by three veth pairs. A sample of the tests, or all of them with SAMPLE=0 (SUITES=of13,of14: of those), SHARES (one) at
# a time, since a tester mostly waits. KEEP=DIRECTORY keeps what came of each test, from time to time: a run that was stopped is
# taken up again from there. TURNS=N lets the two switches take turns, N tests each, so that one tester runs at a time and what was
# run of both is the same, however far it came. TABLE=FILE writes the score.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/ovs.bash
# Testers are children of shells that may have been ended before them.
trap 'ip netns pids "$s" 2>/dev/null | xargs -r kill 2>/dev/null || true; finish' EXIT
sample=${SAMPLE-24} shares=${SHARES-1} keep=${KEEP:-$dir} turns=${TURNS-0}

python3 -m venv "$dir/v"
"$dir/v/bin/pip" -q install os-ken==3.1.0 >"$dir/pip" 2>&1 || fail "os-ken cannot be installed: $(cat "$dir/pip")"

ip netns add "$s"
ip -n "$s" link set lo up
start_ovs "$s"

# Three pairs $1-1 to $1-3; the tester bridge $1-tester has one end of each. Its controller listens at port $2.
pairs() {
    local n end
    vsctl add-br "$1-tester" -- set bridge "$1-tester" datapath-type=netdev fail-mode=secure other-config:datapath-id=0000000000000002 \
        protocols=OpenFlow10,OpenFlow13,OpenFlow14
    for n in 1 2 3; do
        ip -n "$s" link add "$1-$n" type veth peer name "$1-t$n"
        # Only what is sent through a bridge may travel there: no packets of the kernel's own.
        for end in "$1-$n" "$1-t$n"; do
            ip -n "$s" link set "$end" addrgenmode none
            ip -n "$s" link set "$end" multicast off up
        done
        vsctl add-port "$1-tester" "$1-t$n" -- set interface "$1-t$n" "ofport_request=$n"
    done
    vsctl set-controller "$1-tester" "tcp:127.0.0.1:$2" -- set controller "$1-tester" max_backoff=1000
}

# A controller's port for share $2 of switch $1.
port() { echo $(($1 + $2)); }
theirs=6600 ours=6700

head_of_configuration > "$dir/switch.toml"
for share in $(seq "$shares"); do
    pairs "theirs$share" "$(port $theirs "$share")"
    vsctl add-br "theirs$share" -- set bridge "theirs$share" datapath-type=netdev fail-mode=secure \
        other-config:datapath-id=0000000000000001 protocols=OpenFlow10,OpenFlow13,OpenFlow14
    for n in 1 2 3; do vsctl add-port "theirs$share" "theirs$share-$n" -- set interface "theirs$share-$n" "ofport_request=$n"; done
    vsctl set-controller "theirs$share" "tcp:127.0.0.1:$(port $theirs "$share")" -- set controller "theirs$share" max_backoff=1000

    pairs "ours$share" "$(port $ours "$share")"
    cat >> "$dir/switch.toml" <<TOML
[[bridge]]
name = "br$share"
fail-mode = "secure"
datapath-id = "0000000000000001"
controllers = ["tcp:127.0.0.1:$(port $ours "$share")"]
TOML
    for n in 1 2 3; do
        printf '[[bridge.port]]\nname = "ours%s-%s"\ntype = "af_packet"\nofport = %s\n' "$share" "$n" "$n" >> "$dir/switch.toml"
    done
done
start

# Runs a share of the suite against one of them, to its end or for as many tests as are to be run at a time: then it ends with 3.
certify() { # name, controller's first port, file, share
    ip netns exec "$s" python3 tests/privileged/common/certification.py run "$keep/$3$4.json" --python "$dir/v/bin/python" \
        --switch "$1" --port "$(port "$2" "$4")" --sample "$sample" --share "$4/$shares" ${SUITES:+--suites "$SUITES"} \
        --at-most "$turns" >"$dir/$3$4.certified" 2>&1
}
# Runs a share against both: at once, or by turns.
certify_both() { # share
    local theirs_end=3 ours_end=3 tester
    while [ $theirs_end = 3 ] || [ $ours_end = 3 ]; do
        theirs_end=0 ours_end=0
        certify "Open vSwitch $(ovs-vswitchd --version | awk 'NR == 1 { print $NF }')" $theirs theirs "$1" & tester=$!
        [ "$turns" = 0 ] || { wait $tester || theirs_end=$?; }
        certify Sluice $ours ours "$1" || ours_end=$?
        [ "$turns" != 0 ] || wait $tester || theirs_end=$?
    done
    [ $theirs_end = 0 ] && [ $ours_end = 0 ]
}
shared=()
for share in $(seq "$shares"); do certify_both "$share" & shared+=($!); done
for share in "${shared[@]}"; do wait "$share" || fail "a tester ended: $(cat "$dir"/*.certified)"; done
cat "$dir"/theirs*.certified "$dir"/ours*.certified
for who in theirs ours; do
    python3 tests/privileged/common/certification.py merge "$dir/$who.json" "$keep/$who"[0-9]*.json
done
python3 tests/privileged/common/certification.py compare "$dir/theirs.json" "$dir/ours.json" ${TABLE:+--table "$TABLE"} ||
    fail "a test that Open vSwitch passes does not pass"
stop
