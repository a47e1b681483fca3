#!/usr/bin/env bash
# Ports on kernel devices (tap, AF_PACKET, AF_XDP), each case in a network namespace of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
SLUICE_PRIVILEGED=1 cargo test -q -p sluice-port --test netns
