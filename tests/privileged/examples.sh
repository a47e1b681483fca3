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

# The commands of the first block of a README, run as they stand there. The clone is there; root needs no sudo, and the build is
# that of this lane. Says what is wrong and fails, if something is.
front_page() {
    local -a commands
    local command
    mapfile -t commands < <(awk '/^```/ { if (inside) exit; inside = 1; next } inside' "$1")
    [ ${#commands[@]} -le 5 ] || { echo "${#commands[@]} commands"; return 1; }
    [[ ${commands[0]} = "git clone "*" sluice" ]] || { echo "the first command is ${commands[0]}"; return 1; }
    [ "$(awk '/^```/ { print NR; exit }' "$1")" -lt 25 ] || { echo "the commands are not in the first screen"; return 1; }
    : > "$dir/said"
    for command in "${commands[@]:1}"; do
        case $command in
        "cd sluice" | "cargo build --release") ;;
        *) PATH=$dir/bin:$PATH timeout 60 bash -c "$command" > "$dir/said" 2>&1 || { echo "$command: $(cat "$dir/said")"; return 1; } ;;
        esac
    done
    grep -q ' 0% packet loss' "$dir/said" || { echo "the last command shows: $(cat "$dir/said")"; return 1; }
}
kind="the front page"
mkdir "$dir/bin"
printf '#!/bin/sh\nexec "$@"\n' > "$dir/bin/sudo"
chmod +x "$dir/bin/sudo"
wrong=$(front_page README.md) || fail "$wrong"
examples/two-hosts/down
# A wrong letter in any of the commands is noticed.
for typo in 's/^git clone/git clown/' 's/^cd sluice/cd slice/' 's/^cargo build/cargo biuld/' 's/two-hosts.up/two-host\/up/' \
    's/exec left ping/exec lift ping/' 's/^sudo ip netns.*/&\necho one more/'; do
    sed "$typo" README.md > "$dir/README.typo"
    ! cmp -s README.md "$dir/README.typo" || fail "README.md has nothing that $typo changes"
    ! front_page "$dir/README.typo" > /dev/null || fail "a README is right after $typo"
    examples/two-hosts/down > /dev/null 2>&1 || true
done
echo "examples: from the clone to the ping as README.md has it, and six typing errors noticed"
