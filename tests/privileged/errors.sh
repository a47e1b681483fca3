#!/usr/bin/env bash
# What is wrong with a message is said with the same error as Open vSwitch 3.1 says it, byte for byte: some 600 raw messages of
# OpenFlow 1.0, 1.3, 1.4 and 1.5, and those that os-ken 3.1.0 ships, sent to both.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
. tests/privileged/common/ovs.bash
"${PYTHON:-python3}" -m pip -q install --no-deps --target "$dir/os-ken" os-ken==3.1.0 >"$dir/pip" 2>&1 || fail "os-ken cannot be had: $(cat "$dir/pip")"

ip netns add "$s"
start_ovs "$s" --enable-dummy=override --disable-system
vsctl add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure protocols=OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15 \
    -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2
printf '%s\n' "p1 null" "p2 null" | configure
sed -i 's/^fail-mode = .*/fail-mode = "secure"/' "$dir/switch.toml"
start
python3 tests/privileged/common/refusals.py "$dir/ovs/br0.mgmt" "$dir/run/br0.mgmt" "$dir/os-ken/os_ken/tests/packet_data" ||
    fail "errors differ"
stop
