#!/usr/bin/env bash
# OpenStack's agent, neutron-openvswitch-agent as Debian has it, sets up Sluice and then Open vSwitch: br-int and br-tun, the flow by
# which it notices a restart, the VLAN of three ports, a tunnel to another host, two security groups by its Open vSwitch firewall. Of the
# message bus and the server behind it there is what tests/long/neutron/server.py answers. Packets pass or not as the groups say, all
# comes back after a restart of the switch, and the flows of both switches are the same.
set -euo pipefail
. "$(dirname "$0")/../privileged/common/switch.bash"
. tests/privileged/common/vswitchd.bash
[ -x /usr/bin/neutron-openvswitch-agent ] || { echo "SKIPPED: no neutron-openvswitch-agent (ci/install-packages packages-long.txt)"; exit 77; }
vms=("$lane-$$-1" "$lane-$$-2" "$lane-$$-3")
remove_all() {
    finish_daemons
    for ns in "${vms[@]}"; do ip netns del "$ns" 2>/dev/null || true; done
}
trap remove_all EXIT
fail() {
    echo "$lane: $kind: $*" >&2
    { tail -20 "$log"; grep -E 'ERROR|CRITICAL|Traceback' -A20 "$dir/agent.log" | tail -40; tail -5 "$dir/agent.log"; } >&2
    exit 1
}
# The agent takes its time to load on a busy machine.
patiently() {
    local _
    for _ in 1 2 3 4; do
        kill -0 "$agent" 2>/dev/null || fail "the agent is gone: $(tail -3 "$dir/agent.out")"
        ! until_true "$@" || return 0
    done
    return 1
}

write_configuration() {
    cat > "$dir/agent.ini" <<INI
[DEFAULT]
host = host1
transport_url = fake:///
state_path = $dir/neutron
log_file = $dir/agent.log
[oslo_concurrency]
lock_path = $dir/neutron/lock
[OVS]
datapath_type = netdev
ovsdb_connection = unix:$dir/db.sock
local_ip = 10.9.0.1
[AGENT]
tunnel_types = vxlan
# Commands as root are commands.
root_helper = env
root_helper_daemon =
[securitygroup]
firewall_driver = openvswitch
INI
}

# A host with an underlay and three virtual machines, which are namespaces here.
make_host() {
    local n
    start_all
    ip netns add "$b"
    ip -n "$s" link add underlay type veth peer name eth0 netns "$b"
    ip -n "$s" link set underlay up
    # The address for tunnels stands on a bridge of the switch.
    ovs-vsctl add-br br-ex -- set bridge br-ex datapath_type=netdev -- add-port br-ex underlay
    address_underlay
    ip -n "$b" addr add 10.9.0.2/24 dev eth0
    ip -n "$b" link set eth0 up
    for n in 1 2 3; do
        ip netns add "${vms[n - 1]}"
        ip -n "$s" link add "tap$n" type veth peer name eth0 address "fa:16:3e:00:00:0$n" netns "${vms[n - 1]}"
        ip -n "$s" link set "tap$n" up
        ip -n "${vms[n - 1]}" addr add "10.0.0.$n/24" dev eth0
        ip -n "${vms[n - 1]}" link set eth0 mtu 1450 up
        # The kernel leaves checksums to devices that a packet socket does not have.
        ip netns exec "${vms[n - 1]}" ethtool -K eth0 tx off > /dev/null
    done
}
address_underlay() {
    ip -n "$s" addr replace 10.9.0.1/24 dev br-ex
    ip -n "$s" link set br-ex up
}
remove_host() {
    stop_all
    rm -f "$dir"/conf.db*
    for ns in "$b" "${vms[@]}"; do ip netns del "$ns"; done
}

start_agent() {
    rm -rf "$dir/neutron" "$dir/told" "$dir/agent.log"
    mkdir -p "$dir/neutron"
    # Sets of strings have an order then, and by it the numbers of conjunctions.
    ip netns exec "$s" env -u OVS_CTL_TIMEOUT PYTHONHASHSEED=0 /usr/bin/python3 tests/long/neutron/agent.py "$dir/told" --config-file "$dir/agent.ini" \
        > "$dir/agent.out" 2>&1 &
    agent=$!
}
stop_agent() {
    kill "$agent"
    wait "$agent" || true
}

# As nova plugs them; the numbers are given, since they are in flows that are compared.
plug() {
    local n
    local -a words=()
    for n in 1 2 3; do
        words+=(-- add-port br-int "tap$n" -- set interface "tap$n" "ofport_request=$((n + 10))" "external_ids:iface-id=6e656e65-7477-4f72-8b00-0000000000b$n"
            "external_ids:attached-mac=\"fa:16:3e:00:00:0$n\"" external_ids:iface-status=active "external_ids:vm-uuid=vm$n")
    done
    ovs-vsctl "${words[@]:1}"
}
told() { grep -qx "$1" "$dir/told"; }
has_bridges() { ovs-vsctl get port patch-int tag && ovs-vsctl get port vxlan-0a090002 tag; }
is_tagged() { [ "$(ovs-vsctl get port "tap$1" tag)" = 1 ]; }
is_controlled() {
    [ "$(ovs-vsctl get bridge "$1" fail_mode)" = secure ] &&
        [ "$(ovs-vsctl --columns=is_connected --bare list controller "$(ovs-vsctl --bare --columns=controller list bridge "$1" | head -1)")" = true ]
}
# The flows of both bridges, without cookies, of which a part is drawn by the agent.
flows() {
    local bridge
    for bridge in br-int br-tun; do
        ovs-ofctl -O OpenFlow13 --no-stats --no-names dump-flows "$bridge" | sed "s/^ *//; s/cookie=0x[0-9a-f]*, *//g; s/^/$bridge /"
    done | sort
}
has_flows() { flows > "$dir/now" && diff "$1" "$dir/now" > "$dir/difference"; }

vm() { local n=$1; shift; ip netns exec "${vms[n - 1]}" "$@"; }
pings() { vm "$1" ping -q -c 1 -W 2 "10.0.0.$2" > /dev/null; }
# Whether a TCP connection from one machine to a port of another carries a line.
connects() {
    local server
    rm -f "$dir/line"
    ip netns exec "${vms[$2 - 1]}" timeout 60 nc -l -p "$3" -N < /dev/null > "$dir/line" 2>/dev/null &
    server=$!
    until_true listens "$2" "$3" || return 1
    # Without a connection nc gives up after three seconds.
    if echo through | vm "$1" timeout 60 nc -N -w 3 "10.0.0.$2" "$3" > /dev/null 2>&1; then
        wait "$server" || return 1
        grep -q through "$dir/line"
    else
        kill "$server"
        wait "$server" || true
        return 1
    fi
}
listens() { vm "$1" ss -ltnH "sport = :$2" | grep -q .; }

packets_pass_as_groups_say() {
    patiently pings 1 2 || fail "members of a group do not ping each other"
    pings 2 1 || fail "members of a group do not ping each other"
    ! pings 1 3 || fail "a closed group answers a ping"
    ! pings 3 1 || fail "a ping from outside of the group is answered"
    connects 3 1 80 || fail "no connection to an open port"
    connects 3 2 8002 || fail "no connection to an open range of ports"
    ! connects 3 1 8004 || fail "a connection to a port behind the open range"
    ! connects 1 3 80 || fail "a connection to a closed group"
}
# What a machine asks all of its network arrives at the other host, with the network's number.
reaches_the_other_host() {
    ip netns exec "$b" tcpdump -i eth0 -c 1 -nn -l 'udp port 4789' > "$dir/wire" 2>&1 &
    local watcher=$!
    until_true grep -q listening "$dir/wire" || fail "tcpdump does not listen"
    until_true asks_all || fail "nothing reached the other host: $(cat "$dir/wire")"
    wait "$watcher"
}
asks_all() { vm 1 ping -q -c 1 -W 1 10.0.0.99 > /dev/null; grep -q 'vni 77' "$dir/wire"; }

pass() { # name, daemon
    kind=$1
    ln -sf "$2" "$dir/bin/ovs-vswitchd"
    make_host
    start_agent
    patiently has_bridges || fail "the agent makes no bridges: $(tail -3 "$dir/agent.out")"
    plug
    for n in 1 2 3; do
        patiently told "up 6e656e65-7477-4f72-8b00-0000000000b$n" || fail "port $n does not come up"
        patiently is_tagged "$n" || fail "port $n has no VLAN: $(ovs-vsctl get port "tap$n" tag)"
    done
    for bridge in br-int br-tun; do is_controlled "$bridge" || fail "$bridge has no controller, or is not secure"; done
    ovs-ofctl -O OpenFlow13 dump-flows br-int table=23 | grep -q 'priority=0 actions=drop' || fail "no canary flow"
    packets_pass_as_groups_say
    reaches_the_other_host
    flows > "$dir/flows.$kind"
    [ "$(grep -c conjunction "$dir/flows.$kind")" -gt 2 ] || fail "no conjunctions of a group's members: $(cat "$dir/flows.$kind")"
    # The agent finds its canary flow gone, and installs all again.
    stop_daemon
    start_daemon
    address_underlay
    patiently has_flows "$dir/flows.$kind" || fail "flows differ after a restart: $(cat "$dir/difference")"
    packets_pass_as_groups_say
    reaches_the_other_host
    ovs-vsctl del-port br-int tap3
    patiently told "down 6e656e65-7477-4f72-8b00-0000000000b3" || fail "a port that is gone is not told"
    patiently no_flows_of_third || fail "flows of a port that is gone: $(flows | grep 'fa:16:3e:00:00:03')"
    stop_agent
    remove_host
    echo "$lane: $kind: $(wc -l < "$dir/flows.$kind") flows, $(grep -c 'br-int table=[78][12]' "$dir/flows.$kind") of them of security groups"
}
no_flows_of_third() { flows > "$dir/now" && ! grep -q 'fa:16:3e:00:00:03' "$dir/now"; }

write_configuration
pass sluice "$(readlink -f "${DAEMON:-$sluice}")"
pass ovs /usr/sbin/ovs-vswitchd
diff "$dir/flows.ovs" "$dir/flows.sluice" || fail "Open vSwitch has other flows (<)"
