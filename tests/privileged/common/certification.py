"""The Ryu switch certification suite, as os-ken 3.1.0 ships it, run by its own tester: which tests, and what came out.

    certification.py run OUT.json --python PYTHON --switch NAME --port PORT [--sample N] [--suites of10,of13,of14] [--share N/M]
    certification.py merge OUT.json SHARE.json…
    certification.py compare THEIRS.json OURS.json [--table FILE]

`run` serves a controller on PORT, to which the switch under test (datapath 1) and the tester switch (datapath 2) connect, and
runs each suite in its version of OpenFlow. A test that fails is run again, twice at most, unless the switch refused what it asks
for: rates are measured by a Python program on a machine that others use too. The tester waits most of the time: several, each
with switches of its own, run a share of the tests each, and `merge` puts together what came out. `compare` fails if a test that THEIRS passes fails in OURS.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

SUITES = {"of10": "openflow10", "of13": "openflow13", "of14": "openflow14"}
ATTEMPTS = 3


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
    """Runs the tester; `(file description, test description) -> (passed, why not)` in the order of its log."""
    with tempfile.TemporaryDirectory() as directory:
        write(tests, directory)
        manager = os.path.join(os.path.dirname(arguments.python), "osken-manager")
        version = SUITES[suite]
        command = [manager, "--ofp-tcp-listen-port", str(arguments.port), "--test-switch-dir", directory]
        command += ["--test-switch-target-version", version, "--test-switch-tester-version", version]
        command.append(os.path.join(os.path.dirname(suite_directory(arguments.python, "")), "tester.py"))
        process = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env={**os.environ, "OSKEN_HUB_TYPE": "eventlet"}, timeout=arguments.timeout)
    results = read_log(process.stdout, tests)
    if len(results) != len(tests):
        sys.exit(f"{arguments.switch}, {suite}: {len(results)} results of {len(tests)} tests:\n{process.stdout[-4000:]}")
    return results


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


def run(arguments):
    out = {"switch": arguments.switch, "suites": {}}
    for suite in arguments.suites.split(","):
        tests = load(suite_directory(arguments.python, suite))
        if arguments.sample:
            tests = sample(tests, arguments.sample)
        number, of = map(int, arguments.share.split("/"))
        tests = dict(list(tests.items())[number - 1 :: of])
        results, failed = {}, tests
        for _ in range(ATTEMPTS):
            results.update(run_tester(arguments, suite, failed))
            failed = {key: tests[key] for key, (passed, why) in results.items() if not passed and "OFPErrorMsg" not in why}
            if not failed:
                break
        out["suites"][suite] = [[*key, tests[key][0], *results[key]] for key in tests]
        passes = sum(passed for passed, _ in results.values())
        print(f"{arguments.switch}, {suite}: {passes} of {len(tests)} passed", flush=True)
    with open(arguments.out, "w") as file:
        json.dump(out, file, indent=1)


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
        beside = {tuple(row[:2]): row for row in theirs["suites"][suite]}
        chapters = collections.OrderedDict()
        for title, test, path, passed, why in rows:
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
    runs.add_argument("--timeout", type=int, default=4 * 3600)
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
