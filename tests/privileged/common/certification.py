"""The Ryu switch certification suite, as os-ken 3.1.0 ships it, run by its own tester: which tests, and what came out.

    certification.py run OUT.json --python PYTHON --switch NAME --port PORT [--sample N] [--suites of10,of13,of14] [--share N/M]
                                  [--at-most N]
    certification.py merge OUT.json SHARE.json…
    certification.py compare THEIRS.json OURS.json [--table FILE]

`run` serves a controller on PORT, to which the switch under test (datapath 1) and the tester switch (datapath 2) connect, and
runs each suite in its version of OpenFlow, a few files of tests at a time, after which OUT.json is written: what it holds already is
not run again, so a run that was stopped goes on where it was. With --at-most it stops by itself after about N tests, and ends with 3
if there are more. A test that fails is run again, twice at most, unless the switch refused what it asks for: rates are measured by a
Python program on a machine that others use too. So is one of which the tester said nothing. The tester waits most of the time:
several, each with switches of its own, run a share of the tests each, and `merge` puts together what came out. `compare` fails if a
test that THEIRS passes fails in OURS; tests that were not run against both are left out.
"""

import argparse
import collections
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

SUITES = {"of10": "openflow10", "of13": "openflow13", "of14": "openflow14"}
ATTEMPTS = 3
# Tests that one tester runs: it takes seconds to start.
BATCH = 40
# `run` has stopped because of --at-most.
MORE = 3


def suite_directory(python, suite):
    where = "import os, os_ken.tests.switch as s; print(os.path.dirname(s.__file__))"
    return os.path.join(subprocess.check_output([python, "-c", where], text=True).strip(), suite)


def measures_rate(test):
    return any(isinstance(t["ingress"], dict) for t in test["tests"])


def load(directory):
    """The tests of a suite: `(file description, test description) -> (path below it, test)`."""
    tests = {}
    for folder, _, files in os.walk(directory):
        for name in sorted(files):
            if name.endswith(".json"):
                path = os.path.join(folder, name)
                with open(path) as file:
                    title, *entries = [e for e in json.load(file)]
                for entry in entries:
                    tests[(title, entry["description"])] = (os.path.relpath(path, directory), entry)
    return dict(sorted(tests.items()))


def sample(tests, count):
    """Every so many tests. Those that measure a rate, of groups and meters, are left out: they take their time, and the
    tester's own speed is what they measure on a busy machine."""
    chosen = [key for key, (_, test) in tests.items() if not measures_rate(test)]
    return {key: tests[key] for key in chosen[:: max(1, len(chosen) // count)]}


def write(tests, directory):
    """Writes the tests as files that the tester reads."""
    # The tester knows files by their titles: of two with one title it would run but the last.
    files = collections.defaultdict(list)
    for (title, _), (_, test) in tests.items():
        files[title].append(test)
    for number, (title, entries) in enumerate(files.items()):
        with open(os.path.join(directory, f"{number}.json"), "w") as file:
            json.dump([title, *entries], file)


def run_tester(arguments, suite, tests):
    """Runs the tester; `(file description, test description) -> (passed, why not)` of the tests that it said something of."""
    with tempfile.TemporaryDirectory() as directory:
        write(tests, directory)
        manager = os.path.join(os.path.dirname(arguments.python), "osken-manager")
        version = SUITES[suite]
        command = [manager, "--ofp-tcp-listen-port", str(arguments.port), "--test-switch-dir", directory]
        command += ["--test-switch-target-version", version, "--test-switch-tester-version", version]
        command.append(os.path.join(os.path.dirname(suite_directory(arguments.python, "")), "tester.py"))
        try:
            log = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=arguments.timeout,
                                 env={**os.environ, "OSKEN_HUB_TYPE": "eventlet"}).stdout
        except subprocess.TimeoutExpired as stuck:
            log = (stuck.stdout or b"").decode(errors="replace")
    return read_log(log, tests), log


def read_log(log, tests):
    """The tester prints a file's title, then each test with its result, and a line more if it failed."""
    titles = {title for title, _ in tests}
    results, title, last = {}, None, None
    for line in log.splitlines():
        line = line.strip("\r")
        result = re.fullmatch(r"    (\S.*?)\s+(OK|ERROR)", line)
        if line in titles:
            title = line
        elif result and (title, result[1]) in tests:
            last = (title, result[1])
            results[last] = [result[2] == "OK", ""]
        elif last and line.startswith("        ") and not results[last][0]:
            results[last][1] = line.strip()
        elif line == "---  Test end  ---":
            break
    return results


def run_batch(arguments, suite, tests):
    """What came of some tests, each run as often as it takes."""
    results, left, log = {}, tests, ""
    for _ in range(ATTEMPTS):
        done, log = run_tester(arguments, suite, left)
        results.update(done)
        left = {key: test for key, test in tests.items() if key not in results or is_worth_another(*results[key])}
        if not left:
            break
    missing = [key for key in tests if key not in results]
    if len(missing) == len(tests):
        sys.exit(f"{arguments.switch}, {suite}: no results of {len(tests)} tests:\n{log[-4000:]}")
    return {**results, **{key: [False, "the tester said nothing of it"] for key in missing}}


def is_worth_another(passed, why):
    return not passed and "OFPErrorMsg" not in why


def batches(tests):
    """The tests by whole files, so many at a time."""
    batch = {}
    for _, file in itertools.groupby(tests.items(), key=lambda item: item[1][0]):
        batch.update(file)
        if len(batch) >= BATCH:
            yield batch
            batch = {}
    if batch:
        yield batch


def wanted(arguments, suite):
    tests = load(suite_directory(arguments.python, suite))
    if arguments.sample:
        tests = sample(tests, arguments.sample)
    number, of = map(int, arguments.share.split("/"))
    # What takes long comes last: a run that is stopped has come further.
    ordered = sorted(tests.items(), key=lambda item: measures_rate(item[1][1]))
    return dict(ordered[number - 1 :: of])


def run(arguments):
    out = {"switch": arguments.switch, "suites": {}}
    if os.path.exists(arguments.out):
        with open(arguments.out) as file:
            out = json.load(file)
    ran = 0
    for suite in arguments.suites.split(","):
        rows = out["suites"].setdefault(suite, [])
        tests, known = wanted(arguments, suite), {tuple(row[:2]) for row in rows}
        for batch in batches({key: test for key, test in tests.items() if key not in known}):
            if arguments.at_most and ran >= arguments.at_most:
                sys.exit(MORE)
            results = run_batch(arguments, suite, batch)
            rows += [[*key, tests[key][0], *results[key]] for key in batch]
            save(arguments.out, out)
            ran += len(batch)
        print(f"{arguments.switch}, {suite}: {sum(row[3] for row in rows)} of {len(rows)} passed", flush=True)
    save(arguments.out, out)


def save(name, results):
    with open(name + ".new", "w") as file:
        json.dump(results, file, indent=1)
    os.replace(name + ".new", name)


def merge(arguments):
    shares = []
    for name in arguments.shares:
        with open(name) as file:
            shares.append(json.load(file))
    suites = {suite: sorted(sum((share["suites"][suite] for share in shares), [])) for suite in shares[0]["suites"]}
    with open(arguments.out, "w") as file:
        json.dump({"switch": shares[0]["switch"], "suites": suites}, file, indent=1)


def compare(arguments):
    with open(arguments.theirs) as theirs, open(arguments.ours) as ours:
        theirs, ours = json.load(theirs), json.load(ours)
    missed, table = 0, []
    for suite, rows in ours["suites"].items():
        beside = {tuple(row[:2]): row for row in theirs["suites"].get(suite, [])}
        chapters = collections.OrderedDict()
        for title, test, path, passed, why in rows:
            if (title, test) not in beside:
                continue
            counts = chapters.setdefault(os.path.dirname(path), [0, 0, 0])
            counts[0] += 1
            counts[1] += beside[(title, test)][3]
            counts[2] += passed
            if beside[(title, test)][3] and not passed:
                missed += 1
                print(f"{suite}: {theirs['switch']} passes, {ours['switch']} does not: {title}: {test}\n    {why}")
            elif not passed and arguments.verbose:
                print(f"{suite}: neither passes: {title}: {test}\n    {why}\n    {beside[(title, test)][4]}")
        table += [(suite, chapter, *counts) for chapter, counts in chapters.items()]
    lines = [f"| suite | chapter | tests | {theirs['switch']} passes | {ours['switch']} passes |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in table]
    total = [sum(row[n] for row in table) for n in (2, 3, 4)]
    lines.append(f"| all | | {total[0]} | {total[1]} | {total[2]} |")
    print("\n".join(lines))
    if arguments.table:
        with open(arguments.table, "w") as file:
            file.write("\n".join(lines) + "\n")
    sys.exit(missed != 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("out")
    runs.add_argument("--python", required=True)
    runs.add_argument("--switch", required=True)
    runs.add_argument("--port", type=int, required=True)
    runs.add_argument("--sample", type=int, default=0)
    runs.add_argument("--suites", default=",".join(SUITES))
    runs.add_argument("--share", default="1/1")
    runs.add_argument("--at-most", type=int, default=0)
    # Of one tester, which else could wait for ever.
    runs.add_argument("--timeout", type=int, default=3600)
    runs.set_defaults(command=run)
    merges = commands.add_parser("merge")
    merges.add_argument("out")
    merges.add_argument("shares", nargs="+")
    merges.set_defaults(command=merge)
    compares = commands.add_parser("compare")
    compares.add_argument("theirs")
    compares.add_argument("ours")
    compares.add_argument("--table")
    compares.add_argument("--verbose", action="store_true")
    compares.set_defaults(command=compare)
    arguments = parser.parse_args()
    arguments.command(arguments)


main()
