#!/usr/bin/env bash
# The set-ups of examples/ as their READMEs have them: up, what it shows, down. And the front page's way from a clone to two
# namespaces that ping, typed as it stands there.
set -euo pipefail
. "$(dirname "$0")/common/switch.bash"
for host in left right office1 office2 lab1 lab2 inside outside host; do
    [ ! -e "/run/netns/$host" ] || { echo "SKIPPED: there is a namespace $host already"; exit 77; }
done
finish_examples() {
    for example in two-hosts vlans firewall vm dpdk; do "examples/$example/down" > /dev/null 2>&1 || true; done
    finish
}
trap finish_examples EXIT
export SLUICE=$sluice

run_example() {
    kind=$1
    "examples/$1/up" > "$dir/up" 2>&1 || fail "up: $(cat "$dir/up")"
    "examples/$1/try" > "$dir/try" 2>&1 || fail "$(cat "$dir/try" "/tmp/sluice-example-$1.log")"
    "examples/$1/down" > /dev/null 2>&1 || fail "it does not go down"
    echo "examples: $1"
}
run_example two-hosts
run_example vlans
run_example firewall
if command -v dpdk-testpmd > /dev/null; then
    run_example vm
else
    echo "SKIPPED examples: vm: dpdk-testpmd is not installed"
    echo "lane example-vm: 0 passed, 0 failed, 1 skipped"
fi
if pkg-config --exists libdpdk 2> /dev/null; then
    cargo build -q -p sluice --features dpdk
    cp target/debug/sluice "$dir/sluice-dpdk"
    # Other lanes run the plain one.
    cargo build -q -p sluice
    SLUICE=$dir/sluice-dpdk
    run_example dpdk
    SLUICE=$sluice
else
    echo "SKIPPED examples: dpdk: libdpdk-dev is not installed"
    echo "lane example-dpdk: 0 passed, 0 failed, 1 skipped"
fi

# The commands of the first block of README.md. The clone is there; root needs no sudo, and the build is that of this lane.
kind="the front page"
mapfile -t commands < <(awk '/^```/ { if (inside) exit; inside = 1; next } inside' README.md)
[ ${#commands[@]} -le 5 ] || fail "${#commands[@]} commands"
[[ ${commands[0]} = "git clone "* ]] || fail "the first command is ${commands[0]}"
[ "$(awk '/^```/ { print NR; exit }' README.md)" -lt 25 ] || fail "the commands are not in the first screen"
mkdir "$dir/bin"
printf '#!/bin/sh\nexec "$@"\n' > "$dir/bin/sudo"
chmod +x "$dir/bin/sudo"
for command in "${commands[@]:1}"; do
    case $command in
    "cd sluice" | "cargo build --release") ;;
    *) PATH=$dir/bin:$PATH timeout 60 bash -c "$command" > "$dir/said" 2>&1 || fail "$command: $(cat "$dir/said")" ;;
    esac
done
grep -q ' 0% packet loss' "$dir/said" || fail "the last command shows: $(cat "$dir/said")"
examples/two-hosts/down
echo "examples: ${#commands[@]} commands from the clone to the ping"
