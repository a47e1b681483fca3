#!/usr/bin/env bash
# The Debian packages on a bare Debian 12, in a directory: installed beside Open vSwitch, chosen, restarted by ovs-ctl without the
# kernel's module, upgraded, with DPDK and without again, removed while they run, and purged without a trace. Flows survive each
# change of the daemon. Also: the service's configuration runs and its log is rotated, and lintian finds no error.
# Needs root, mmdebstrap and debhelper; the root is made from this machine's own sources of Debian's packages, once (ROOT_TAR keeps it).
set -euo pipefail
cd "$(dirname "$0")/../.."
lane=packages
for program in mmdebstrap dpkg-buildpackage dh systemd-analyze; do
    command -v "$program" > /dev/null || { echo "SKIPPED: no $program (ci/install-packages)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "SKIPPED: not root"; exit 77; }
dir=$(mktemp -d)
chmod 755 "$dir"
root=$dir/root s=$lane-$$
fail() { echo "$lane: $*" >&2; tail -20 "$root"/var/log/openvswitch/*.log >&2 2> /dev/null || true; exit 1; }
finish() {
    local pidfile
    [ -z "${service:-}" ] || kill "$service" 2> /dev/null || true
    for pidfile in "$root"/run/openvswitch/*.pid; do [ -e "$pidfile" ] && kill "$(cat "$pidfile")" 2> /dev/null; done
    for ns in "$s" "$s-port1" "$s-port2"; do ip netns del "$ns" 2> /dev/null || true; done
    umount -l "$root/proc" "$root/dev" "$root/sys" 2> /dev/null || true
    rm -rf --one-file-system "$dir"
}
trap finish EXIT
until_true() { local _; for _ in $(seq 600); do "$@" > /dev/null 2>&1 && return 0; sleep 0.1; done; return 1; }

# The packages, and the same as a later version.
ci/build-deb
first=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
VERSION=$first+next ci/build-deb
architecture=$(dpkg --print-architecture)
with_dpdk=no
[ "${DPDK:-yes}" != yes ] || with_dpdk=yes
if command -v lintian > /dev/null; then
    lintian --fail-on error target/deb/sluice*_"${first}"_"$architecture".deb > "$dir/lintian" 2>&1 || fail "$(cat "$dir/lintian")"
    echo "$lane: lintian: $(grep -c '^W:' "$dir/lintian" || true) warnings, no error"
else
    echo "SKIPPED packages: lintian is not installed (ci/install-packages packages-long.txt)"
fi

tar=${ROOT_TAR:-$dir/root.tar}
if [ ! -e "$tar" ]; then
    apt-config dump | grep '^Acquire' > "$dir/apt.conf"
    # Debian's own sources alone, of those that this machine uses.
    mapfile -t sources < <(grep -l debian-archive-keyring /etc/apt/sources.list.d/* 2> /dev/null || echo /etc/apt/sources.list)
    # What the packages depend on; dpkg alone fetches nothing.
    wanted=openvswitch-switch,iproute2,iputils-ping,systemd,logrotate,kmod,procps
    # A driver for a port without hardware; the packages recommend those of cards.
    [ "$with_dpdk" = no ] || wanted+=,$(apt-cache search --names-only "^librte-net-null[0-9]+$" | cut -d" " -f1)
    for package in target/deb/sluice*_"${first}"_"$architecture".deb; do
        wanted+=,$(dpkg-deb -f "$package" Depends | tr ',' '\n' | sed 's/[(|].*//; s/ //g' | grep -vx sluice | paste -sd,)
    done
    mmdebstrap --quiet --variant=minbase --aptopt="$dir/apt.conf" --aptopt='Acquire::Languages "none"' \
        --include="$wanted" bookworm "$tar" "${sources[@]}"
fi
mkdir "$root"
tar -C "$root" -xf "$tar"
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"
mount -t sysfs sysfs "$root/sys"
inside() { ip netns exec "$s" chroot "$root" "$@"; }
install() { cp target/deb/"$1" "$root/tmp/"; inside dpkg -i "/tmp/$1" > "$dir/dpkg" 2>&1 || fail "$(cat "$dir/dpkg")"; rm "$root/tmp/$1"; }
# What DPDK's library makes in /run, and logrotate's memory of its runs, are not the packages'.
listing() { (cd "$root" && find etc usr lib var/lib var/log run -xdev | grep -vE '^(var/lib/dpkg|var/lib/systemd|var/log/(dpkg|alternatives|openvswitch)|run/openvswitch|run/dpdk|var/lib/logrotate|etc/openvswitch|var/lib/openvswitch|var/cache)|^etc/(passwd|group|shadow|gshadow|subuid|subgid)' | sort); }

ip netns add "$s"
for host in port1 port2; do
    ip netns add "$s-$host"
    ip -n "$s" link add "$host" type veth peer name eth0 netns "$s-$host"
    ip -n "$s" link set "$host" up
    ip -n "$s-$host" link set eth0 up
done
ip -n "$s" link set lo up
ip -n "$s-port1" addr add 10.0.0.1/24 dev eth0
ip -n "$s-port2" addr add 10.0.0.2/24 dev eth0
pings() { ip netns exec "$s-port1" ping -c 1 -W 1 10.0.0.2; }
ovs_ctl() { inside /usr/share/openvswitch/scripts/ovs-ctl --no-record-hostname --system-id=test "$@" > "$dir/ovs-ctl" 2>&1 || fail "ovs-ctl $*: $(cat "$dir/ovs-ctl")"; }
program() { readlink "/proc/$(cat "$root/run/openvswitch/ovs-vswitchd.pid")/exe" | sed "s,^$root,,"; }
# The rules are there, packets follow them, and the daemon is $1.
works_with() {
    [[ $(program) = "$1"* ]] || fail "the daemon is $(program), not $1"
    inside ovs-ofctl dump-flows br0 | grep -q 'cookie=0x5ca1ab1e.*priority=77' || fail "flows are gone: $(inside ovs-ofctl dump-flows br0)"
    [ "$(inside ovs-vsctl list-ports br0 | xargs)" = "port1 port2" ] || fail "ports: $(inside ovs-vsctl list-ports br0)"
    until_true pings || fail "no ping through $1"
    echo "$lane: $2: $(program) has the flows and forwards"
}
# What the shells make of `sluice cap` and a tabulator.
completes_in_bash() {
    local said
    # shellcheck disable=SC2016
    said=$(bash --norc -c 'source "$1"; COMP_WORDS=(sluice cap) COMP_CWORD=1
        entry=$(complete -p sluice); function=${entry##*-F }; "${function%% *}" sluice cap sluice; echo "${COMPREPLY[*]}"' \
        bash "$root/usr/share/bash-completion/completions/sluice") || fail "bash: $said"
    [ "$said" = capture ] || fail "bash completes \`sluice cap\` as: $said"
    echo "$lane: bash completes sluice cap as $said"
}
completes_in_zsh() {
    command -v zsh > /dev/null || { echo "SKIPPED packages: zsh is not installed (ci/install-packages packages-long.txt)"; return; }
    timeout 60 zsh -f "tests/long/packages/complete.zsh" "$root/usr/share/zsh/vendor-completions" "$dir" > "$dir/zsh" 2>&1 ||
        fail "zsh: $(cat "$dir/zsh")"
    echo "$lane: $(tail -1 "$dir/zsh")"
}

# The unit in a systemd that boots in a Debian of its own: tests/long/packages/units.sh says inside what it sees.
boots_with_systemd() {
    local booted=$dir/booted code=0
    command -v systemd-nspawn > /dev/null || { echo "SKIPPED packages: no systemd-nspawn (ci/install-packages packages-long.txt)"; return; }
    mkdir "$booted"
    tar -C "$booted" -xf "$tar"
    cp "target/deb/sluice_${first}_$architecture.deb" "$booted/tmp/"
    chroot "$booted" dpkg -i "/tmp/sluice_${first}_$architecture.deb" > "$dir/dpkg" 2>&1 || fail "$(cat "$dir/dpkg")"
    cp tests/long/packages/units.sh "$booted/usr/local/sbin/units"
    printf '%s\n' '[Unit]' 'After=sluice.service' 'SuccessAction=exit' 'FailureAction=exit' '[Service]' 'Type=oneshot' \
        'ExecStart=/usr/local/sbin/units' 'StandardOutput=file:/var/tmp/units' 'StandardError=append:/var/tmp/units' \
        '[Install]' 'WantedBy=multi-user.target' > "$booted/etc/systemd/system/units.service"
    systemctl --quiet --root="$booted" enable sluice.service units.service
    timeout --kill-after=30 300 systemd-nspawn --quiet --directory="$booted" --machine="$lane-$$" --private-network --register=no \
        --keep-unit --settings=no --resolv-conf=off --timezone=off --link-journal=no --boot > "$dir/boot" 2>&1 < /dev/null || code=$?
    grep -q '^units: done$' "$booted/var/tmp/units" 2> /dev/null ||
        fail "systemd ($code): $(tail -20 "$dir/boot"; cat "$booted/var/tmp/units" 2>&1)"
    sed -n "/: done$/d; s/^units: /$lane: systemd: /p" "$booted/var/tmp/units"
    rm -rf --one-file-system "$booted"
}
listing > "$dir/before"

install "sluice_${first}_$architecture.deb"
[ "$(inside readlink -f /usr/sbin/ovs-vswitchd)" = /usr/lib/openvswitch-switch/ovs-vswitchd ] || fail "Debian's daemon is not the chosen one any more"
inside getent passwd sluice > /dev/null || fail "no user sluice"
inside sluice --version | grep -q "$first" || fail "sluice does not run"
inside sluice run --check /etc/sluice/sluice.toml | grep -q 'can be run' || fail "the configuration cannot be run"
for file in man/man1/sluice.1.gz man/man1/sluice-run.1.gz man/man5/sluice.toml.5.gz bash-completion/completions/sluice zsh/vendor-completions/_sluice; do
    [ -s "$root/usr/share/$file" ] || fail "no $file"
done
completes_in_bash
completes_in_zsh

# The service's switch, started as its unit starts it, and its log.
ip netns exec "$s" chroot "$root" sluice run --quiet /etc/sluice/sluice.toml > "$dir/service" 2>&1 &
service=$!
until_true inside sluice ctl version || fail "the service's switch does not answer: $(cat "$dir/service")"
[ "$(inside stat -c %U /run/sluice/sluice.ctl)" = sluice ] || fail "the switch runs as $(inside stat -c %U /run/sluice/sluice.ctl)"
inside logrotate --force /etc/logrotate.d/sluice > "$dir/logrotate" 2>&1 || fail "logrotate: $(cat "$dir/logrotate")"
[ -s "$root/var/log/sluice/sluice.log.1" ] || fail "the log was not rotated: $(ls -l "$root/var/log/sluice")"
inside sluice ctl sluice/reload > /dev/null || fail "no reload"
until_true test -s "$root/var/log/sluice/sluice.log" || fail "after the rotation nothing is in the log: $(ls -l "$root/var/log/sluice")"
kill "$service"
wait "$service" || fail "the service's switch ended with $?"
echo "$lane: the service's switch runs as user sluice, and its log is rotated"
boots_with_systemd
said=$(systemd-analyze verify --man=no --root="$root" /lib/systemd/system/sluice.service 2>&1 | grep -i sluice || true)
[ -z "$said" ] || fail "systemd-analyze: $said"

# Debian's daemon starts without the kernel's module only where its loading is left out; that is not what is shown here.
inside mkdir -p /run/openvswitch /etc/openvswitch
ovs_ctl --no-ovs-vswitchd start
inside ovs-vsctl --no-wait add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure -- add-port br0 port1 -- add-port br0 port2

inside update-alternatives --quiet --set ovs-vswitchd /usr/lib/sluice/ovs-vswitchd
# As the kernel has it, and the way of ovs-ctl to it: nothing is loaded, and that is no error.
inside modprobe openvswitch || fail "modprobe fails where Sluice is chosen"
ovs_ctl --no-ovsdb-server start
inside ovs-ofctl add-flow br0 'cookie=0x5ca1ab1e,priority=77,actions=NORMAL'
works_with /usr/lib/sluice/sluice "ovs-ctl start"
ovs_ctl restart
works_with /usr/lib/sluice/sluice "ovs-ctl restart"

install "sluice_$first+next_$architecture.deb"
grep -q 'ovs-ctl restart keeps flows' "$dir/dpkg" || fail "the upgrade does not say what to do: $(cat "$dir/dpkg")"
[ "$(inside readlink -f /usr/sbin/ovs-vswitchd)" = /usr/lib/sluice/sluice ] || fail "the upgrade takes the choice back"
ovs_ctl restart
works_with /usr/lib/sluice/sluice "upgraded"

if [ "$with_dpdk" = yes ]; then
    install "sluice-dpdk_$first+next_$architecture.deb"
    [ "$(inside readlink -f /usr/bin/sluice)" = /usr/lib/sluice-dpdk/sluice ] || fail "sluice is not the one with DPDK"
    [ "$(inside readlink -f /usr/sbin/ovs-vswitchd)" = /usr/lib/sluice/sluice ] || fail "the second package takes the choice"
    inside update-alternatives --quiet --set ovs-vswitchd /usr/lib/sluice-dpdk/ovs-vswitchd
    ovs_ctl restart
    works_with /usr/lib/sluice-dpdk/sluice "with DPDK"
    inside ovs-vsctl set Open_vSwitch . other_config:dpdk-init=true \
        other_config:dpdk-extra="--no-huge --legacy-mem --no-shconf --no-pci --no-telemetry -m 512"
    inside ovs-vsctl add-port br0 null0 -- set interface null0 type=dpdk options:dpdk-devargs=net_null0
    [ "$(inside ovs-vsctl get interface null0 error)" = '[]' ] || fail "a DPDK port: $(inside ovs-vsctl get interface null0 error)"
    inside ovs-vsctl del-port null0 -- remove Open_vSwitch . other_config dpdk-init
    inside dpkg -r sluice-dpdk > "$dir/dpkg" 2>&1 || fail "$(cat "$dir/dpkg")"
    [ "$(inside readlink -f /usr/bin/sluice)" = /usr/lib/sluice/sluice ] || fail "sluice is not the plain one again"
    # Removed while it was chosen: the choice falls back to the alternatives' own, which is Debian's daemon.
    inside update-alternatives --quiet --set ovs-vswitchd /usr/lib/sluice/ovs-vswitchd
    ovs_ctl restart
    works_with /usr/lib/sluice/sluice "without DPDK again"
fi

# Back, by the removal of the package while it runs. Debian's daemon insists on the module, so it is started as ovs-ctl does.
pings > /dev/null || fail "no ping before the removal"
inside ovs-ofctl dump-flows br0 --no-stats > "$root/tmp/flows"
inside dpkg -r sluice > "$dir/dpkg" 2>&1 || fail "$(cat "$dir/dpkg")"
pings > /dev/null || fail "the removal ends the switch that runs"
[ "$(inside readlink -f /usr/sbin/ovs-vswitchd)" = /usr/lib/openvswitch-switch/ovs-vswitchd ] || fail "Debian's daemon is not chosen again"
[ -e "$root/etc/sluice/sluice.toml" ] || fail "removal alone takes the configuration"
inside mv /sbin/modprobe /sbin/modprobe.real
inside ln -s /bin/true /sbin/modprobe
ovs_ctl restart
inside mv /sbin/modprobe.real /sbin/modprobe
works_with /usr/lib/openvswitch-switch/ovs-vswitchd "gone back"

inside dpkg -P sluice > "$dir/dpkg" 2>&1 || fail "$(cat "$dir/dpkg")"
ovs_ctl stop
listing > "$dir/after"
left=$(comm -13 "$dir/before" "$dir/after")
[ -z "$left" ] || fail "the purge leaves: $left"
echo "$lane: installed, chosen, restarted, upgraded, removed, purged"
