#!/bin/bash
# Runs inside a booted Debian: what systemd makes of sluice.service. Each line says what was seen; the last one is `units: done`.
set -eu
fail() {
    echo "units: FAILED: $*"
    systemctl status --no-pager sluice.service || true
    exit 1
}
until_true() { for _ in $(seq 600); do "$@" > /dev/null 2>&1 && return 0; sleep 0.1; done; return 1; }
property() { systemctl show --value --property="$1" sluice.service; }

until_true systemctl is-active sluice.service || fail "not active after the boot"
pid=$(property MainPID)
[ "$(stat -c %U /run/sluice/sluice.ctl)" = sluice ] || fail "its sockets are of $(stat -c %U /run/sluice/sluice.ctl)"
[ "$(awk '$1 == "Uid:" { print $2 }' "/proc/$pid/status")" = "$(id -u sluice)" ] || fail "it is not the user sluice"
[ "$(property WatchdogUSec)" = 30s ] || fail "no watchdog: $(property WatchdogUSec)"
sluice ctl version > /dev/null || fail "it does not answer"
echo "units: sluice.service is active after the boot, as user $(stat -c %U "/proc/$pid")"

sluice ctl bridge/add-flow br0 priority=77,actions=NORMAL
printf '[[bridge]]\nname = "br1"\n' >> /etc/sluice/sluice.toml
systemctl reload sluice.service || fail "no reload"
has_bridge() { sluice ctl ofproto/list | grep -qx br1; }
until_true has_bridge || fail "the reload brings no bridge: $(sluice ctl ofproto/list)"
[ "$(property MainPID)" = "$pid" ] || fail "the reload is another process"
until_true systemctl is-active sluice.service || fail "not active after the reload"
echo "units: systemctl reload brings a bridge, and the process stays"

systemctl restart sluice.service || fail "no restart"
[ "$(property MainPID)" != "$pid" ] || fail "the restart is the same process"
sluice ctl bridge/dump-flows br0 | grep -q priority=77 || fail "the restart loses rules: $(sluice ctl bridge/dump-flows br0)"
echo "units: systemctl restart keeps the rules"

pid=$(property MainPID)
kill -KILL "$pid"
is_another() { [ "$(property MainPID)" != "$pid" ] && [ "$(property MainPID)" != 0 ] && systemctl is-active sluice.service; }
until_true is_another || fail "it is not started again after a crash"
echo "units: after a crash it is started again"

# A wrong configuration does not take the switch that runs away.
echo 'colour = "red"' >> /etc/sluice/sluice.toml
pid=$(property MainPID)
systemctl reload sluice.service || true
has_said() { grep -q 'colour: unknown field' /var/log/sluice/sluice.log; }
until_true has_said || fail "the log does not name what is wrong"
[ "$(property MainPID)" = "$pid" ] && sluice ctl version > /dev/null || fail "a wrong configuration ends the switch"
echo "units: a reload of a wrong configuration is refused in the log, and the switch goes on"

systemctl stop sluice.service || fail "no stop"
[ "$(property Result)" = success ] || fail "its end is a $(property Result)"
[ ! -e /run/sluice/sluice.ctl ] || fail "a socket is left"
echo "units: systemctl stop ends it well"
echo "units: done"
