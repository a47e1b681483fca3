#!/usr/bin/env bash
# The switch as root: it leaves root on every thread, keeps exactly what its ports take to be opened again, and joins two
# namespaces over tap devices, with NORMAL and with rules that come and go at run time.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"

# A directory of root's with other files is not given away: the sockets are made before the switch leaves root.
mkdir -m 700 "$dir/root"
echo secret > "$dir/root/file"
printf '[switch]\nrundir = "%s/root"\npmd-cores = [0]\n[[bridge]]\nname = "br0"\n' "$dir" > "$dir/root/switch.toml"
"$sluice" run "$dir/root/switch.toml" > "$dir/out" 2> "$dir/log" &
pid=$!
logged "rundir $dir/root holds other things than sockets and stays root's"
logged 'running, control socket'
[ "$(stat -c '%u %a' "$dir/root")" = "0 700" ] || fail "the directory is now: $(stat -c '%u %a' "$dir/root")"
[ "$(awk '$1 == "Uid:" { print $2 }' "/proc/$pid/status")" != 0 ] || fail "the switch is still root"
"$sluice" ctl -t "$dir/root/sluice.ctl" version || fail "no answer on the control socket"
ovs-ofctl show "unix:$dir/root/br0.mgmt" > "$dir/out" || fail "no answer on the bridge's socket"
kill "$pid"
wait "$pid" || fail "it did not end well"
[ "$(cat "$dir/root/file")" = secret ] || fail "the file has changed"
# One of its own need not be private.
mkdir -m 755 "$dir/run"

make_namespaces
printf '%s\n' "t1 tap" "t2 tap" "vm vhost-user options = { path = \"$dir/run/vm.sock\", mode = \"server\" }" | configure
start

# CAP_NET_ADMIN is bit 12. The thread that talks to virtual machines keeps nothing.
for task in /proc/"$pid"/task/*; do
    # A thread may end meanwhile.
    status=$(cat "$task/status" 2>/dev/null) || continue
    name=$(awk '$1 == "Name:" { print $2 }' <<< "$status")
    grep -q '^Uid:.*\b0\b' <<< "$status" && fail "$name: still root"
    kept=0000000000001000
    [[ $name != vhost* ]] || kept=0000000000000000
    for set in CapEff CapPrm; do
        grep -q "^$set:[[:space:]]*$kept\$" <<< "$status" || fail "$name: $(grep "$set" <<< "$status")"
    done
done
grep -q 'capabilities kept: net_admin$' "$dir/log" || fail "the log does not say what was kept"

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

# Connections are flushed by ovs-ofctl, and rules on fields of tunnels are taken.
ctl bridge/add-flow br0 'priority=10,icmp,actions=ct(commit,zone=7),NORMAL'
ip netns exec "$a" ping -q -c 1 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping through ct"
[ "$(ctl dpctl/ct-get-nconns)" -ge 1 ] || fail "no connection"
ovs-ofctl ct-flush "unix:$dir/run/br0.mgmt" zone=7 'ct_nw_src=10.9.0.1' || fail "ovs-ofctl ct-flush"
[ "$(ctl dpctl/ct-get-nconns)" = 0 ] || fail "the connection was not flushed: $(ctl dpctl/dump-conntrack)"
ip netns exec "$a" ping -q -c 1 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping through ct"
OVS_RUNDIR=$dir/run ovs-ofctl ct-flush br0 zone=8 || fail "ovs-ofctl ct-flush by the bridge's name"
[ "$(ctl dpctl/ct-get-nconns)" -ge 1 ] || fail "another zone's connection was flushed"
OVS_RUNDIR=$dir/run ovs-ofctl ct-flush br0 zone=7 || fail "ovs-ofctl ct-flush by the bridge's name"
[ "$(ctl dpctl/ct-get-nconns)" = 0 ] || fail "the zone was not flushed: $(ctl dpctl/dump-conntrack)"
ctl bridge/del-flows br0 icmp
ovs-ofctl add-flow "unix:$dir/run/br0.mgmt" 'priority=9,tun_id=5,tun_src=192.0.2.1,actions=drop' || fail "no rule on tunnels"
ctl bridge/dump-flows br0 | grep -q 'tun_id=0x5,tun_src=192.0.2.1' || fail "the rule on tunnels is not there"
ctl bridge/del-flows br0 'tun_id=5'

ip -n "$b" link set t2 down
logged 'port t2 is down'
ip -n "$b" link set t2 up
logged 'port t2 is up'
ip netns exec "$a" ping -q -c 2 -i 0.2 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping after the link came back"

# A tap that is deleted is made anew, with what was kept, where the switch is.
ip -n "$b" link del t2
until_true logged_again 'port t2 is up' 1 || fail "the tap was not made anew"
ip -n "$s" link set t2 netns "$b"
ip -n "$b" addr add 10.9.0.2/24 dev t2; ip -n "$b" link set t2 up
ip netns exec "$a" ping -q -c 2 -i 0.2 -W 5 10.9.0.2 > "$dir/ping" || fail "no ping by the new tap: $(cat "$dir/ping")"

# What was kept is enough for another tap; ports come and go while the hosts talk, and not a ping is lost.
ip netns exec "$a" ping -q -c 100 -i 0.02 -W 5 10.9.0.2 > "$dir/ping" &
pings=$!
for n in 4 5 6 7; do
    ctl bridge/add-port br0 "t$n" "ofport=$n" type=tap || fail "no tap t$n"
    ctl bridge/add-port br0 "n$n" "ofport=1$n" type=null || fail "no port n$n"
    ctl bridge/del-port br0 "t$n" || fail "tap t$n does not go"
done
wait "$pings" || fail "pings were lost while ports came and went"
grep -q ' 0% packet loss' "$dir/ping" || fail "pings were lost while ports came and went: $(cat "$dir/ping")"

# What the new user may read can be read; what is root's cannot, and is told so.
(umask 077; echo 'priority=5,actions=NORMAL' > "$dir/rules")
ctl bridge/replace-flows br0 "$dir/rules" 2> "$dir/refused" && fail "a file private to root was read"
grep -q "rules: cannot be read: Permission denied (os error 13); the switch runs as user 65534: let that user read it" "$dir/refused" ||
    fail "the refusal does not help: $(cat "$dir/refused")"
chmod 644 "$dir/rules"
ctl bridge/replace-flows br0 "$dir/rules" || fail "rules were not read"
ctl bridge/dump-flows br0 | grep -q 'priority=5,actions=NORMAL' || fail "the rules are not there"
chmod 644 "$dir/switch.toml"
ctl sluice/reload | grep -q 'nothing changed' || fail "the configuration was not read again"

# A type that came later than its privileges is refused with what to do.
ip -n "$s" link add w0 type veth peer name w1
ctl bridge/add-port br0 w0 ofport=50 type=af_packet > "$dir/refused" 2>&1 && fail "packet sockets without the capability"
grep -q 'switch.port-types' "$dir/refused" || fail "the refusal does not help: $(cat "$dir/refused")"

stop
[ ! -e "$dir/run/sluice.ctl" ] || fail "the control socket is still there"
[ ! -e "$dir/run/vm.sock" ] || fail "the socket for a virtual machine is still there"
echo "left root, joined two namespaces, cleaned up"
