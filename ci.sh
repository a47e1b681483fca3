#!/usr/bin/env bash
# Every check by name, the same on a laptop and in CI:  ./ci.sh STEP…   (./ci.sh help lists them)
# Steps joined by + run side by side, if neither measures time:  ./ci.sh privileged+ovs-suite
# Ends with the plain line `N passed, N failed, N skipped`, summed over the steps, and fails if one failed.
set -uo pipefail
cd "$(dirname "$0")"
export CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=never
# Property tests repeat here; plain `cargo test` draws anew each time, and the long lane draws more.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-20261120}
here=$PWD
counts=$(mktemp) failures=$(mktemp)
trap 'rm -f "$counts" "$failures"' EXIT

# name|what it shows|needs
steps='fmt|rustfmt leaves the tree as it is|
clippy|no warning in any target|
tiers|crates import only what stands above them|
dependencies|no crate lists a dependency that it does not use|
supply-chain|licences, sources and second versions of dependencies, as deny.toml says|
fence|unsafe lives where ci/unsafe.txt says, with reasons|
sizes|report of long files and functions|
tree|report of the size of the tree, by directory|
circles|report of files that import each other in a circle|
test|cargo test: everything that needs no privileges|
install|the Debian packages of ci/packages.txt are there|root, or packages present
privileged|ports and captures on network devices of our own|root
ovs-suite|what the project claims of the test suites of Open vSwitch (OVS_SUITE=sample: some of each step)|root, openvswitch-source
dpdk|DPDK ports|libdpdk-dev
differential|random tables and packets, and packets of tunnels: same as OVS 3.1|openvswitch-switch
fuzz|each fuzz target for FUZZ_SECONDS (20)|g++
miri|the tests of crates without devices under Miri, PROPTEST_CASES (4) of each property|nightly Rust with Miri
sanitizers|the tests of crates with unsafe code or atomics under AddressSanitizer and ThreadSanitizer|nightly Rust with rust-src
gaps|the longest gap between two polls of a PMD while its control threads work, in full|
benches|every benchmark runs once as a test|
instructions|instructions a packet beside benches/record/instructions.txt; a rise of over 3 % fails|valgrind
certification|the whole Ryu switch certification suite, beside OVS 3.1|root, openvswitch-switch
faucet|Faucet (from PyPI) drives a bridge: VLANs, routing, an ACL|root, openvswitch-switch, network
guests|virtual machines of QEMU behind vhost-user: TCP with segmentation left to the switch, restarts, live migration|root, qemu-system-x86, busybox-static, cpio, kmod, iperf3
neutron|the agent of OpenStack sets up the switch, and Open vSwitch beside it|root, neutron-openvswitch-agent, openvswitch-switch
ovn-scale|OVN with 200 logical switches of 20 ports, beside OVS: time, memory, flows (SWITCHES, PORTS)|root, ovn-central, ovn-host, openvswitch-switch
tunnel-tcp|iperf3 over TCP by Geneve between two switches, on AF_PACKET and AF_XDP, beside OVS (ROUNDS, SECONDS_EACH)|root, openvswitch-switch, iperf3
soak|SOAK_SECONDS (20) at full rate with 1000 rule changes a second|
lab-full|each experiment in full, the most worth first, into docs/results/; goes on where it was stopped|root and OVS for the peer
readme-plot|the plot of the README, from the newest run of peer in docs/results/|
packages|the Debian packages: installed, upgraded, removed and purged beside Open vSwitch on a bare Debian|root, mmdebstrap, debhelper
book|the guide as HTML, into target/book|mdbook
long|the long lanes; results and the machine sheet go to docs/results/|root, openvswitch-switch'

usage() {
    echo "usage: ./ci.sh STEP…"
    echo "$steps" | awk -F'|' '{ printf "  %-14s %s%s\n", $1, $2, ($3 ? " (needs " $3 ")" : "") }'
}

# What `differential` and `soak` run: PROFILE=dev builds faster, checks more and runs slower.
profile=${PROFILE:-release}
built=target/$([ "$profile" = dev ] && echo debug || echo "$profile")

# Says by name and with its reason what does not run here; counted, never silent.
skip() { echo "SKIPPED $1: $2"; echo "lane $1: 0 passed, 0 failed, 1 skipped"; }
have() { command -v "$1" >/dev/null 2>&1; }

# Ends what hangs, so that the rest still runs and is counted. No check of speed: the limits are far from what a step takes.
guarded() { timeout --kill-after=30 "$@"; }

step_fmt() { cargo fmt --all --check; }
step_clippy() { cargo clippy -q --workspace --all-targets -- -D warnings; }
step_tiers() { cargo test -q -p sluice-checks --test tiers; }
step_dependencies() { cargo test -q -p sluice-checks --test dependencies; }
step_supply-chain() {
    cargo test -q -p sluice-checks --test supply_chain || return
    have cargo-deny || { skip cargo-deny "it is not installed (cargo install cargo-deny)"; return 0; }
    cargo deny --offline check licenses bans sources || return
    [ -d "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" ] || { skip advisories "RustSec's database is not here (cargo deny fetch)"; return 0; }
    cargo deny --offline check advisories
}
step_fence() { cargo test -q -p sluice-checks --test fence; }
step_sizes() { cargo run -q -p sluice-checks --bin sizes; }
step_tree() { ci/tree-size; }
step_circles() { cargo run -q -p sluice-checks --bin circles; }
step_test() {
    # Kernels of the instruction sets this machine has must have been run against their scalar twins.
    local isa
    for isa in avx2 avx512vbmi; do
        if grep -qw "$isa" /proc/cpuinfo; then REQUIRE_ISA+=,${isa%vbmi}; else skip "kernels-$isa" "this CPU lacks it"; fi
    done
    cargo test -q --no-run || return 1
    REQUIRE_ISA=${REQUIRE_ISA:-} guarded 1500 cargo test --no-fail-fast
}
step_install() { ci/install-packages; }

# Scripts that compare what two switches say, and have no traffic whose rate or order another script could disturb.
privileged_beside="continuations openflow"

run_privileged() {
    local name
    name=$(basename "$1" .sh)
    [ "$(id -u)" = 0 ] || { skip "$name" "not root"; return; }
    echo "-- $1, from $(date -u +%T)"
    guarded 600 bash "$1"
    case $? in
    0) echo "lane $name: 1 passed, 0 failed, 0 skipped" ;;
    77) skip "$name" "see above" ;;
    124 | 137) echo "$1 hangs: stopped after ten minutes"; echo "lane $name: 0 passed, 1 failed, 0 skipped" ;;
    *) echo "lane $name: 0 passed, 1 failed, 0 skipped" ;;
    esac
}

step_privileged() {
    local script name beside
    # Built outside the scripts' time limits: from an empty target directory this takes longer than any of them.
    # The variant with DPDK, for an example, comes first: the plain one has to be the one that stays at target/debug/sluice.
    ! pkg-config --exists libdpdk 2>/dev/null || cargo build -q -p sluice --features dpdk || return 1
    cargo build -q -p sluice && cargo test -q -p sluice-port --test netns --no-run || return 1
    beside=$(mktemp)
    for name in $privileged_beside; do run_privileged "tests/privileged/$name.sh"; done >"$beside" 2>&1 &
    for script in tests/privileged/*.sh; do
        case " $privileged_beside " in *" $(basename "$script" .sh) "*) continue ;; esac
        run_privileged "$script"
    done
    wait
    cat "$beside"
    rm -f "$beside"
}

# OVS_SUITE=claimed, or sample (tests/ovs-suite/sample.tsv), or all that start a daemon; TITLE=REGEX runs titles alone.
step_ovs-suite() {
    local -a chosen=()
    tests/ovs-suite/table --check || return 1
    [ "${OVS_SUITE:-claimed}" = claimed ] || chosen=("--$OVS_SUITE")
    [ -z "${TITLE:-}" ] || chosen=("$TITLE")
    cargo build -q -p sluice || return 1
    guarded "${OVS_SUITE_SECONDS:-7200}" tests/ovs-suite/ovs-suite --daemon target/debug/sluice "${chosen[@]}"
}

step_dpdk() {
    have pkg-config && pkg-config --exists libdpdk || { skip dpdk "libdpdk-dev is not installed (ci/install-packages)"; return; }
    cargo clippy -q -p sluice-port --features dpdk --all-targets -- -D warnings || return 1
    cargo test -q -p sluice-port --features dpdk --lib --test dpdk --test dpdk_start --no-run || return 1
    guarded 300 cargo test -q -p sluice-port --features dpdk --lib --test dpdk --test dpdk_start
}

step_differential() {
    have ovs-vswitchd || { skip differential "openvswitch-switch is not installed (ci/install-packages)"; return; }
    cargo build -q --profile "$profile" -p sluice -p sluice-differential || return 1
    # Both runs count; the captures are those of programs, the tables random.
    local code=0 limit=$((${TABLES:-200} * 4))
    guarded "$limit" "$built/differential" --flows tests/captures/rules.txt --in 1=tests/captures/a.pcap \
        --in 2=tests/captures/b.pcap || code=1
    # Half of the tables with each number of VLAN tags that packets are read with.
    local vlans
    for vlans in 1 2; do
        local half=(--vlan-limit $vlans --seed "$((${SEED:-1} + (vlans - 1) * 100000))")
        guarded "$limit" "$built/differential" "${half[@]}" --tables $((${TABLES:-200} / 2)) \
            --packets "${PACKETS:-100}" || code=1
        guarded "$limit" "$built/differential" "${half[@]}" --ct --tables $((${CT_TABLES:-60} / 2)) \
            --packets 60 || code=1
    done
    guarded "$((${TUNNEL_PACKETS:-600} + 120))" /usr/bin/python3 tests/differential/tunnels.py "$built/sluice" \
        --packets "${TUNNEL_PACKETS:-600}" --seed "${SEED:-1}" || code=1
    guarded "$((${TUNNEL_PACKETS:-600} + 120))" /usr/bin/python3 tests/differential/geneve_options.py "$built/sluice" \
        --rounds $((${TUNNEL_PACKETS:-600} / 50)) --seed "${SEED:-1}" || code=1
    return $code
}

# Coverage instrumentation on stable: libFuzzer's counters are an LLVM pass, no nightly flag is needed. To trace comparisons, which
# finds what inputs are compared with, takes nearly half of the time of fast targets: with FUZZ_COMPARES= (empty) they run without.
fuzz_flags="--cfg fuzzing -Ctarget-cpu=x86-64-v2 -Cpasses=sancov-module -Ccodegen-units=1"
for flag in level=4 inline-8bit-counters pc-table ${FUZZ_COMPARES-trace-compares}; do
    fuzz_flags+=" -Cllvm-args=-sanitizer-coverage-$flag"
done

# Fuzzing takes what other steps leave of the cores.
# FUZZ_EXECUTIONS=N goes round the targets until all together have run so often, which is 10^9 in the end. With FUZZ_SEED=0
# executions of earlier runs count, as fuzz/executions.tsv has them: other seeds repeat themselves.
step_fuzz() {
    have g++ || { skip fuzz "no C++ compiler for libFuzzer"; return; }
    local target executed=0 before=-1 earlier=0
    renice -n 19 -p "$BASHPID" >/dev/null
    local -a targets=(${FUZZ_TARGETS:-$(basename -s .rs fuzz/src/bin/*.rs)})
    [ "${FUZZ_SEED:-1}" != 0 ] || earlier=$(awk -F'\t' '!/^#/ { n += $5 } END { print n + 0 }' fuzz/executions.tsv)
    (cd fuzz && RUSTFLAGS="$fuzz_flags" cargo build -q --release --target x86_64-unknown-linux-gnu) || return 1
    # A round without a single execution ends it: every target fails at its start.
    while [ "$executed" -gt "$before" ]; do
        before=$executed
        fuzz_round "${targets[@]}"
        for target in "${targets[@]}"; do
            executed=$((executed + $(executions "$target")))
            [ "${FUZZ_SEED:-1}" != 0 ] || note_executions "$target" "$(executions "$target")"
        done
        echo "-- $executed executions in this run, $((earlier + executed)) in all"
        [ $((earlier + executed)) -lt "${FUZZ_EXECUTIONS:-0}" ] || break
    done
    [ "${FUZZ_SEED:-1}" != 0 ] || awk -F'\t' '!/^#/ { n[$3] += $5; all += $5 }
        END { for (target in n) printf "   %-12s %13d\n", target, n[target]; printf "   %-12s %13d\n", "all", all }' \
        fuzz/executions.tsv | sort -k2n
}

# Runs targets, FUZZ_JOBS at a time (as many as there are cores), and then prints what each said.
fuzz_round() { # target…
    local target running=0 jobs=${FUZZ_JOBS:-$(nproc)}
    mkdir -p fuzz/target
    for target in "$@"; do
        [ "$running" -lt "$jobs" ] || { wait -n; running=$((running - 1)); }
        fuzz_one "$target" >"fuzz/target/$target.told" 2>&1 &
        running=$((running + 1))
    done
    wait
    for target in "$@"; do cat "fuzz/target/$target.told"; done
}

# Adds a run of a target to the line of its day and commit.
note_executions() { # target, executions
    [ "$2" -gt 0 ] || return 0
    local tally=fuzz/executions.tsv line
    line=$(date -u +%F)$'\t'$(git rev-parse --short=10 HEAD)$'\t'$1
    awk -F'\t' -v OFS='\t' -v line="$line" -v seconds="$(fuzz_seconds "$1")" -v n="$2" '
        !/^#/ && $1 FS $2 FS $3 == line { $4 += seconds; $5 += n; found = 1 }
        { print }
        END { if (!found) print line, seconds, n }' "$tally" >"$tally.new" && mv "$tally.new" "$tally"
}

# What a switch remembers takes long to get at: three times as long.
fuzz_seconds() {
    local seconds=${FUZZ_SECONDS:-20}
    [ "$1" != switch ] || [ "$seconds" -lt 600 ] || seconds=$((3 * seconds))
    echo "$seconds"
}

# The longest input. A neighbour's sequence of packets and pauses repeats itself when it is longer, and costs as much time
# as it is long.
fuzz_length() { # target
    case $1 in
        bfd | lacp) echo 512 ;;
        *) echo 4096 ;;
    esac
}

executions() { awk '/number_of_executed_units/ { n = $2 } END { print n + 0 }' "fuzz/target/$1.log"; }

# New inputs go to a scratch corpus; the seeds in git stay as they are. CI repeats itself; the long lane draws (seed 0).
# An input may take FUZZ_TIMEOUT seconds (10) by the clock on the wall: a run that others may stop for minutes needs more.
fuzz_one() {
    local scratch=fuzz/target/corpus/$1 out=fuzz/target/crashes/ seconds
    seconds=$(fuzz_seconds "$1")
    mkdir -p "$scratch" "fuzz/seeds/$1" "$out"
    echo "-- fuzz $1, $seconds s"
    if "fuzz/target/x86_64-unknown-linux-gnu/release/$1" "$scratch" "fuzz/seeds/$1" -max_total_time="$seconds" -seed="${FUZZ_SEED:-1}" \
        -max_len="$(fuzz_length "$1")" -timeout="${FUZZ_TIMEOUT:-10}" -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$out$1-" \
        >"fuzz/target/$1.log" 2>&1; then
        grep -E 'number_of_executed_units|average_exec_per_sec|new_units_added|peak_rss' "fuzz/target/$1.log"
        echo "lane fuzz-$1: 1 passed, 0 failed, 0 skipped"
    else
        # The reason stands before a long backtrace, the input behind it.
        grep -A 4 'panicked at' "fuzz/target/$1.log" | cut -c1-2000
        tail -12 "fuzz/target/$1.log"
        echo "lane fuzz-$1: 0 passed, 1 failed, 0 skipped"
    fi
}

# Crates whose tests need no socket, no mapped device and no instruction that Miri does not know. Loom's models are not for
# Miri: they switch stacks.
miri_tests='fate:--lib sync:--test=stress membership:--lib packet:--lib action:--lib governor:--lib classifier:--lib openflow:--lib'

step_miri() {
    cargo +nightly miri --version >/dev/null 2>&1 ||
        { skip miri "no nightly toolchain with it (rustup component add --toolchain nightly miri rust-src)"; return; }
    local entry code=0
    for entry in ${MIRI_TESTS:-$miri_tests}; do
        echo "-- miri sluice-${entry%%:*}, from $(date -u +%R)"
        MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=${PROPTEST_CASES:-4} CARGO_TARGET_DIR=target/miri guarded 7200 \
            cargo +nightly miri test -q -p "sluice-${entry%%:*}" "${entry#*:}" || code=1
    done
    return $code
}

# The standard library is built with them, too: without that ThreadSanitizer does not see what its locks order.
sanitized='address:simd,mem,sync,packet,flow-cache,conntrack,datapath,port thread:mem,sync,fate,clock,flow-cache,conntrack,datapath,ofproto'

step_sanitizers() {
    cargo +nightly --version >/dev/null 2>&1 && [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src" ] ||
        { skip sanitizers "no nightly toolchain with the library's sources (rustup component add --toolchain nightly rust-src)"; return; }
    local entry kind crates crate code=0
    for entry in ${SANITIZED:-$sanitized}; do
        kind=${entry%%:*} crates=()
        for crate in ${entry//[:,]/ }; do [ "$crate" = "$kind" ] || crates+=(-p "sluice-$crate"); done
        echo "-- $kind sanitizer, from $(date -u +%R): ${crates[*]}"
        # Loom's models run whole in `cargo test`; under a sanitizer that would take hours.
        RUSTFLAGS="-Zsanitizer=$kind" ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=halt_on_error=1 \
            PROPTEST_CASES=${PROPTEST_CASES:-32} LOOM_MAX_PREEMPTIONS=1 \
            CARGO_TARGET_DIR=target/sanitizers/$kind guarded 7200 cargo +nightly test -q --no-fail-fast -Zbuild-std \
            --target x86_64-unknown-linux-gnu "${crates[@]}" --lib --tests || code=1
    done
    return $code
}

step_gaps() {
    cargo build -q --release -p sluice && target/release/sluice lab gaps --out "${OUT:-target/gaps}"
}

step_benches() {
    # In the test profile and once each: do they run and do their answers agree, not how fast.
    cargo test -q --bench "*" --no-run || return 1
    guarded 900 cargo test --bench "*"
}

step_instructions() {
    have valgrind || { skip instructions "valgrind is not installed (ci/install-packages)"; return; }
    cargo bench -q -p sluice-datapath --bench instructions -- --record "$here/benches/record/instructions.txt"
}

# NAME SECONDS: runs a script of the long lane, which says by exit code 77 that it cannot run here.
run_long() {
    local code=0
    guarded "$2" bash "tests/long/${1//-/_}.sh" || code=$?
    [ "$code" != 77 ] || { skip "$1" "see above"; return; }
    return "$code"
}
is_root() { [ "$(id -u)" = 0 ] || { skip "$1" "not root"; return 1; }; }

# A sample of it is in the privileged lane.
step_faucet() {
    is_root faucet || return 0
    cargo build -q -p sluice && run_long faucet 900
}

# GUESTS_COMPARE=3 measures iperf3 beside Open vSwitch with DPDK instead.
step_guests() {
    is_root guests || return 0
    ci/install-packages packages-long.txt && cargo build -q --release -p sluice && run_long guests 3600
}

step_neutron() {
    is_root neutron || return 0
    ci/install-packages packages-long.txt && cargo build -q -p sluice && run_long neutron 1800
}

step_ovn-scale() {
    is_root ovn-scale || return 0
    cargo build -q --release -p sluice && DAEMON=$here/target/release/sluice run_long ovn-scale 3600
}

step_tunnel-tcp() {
    is_root tunnel-tcp || return 0
    cargo build -q --release -p sluice && DAEMON=$here/target/release/sluice run_long tunnel-tcp 1800
}

step_certification() {
    [ "$(id -u)" = 0 ] || { skip certification "not root"; return; }
    SAMPLE=0 SHARES=${SHARES:-1} bash tests/privileged/certification.sh
}

step_soak() {
    cargo build -q --profile "$profile" -p sluice -p sluice-soak && guarded $((${SOAK_SECONDS:-20} + 300)) "$built/soak" --seconds "${SOAK_SECONDS:-20}"
}

# Each experiment in full with the minutes it takes on two quiet cores; the most wanted results first.
lab_full='peer:13 tunnel:31 storm:9 recirc:12 jitter:22 caches:12 subtables:14 skew:3 throughput:48 autopilot:12 adaptation:26 scale:2 rules:1 changes:3 gaps:10 cold:1 governor:3 crr:4 syn-flood:2 profile:1'

# LAB="NAME…" runs these alone, DAY=YYYY-MM-DD goes on with that day's. A run that is whole is not measured again.
step_lab-full() {
    local entry name out code=0 features=()
    have pkg-config && pkg-config --exists libdpdk && features=(--features dpdk)
    cargo build -q --release -p sluice "${features[@]}" || return 1
    for entry in $lab_full; do
        name=${entry%:*}
        [[ " ${LAB:-$name} " = *" $name "* ]] || continue
        out=docs/results/${DAY:-$(date -u +%F)}-lab-$name
        echo "-- lab $name, about ${entry#*:} minutes, from $(date -u +%R): $out"
        if target/release/sluice lab "$name" --out "$out" --resume; then
            echo "lane lab-$name: 1 passed, 0 failed, 0 skipped"
        else
            echo "lane lab-$name: 0 passed, 1 failed, 0 skipped"
            code=1
        fi
    done
    target/release/sluice lab losses --out docs/results >/dev/null && step_readme-plot || return 1
    return $code
}

step_readme-plot() {
    local newest
    newest=$(ls -d docs/results/*-lab-peer | tail -1)
    cargo run -q -p sluice -- lab front-page --out "$newest" >docs/results/front-page.svg
}

# The Debian packages on a bare Debian. ROOT_TAR keeps that for the next time, PROFILE=dev builds fast.
step_packages() {
    local code=0
    guarded 5400 bash tests/long/packages.sh || code=$?
    [ "$code" != 77 ] || { skip packages "see above"; return; }
    return "$code"
}

step_book() {
    have mdbook || { skip book "mdbook is not installed (cargo install mdbook)"; return; }
    mdbook build --dest-dir "$here/target/book"
}

step_long() {
    local day out
    day=$(date -u +%F)
    out=docs/results/$day-$(uname -m)-$(nproc)cpu
    mkdir -p "$out"
    ci/machine-sheet >"$out/machine.txt"
    long_lane "$out" differential TABLES=2000 PACKETS=200 TUNNEL_PACKETS=50000
    long_lane "$out" fuzz FUZZ_SECONDS=600 FUZZ_SEED=0
    long_lane "$out" miri
    long_lane "$out" sanitizers
    long_lane "$out" gaps OUT="$out"
    long_lane "$out" certification
    long_lane "$out" ovs-suite OVS_SUITE=all
    long_lane "$out" faucet
    long_lane "$out" guests
    long_lane "$out" neutron
    long_lane "$out" ovn-scale
    long_lane "$out" tunnel-tcp
    long_lane "$out" packages
    long_lane "$out" book
    long_lane "$out" soak SOAK_SECONDS=900
    echo "results: $out"
}

long_lane() {
    local out=$1 lane=$2
    shift 2
    echo "-- long $lane: $*"
    { echo "# $* ./ci.sh $lane, at $(git rev-parse --short HEAD), $(date -u +%FT%RZ)"; env "$@" ./ci.sh "$lane"; } 2>&1 |
        tee "$out/$lane.txt"
}

# Adds up the counts that a step printed: cargo's, and our own lines `NAME: N passed, N failed, N skipped`. One with none counts as one.
tally() {
    local name=$1 code=$2 log=$3
    awk -v name="$name" -v code="$code" '
        /^test result: / { gsub(/;/, ""); for (i = 1; i < NF; i++) { if ($(i+1) == "passed") p += $i; if ($(i+1) == "failed") f += $i; if ($(i+1) == "ignored") s += $i } n++ }
        /^(lane )?[^ ]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { sub(/^lane /, ""); p += $2; f += $4; s += $6; n++ }
        END { if (!n) { if (code == 0) p = 1; else f = 1 } else if (code != 0 && !f) f = 1; print name, p + 0, f + 0, s + 0 }
    ' "$log" >>"$counts"
}

# What a step with failures printed before each of them, for the end of the log: its middle may not be kept.
keep_failures() {
    local name=$1 code=$2 log=$3
    awk -v name="$name" -v code="$code" -v context=40 '
        function tell(   i) { for (i = (n > context ? n - context : 0); i < n; i++) print "  " line[i % context]; n = 0; told++ }
        { line[n++ % context] = $0 }
        /^test result: FAILED/ || / [1-9][0-9]* failed, [0-9]+ skipped$/ || /^test .* FAILED$/ || / panicked at / { print "-- in " name ":"; tell() }
        END { if (code != 0 && !told) { print "-- " name " ended with " code ":"; tell() } }
    ' "$log" | head -200 >>"$failures"
}

run_step() {
    local name=$1 log code start=$SECONDS
    log=$(mktemp)
    echo "== $name"
    "step_$name" 2>&1 | tee "$log"
    code=${PIPESTATUS[0]}
    tally "$name" "$code" "$log"
    grep -q "^$name [0-9]* 0 [0-9]*$" "$counts" || keep_failures "$name" "$code" "$log"
    rm -f "$log"
    echo "== $name: exit $code after $((SECONDS - start)) s"
}

# Runs a step, or several joined by +. What the others of those print stands behind what the first does.
run_steps() {
    local first=${1%%+*} step beside=()
    for step in ${1//+/ }; do
        [ "$step" != "$first" ] || continue
        beside+=("$(mktemp)")
        run_step "$step" >"${beside[-1]}" 2>&1 &
    done
    run_step "$first"
    wait
    for step in "${beside[@]}"; do
        cat "$step"
        rm -f "$step"
    done
}

[ $# -gt 0 ] || { usage; exit 2; }
for step in ${*//+/ }; do
    [ "$step" = help ] && { usage; exit 0; }
    declare -F "step_$step" >/dev/null || { echo "ci.sh: no step '$step'" >&2; usage >&2; exit 2; }
done
for step in "$@"; do
    run_steps "$step"
done
echo
if [ -s "$failures" ] && awk '{ f += $3 } END { exit !f }' "$counts"; then
    echo "== what failed, again"
    cat "$failures"
    echo
fi
awk '{ printf "%-14s %d passed, %d failed, %d skipped\n", $1, $2, $3, $4 }' "$counts"
awk '{ p += $2; f += $3; s += $4 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }' "$counts"
