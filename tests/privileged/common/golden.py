"""The OpenFlow messages that os-ken ships, read and written again: what Open vSwitch prints of them must stay the same.

    golden.py MESSAGES REENCODE EXPECTED

MESSAGES is os-ken's `tests/packet_data`, REENCODE the program, EXPECTED the list of messages that Sluice does not read as Open vSwitch
does, `FOLDER/NAME: why` a line. A message that Open vSwitch refuses must be refused with the same error. Fails if a message comes
out differently and is not in the list; one in the list that comes out the same is told of.
"""

import os
import re
import subprocess
import sys
import tempfile


def printed(path):
    """What `ovs-ofctl` makes of a message, and the error if it refuses it."""
    text = subprocess.run(["ovs-ofctl", "ofp-parse", path], text=True, capture_output=True).stdout
    # Of an error, what is wrong with the message inside is no matter.
    refused = None if text.startswith("OFPT_ERROR") and "\n" in text[:60] else re.search(r"\*\*\*decode error: (\w+)\*\*\*", text)
    return text, refused and refused[1]


def outcome(path, reencoded, refusal):
    """`None` if the message came through as it should, else what went wrong."""
    text, refused = printed(path)
    if refused or refusal:
        same = refused == refusal
        return None if same else f"Open vSwitch: {refused or 'reads it'}; Sluice: {refusal or 'reads it'}"
    again, _ = printed(reencoded)
    if text == again:
        return None
    lines = [(a, b) for a, b in zip(text.splitlines(), again.splitlines()) if a != b]
    a, b = lines[0] if lines else (text[-100:], again[-100:])
    return f"printed before: {a}\n    printed after:  {b}"


def main():
    messages, reencode, expected = sys.argv[1:]
    with open(expected) as file:
        known = dict(line.strip().split(": ", 1) for line in file if line.strip() and not line.startswith("#"))
    read = identical = wrong = refused = 0
    for folder in sorted(os.listdir(messages)):
        # OpenFlow 1.2 is not spoken.
        if not folder.startswith("of1") or folder == "of12":
            continue
        names = sorted(n for n in os.listdir(os.path.join(messages, folder)) if n.endswith(".packet"))
        paths = {name: os.path.join(messages, folder, name) for name in names}
        with tempfile.TemporaryDirectory() as out:
            report = subprocess.run([reencode, out, *paths.values()], text=True, capture_output=True, check=True).stdout
            refusals = dict(line.rsplit(": ", 1) for line in report.splitlines())
            for name, path in paths.items():
                again, label = os.path.join(out, name), f"{folder}/{name.removesuffix('.packet')}"
                trouble = outcome(path, again, refusals.get(path))
                if trouble and label not in known:
                    wrong += 1
                    print(f"{label}: {trouble}")
                elif not trouble and label in known:
                    print(f"{label}: is as it should be; take it out of the list")
                elif label in known:
                    continue
                elif refusals.get(path):
                    refused += 1
                else:
                    read += 1
                    with open(path, "rb") as before, open(again, "rb") as after:
                        identical += before.read() == after.read()
    print(f"{read} messages read and written again, {identical} of them bit for bit; {refused} refused by both; {len(known)} otherwise, as listed; {wrong} wrong")
    sys.exit(wrong != 0)


main()
