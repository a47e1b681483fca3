#!/usr/bin/env bash
# The Ryu switch certification suite of os-ken 3.1.0, by its own tester, against Sluice and against Open vSwitch (userspace): every
# test that Open vSwitch passes must pass. The tester sends and receives through an Open vSwitch bridge, joined to the switch
# under test by three veth pairs. A sample of the tests, or all of them with SAMPLE=0 (an hour or two); TABLE=FILE writes the
# score, KEEP=DIRECTORY keeps what came of each test.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/ovs.bash
sample=${SAMPLE-24}

python3 -m venv "$dir/v"
"$dir/v/bin/pip" -q install os-ken==3.1.0 >"$dir/pip" 2>&1 || fail "os-ken cannot be installed: $(cat "$dir/pip")"

ip netns add "$s"
ip -n "$s" link set lo up
start_ovs "$s"

# Three pairs $1-1 to $1-3, of which tester bridge $1-tester, whose controller listens at port $2, has one end.
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

pairs theirs 6653
vsctl add-br theirs -- set bridge theirs datapath-type=netdev fail-mode=secure other-config:datapath-id=0000000000000001 \
    protocols=OpenFlow10,OpenFlow13,OpenFlow14
for n in 1 2 3; do vsctl add-port theirs "theirs-$n" -- set interface "theirs-$n" "ofport_request=$n"; done
vsctl set-controller theirs tcp:127.0.0.1:6653 -- set controller theirs max_backoff=1000

pairs ours 6654
for n in 1 2 3; do echo "ours-$n af_packet"; done | configure
sed -i 's/^fail-mode = .*/fail-mode = "secure"\ndatapath-id = "0000000000000001"\ncontrollers = ["tcp:127.0.0.1:6654"]/' "$dir/switch.toml"
start

# Runs the suite against one of them.
certify() { # name, controller's port, file
    ip netns exec "$s" python3 tests/privileged/common/certification.py run "$dir/$3.json" --python "$dir/v/bin/python" \
        --switch "$1" --port "$2" --sample "$sample" ${SUITES:+--suites "$SUITES"} >"$dir/$3.certified" 2>&1
}
certify "Open vSwitch $(ovs-vswitchd --version | awk 'NR == 1 { print $NF }')" 6653 theirs &
theirs=$!
certify Sluice 6654 ours || fail "the tester ended: $(cat "$dir/ours.certified")"
wait "$theirs" || fail "the tester of Open vSwitch ended: $(cat "$dir/theirs.certified")"
cat "$dir/theirs.certified" "$dir/ours.certified"
[ -z "${KEEP:-}" ] || cp "$dir/theirs.json" "$dir/ours.json" "$KEEP"
python3 tests/privileged/common/certification.py compare "$dir/theirs.json" "$dir/ours.json" ${TABLE:+--table "$TABLE"} ||
    fail "a test that Open vSwitch passes does not pass"
stop
