#!/usr/bin/env bash
# The OpenFlow messages that os-ken 3.1.0 ships (recorded from switches and controllers, 1.0 to 1.5): read and written again, Open
# vSwitch prints the same of them; those that it refuses are refused with the same error. Exceptions, each with its reason:
# tests/golden-messages.txt.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v ovs-ofctl >/dev/null || { echo "SKIPPED: no ovs-ofctl"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/v"
"$dir/v/bin/pip" -q install --no-deps --target "$dir/os-ken" os-ken==3.1.0 || { echo "golden: os-ken cannot be had"; exit 1; }
cargo build -q -p sluice-openflow --example reencode
python3 tests/privileged/common/golden.py "$dir/os-ken/os_ken/tests/packet_data" target/debug/examples/reencode tests/golden-messages.txt
