#!/usr/bin/env bash
# Faucet, as PyPI has it, drives a bridge of the daemon: two VLANs of two hosts each, routing between them, and an ACL. Hosts of one
# VLAN talk, those of two talk through the router, and what the ACL forbids does not pass.
set -euo pipefail
. "$(dirname "$0")/../privileged/common/switch.bash"
. tests/privileged/common/vswitchd.bash
hosts=("$lane-$$-1" "$lane-$$-2" "$lane-$$-3" "$lane-$$-4")
trap 'finish_daemons; for ns in "${hosts[@]}"; do ip netns del "$ns" 2>/dev/null || true; done' EXIT
faucet=${FAUCET:-$dir/v}
[ -n "${FAUCET:-}" ] || { python3 -m venv "$faucet" && "$faucet/bin/pip" -q install faucet==1.10.12 >"$dir/pip" 2>&1; } ||
    { echo "SKIPPED: pip cannot have faucet: $(tail -1 "$dir/pip")"; exit 77; }
start_all

# Hosts 1 and 2 are in VLAN 100, 3 and 4 in VLAN 200. Host 2 may not reach host 4.
vlan() { echo $(((($1 + 1) / 2) * 100)); }
ovs-vsctl add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure protocols=OpenFlow13 other-config:datapath-id=0000000000000001
for n in 1 2 3 4; do
    ns=${hosts[n - 1]}
    ip netns add "$ns"
    ip -n "$s" link add "p$n" type veth peer name eth0 netns "$ns"
    ip -n "$s" link set "p$n" up
    ip -n "$ns" addr add "10.0.$(vlan "$n").$n/24" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n "$ns" route add default via "10.0.$(vlan "$n").254"
    ovs-vsctl add-port br0 "p$n" -- set interface "p$n" "ofport_request=$n"
done
cat > "$dir/faucet.yaml" <<'YAML'
vlans:
  office:
    vid: 100
    faucet_mac: "0e:00:00:00:00:01"
    faucet_vips: ["10.0.100.254/24"]
  lab:
    vid: 200
    faucet_mac: "0e:00:00:00:00:02"
    faucet_vips: ["10.0.200.254/24"]
routers:
  between:
    vlans: [office, lab]
acls:
  not-to-host-4:
    - rule: {dl_type: 0x800, ipv4_dst: 10.0.200.4/32, actions: {allow: 0}}
    - rule: {actions: {allow: 1}}
dps:
  sluice:
    dp_id: 0x1
    hardware: "Open vSwitch"
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office, acl_in: not-to-host-4}
      3: {native_vlan: lab}
      4: {native_vlan: lab}
YAML
FAUCET_CONFIG=$dir/faucet.yaml FAUCET_LOG=$dir/faucet.log FAUCET_EXCEPTION_LOG=$dir/exception.log FAUCET_PROMETHEUS_ADDR=127.0.0.1 \
    PATH=$faucet/bin:$PATH ip netns exec "$s" "$faucet/bin/faucet" --ryu-ofp-tcp-listen-port 6653 --ryu-ofp-listen-host 127.0.0.1 > "$dir/controller" 2>&1 &
ovs-vsctl set-controller br0 tcp:127.0.0.1:6653
connected() { [ "$(ovs-vsctl get controller br0 is_connected)" = true ]; }
until_true connected || fail "no connection: $(cat "$dir/controller")"

talks() { ip netns exec "${hosts[$1 - 1]}" ping -q -c 1 -W 2 "10.0.$(vlan "$2").$2" > /dev/null; }
talk() { until_true talks "$1" "$2" || fail "hosts $1 and $2 do not talk: $(tail "$dir/faucet.log")"; }
talk 1 2
talk 3 4
talk 1 3
talk 4 1
talk 2 3
! talks 2 4 || fail "the ACL lets host 2 reach host 4"
talk 1 4
[ ! -s "$dir/exception.log" ] || fail "faucet: $(cat "$dir/exception.log")"
stop_all
echo "faucet: two VLANs, routing between them, an ACL; $(grep -c . "$dir/faucet.log") lines of its log"
