#!/usr/bin/env bash
# Whom the switch becomes and who may use it: a user and a group by name, sockets for a group, types of ports that come later, a
# socket for a virtual machine's user, and a frontend's socket that the switch may not use.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"

ip netns add "$s"
ip -n "$s" link add v0 type veth peer name v1
daemon=$(id -u daemon) games=$(getent group games | cut -d: -f3)
mkdir -m 755 "$dir/vm"
chown daemon "$dir/vm"
cat > "$dir/switch.toml" <<TOML
[switch]
rundir = "$dir/run"
pmd-cores = [0]
user = "daemon"
socket-group = "games"
port-types = ["af_packet"]
[datapath]
pmd-sleep-max = "50us"
[[bridge]]
name = "br0"
[[bridge.port]]
name = "vm1"
ofport = 1
type = "vhost-user"
options = { path = "$dir/vm/vm1.sock", mode = "server", socket-user = "nobody", socket-group = "games" }
[[bridge.port]]
name = "vm2"
ofport = 2
type = "vhost-user"
options = { path = "$dir/root.sock" }
TOML
start
[ "$(awk '$1 == "Uid:" { print $2 }' "/proc/$pid/status")" = "$daemon" ] || fail "not user daemon"
for socket in sluice.ctl br0.mgmt; do
    [ "$(stat -c '%U %G %a' "$dir/run/$socket")" = "daemon games 660" ] || fail "$socket: $(stat -c '%U %G %a' "$dir/run/$socket")"
done
[ "$(stat -c '%U %G %a' "$dir/run")" = "daemon games 2750" ] || fail "rundir: $(stat -c '%U %G %a' "$dir/run")"
[ "$(stat -c '%U %G %a' "$dir/vm/vm1.sock")" = "nobody games 660" ] || fail "vm1: $(stat -c '%U %G %a' "$dir/vm/vm1.sock")"
# A member of the group may use it, another user may not.
setpriv --reuid=nobody --regid="$games" --clear-groups "$sluice" ctl -t "$dir/run/sluice.ctl" version || fail "a member is refused"
setpriv --reuid=nobody --regid=nogroup --clear-groups "$sluice" ctl -t "$dir/run/sluice.ctl" version 2> "$dir/said" &&
    fail "anyone may use the control socket"
# A frontend that comes later, and whose socket is root's alone.
python3 - "$dir/root.sock" << 'PY' &
import os, socket, sys, time
os.umask(0o177)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(1)
time.sleep(600)
PY
until_true test -S "$dir/root.sock" || fail "no frontend"
logged "port vm2: cannot connect to $dir/root.sock: .*the switch runs as user $daemon"
# The type came later; what it needs was kept.
ctl bridge/add-port br0 v0 ofport=3 type=af_packet || fail "no port of a type that was announced"
stop
[ ! -e "$dir/run/sluice.ctl" ] || fail "the control socket is still there"

# Without any of these the switch becomes nobody, and says so, where there is no user of its own.
if ! id sluice > /dev/null 2>&1; then
    printf '[switch]\nrundir = "%s"\npmd-cores = [0]\n[[bridge]]\nname = "br0"\n' "$dir/run2" > "$dir/switch.toml"
    env -u SUDO_UID -u SUDO_GID "$sluice" run "$dir/switch.toml" > "$dir/out" 2> "$dir/log" &
    pid=$!
    logged 'there is no user sluice: running as nobody'
    kill "$pid"
    wait "$pid" || fail "it did not end well"
fi
remove_one() { ip netns del "$s"; }
remove_one
echo "identity: user, groups, sockets, and ports of types that come later"
