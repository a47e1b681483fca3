"""The lists of tests/ovs-suite: what Debian's own daemon passes, what the project claims, the sample, and the reasons.

A test is named by its suite, its file and its title; numbers move between versions. Two tests of one file with one title count as
one: both must pass.
"""

import pathlib
import typing

HERE = pathlib.Path(__file__).resolve().parent
SUITES = {"main": "testsuite", "system": "system-userspace-testsuite"}


class Title(typing.NamedTuple):
    """One test, or all tests of one file with the same title."""

    suite: str
    file: str
    title: str


def lines(path: pathlib.Path) -> list[str]:
    """The lines of a list, without comments and empty ones."""
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def reference() -> dict[Title, str]:
    """What each test that starts a daemon says of Debian's ovs-vswitchd: ok, failed or skipped."""
    rows = (line.split("\t") for line in lines(HERE / "reference.tsv"))
    return {Title(suite, file, title): result for suite, file, title, result in rows}


def claims() -> set[Title]:
    """What the project claims to pass: claims/SUITE/FILE has one title a line."""
    return {
        Title(folder.name, path.name, title)
        for folder in (HERE / "claims").iterdir()
        for path in folder.iterdir()
        for title in lines(path)
    }


def add_claims(titles: set[Title]) -> None:
    """Adds titles to the lists, which stay in the order of the suite."""
    everything = claims() | titles
    order = list(reference())
    for suite, file in sorted({(title.suite, title.file) for title in titles}):
        path = HERE / "claims" / suite / file
        path.parent.mkdir(parents=True, exist_ok=True)
        listed = [title.title for title in order if title in everything and (title.suite, title.file) == (suite, file)]
        path.write_text("".join(f"{title}\n" for title in listed))


def sample() -> set[Title]:
    """The titles that every push runs, chosen over all steps of the ladder."""
    wanted = {tuple(line.split("\t")) for line in lines(HERE / "sample.tsv")}
    known = {title for title in reference() if (title.file, title.title) in wanted}
    if missing := wanted - {(title.file, title.title) for title in known}:
        raise SystemExit(f"sample.tsv: no such tests: {sorted(missing)}")
    return known


def reasons() -> dict[Title, str]:
    """Why a title that the reference passes is not claimed, in a line; kept by hand."""
    by_name = {tuple(line.split("\t")[:2]): line.split("\t")[2] for line in lines(HERE / "reasons.tsv")}
    return {title: by_name[title.file, title.title] for title in reference() if (title.file, title.title) in by_name}
