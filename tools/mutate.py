"""Break weft on purpose, one line at a time, and see whether a test notices.

    python tools/mutate.py [--package permission] [--name "..."] [--jobs 2] [--seconds 300]

`tests/mutations/<package>.toml` lists the mutations: a file, the text to replace, what to put there instead, and the tests that
must fail. First, all these tests have to pass on the source as it is. Each mutation then runs on a copy of the source. One that
is known to go unnoticed says why in `survives`. Exits with 1 if another one goes unnoticed, if one that is said to survive is
noticed, if one can no longer be made, or if less than nine in ten are noticed.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "tests" / "mutations"
LEAST_KILLED = 0.9
FAILED, INTERRUPTED = 1, 2
Outcome = Literal["killed", "survived", "broken"]


class Mutation(NamedTuple):
    """One change of the source, and the tests that should notice it."""

    package: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    @property
    def source(self) -> Path:
        return ROOT / "src" / "weft" / self.file


def list_mutations(tables: Path = TABLES) -> Iterator[Mutation]:
    """Yield the mutations of all tables, by package."""
    for table in sorted(tables.glob("*.toml")):
        for entry in tomllib.loads(table.read_text())["mutation"]:
            yield Mutation(package=table.stem, **{**entry, "tests": tuple(entry["tests"])})


def find_fault(mutation: Mutation) -> str:
    """Return why a mutation can no longer be made, or ""."""
    if not mutation.source.is_file():
        return f"there is no file {mutation.file}"
    source = mutation.source.read_text()
    count = source.count(mutation.old)
    if count != 1:
        return f"the old text occurs {count} times in {mutation.file}"
    try:
        ast.parse(source.replace(mutation.old, mutation.new))
    except SyntaxError:  # any test would notice that
        return f"{mutation.file} is no longer Python"
    missing = [test for test in mutation.tests if not _exists(test)]
    return f"there is no test {missing[0]}" if missing else ""


def _exists(test: str) -> bool:
    """Return True if a test is there: a file or a directory, or a function in a file."""
    path, _, name = test.partition("::")
    function = f"def {name.partition('[')[0]}("
    return (ROOT / path).exists() and (not name or function in (ROOT / path).read_text())


def run_tests(tests: Iterable[str], source: Path, seconds: float | None) -> subprocess.CompletedProcess[str]:
    """Run tests on a source until one fails."""
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    return subprocess.run(
        [*command, *tests], cwd=ROOT, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )


def try_mutation(mutation: Mutation, seconds: float) -> Outcome:
    """Run the tests of a mutation on a copy of the source that contains it."""
    with tempfile.TemporaryDirectory(prefix="weft-mutation-") as scratch:
        source = Path(scratch, "src")
        # With the bytecode, which is valid for a copy that has the times of its original.
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.egg-info"))
        changed = source / "weft" / mutation.file
        changed.write_text(changed.read_text().replace(mutation.old, mutation.new))
        try:
            code = run_tests(mutation.tests, source, seconds).returncode
        except subprocess.TimeoutExpired:
            return "killed"  # the tests of unchanged code end in time
    if code in (FAILED, INTERRUPTED):
        return "killed"
    return "survived" if code == 0 else "broken"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", help="only the mutations of this table")
    parser.add_argument("--name", default="", help="only mutations whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300, help="the longest that one may take")
    given = parser.parse_args()
    mutations = [
        each for each in list_mutations() if given.package in (None, each.package) and given.name in each.name
    ]
    tests = sorted({test for each in mutations for test in each.tests})
    unchanged = run_tests(tests, ROOT / "src", None)
    if unchanged.returncode != 0:
        sys.stdout.write(f"{unchanged.stdout}\nsome of these tests fail without any mutation\n")
        return 1
    with ThreadPoolExecutor(given.jobs) as pool:
        outcomes = list(pool.map(lambda each: _try_and_tell(each, given.seconds), mutations))
    return _report(mutations, outcomes)


def _try_and_tell(mutation: Mutation, seconds: float) -> Outcome:
    fault = find_fault(mutation)
    outcome: Outcome = "broken" if fault else try_mutation(mutation, seconds)
    sys.stdout.write(f"{outcome:9} {mutation.package}: {mutation.name}{f' ({fault})' if fault else ''}\n")
    sys.stdout.flush()
    return outcome


def _report(mutations: list[Mutation], outcomes: list[Outcome]) -> int:
    sys.stdout.write("\npackage          killed   of\n")
    for package in sorted({mutation.package for mutation in mutations}):
        own = [
            outcome
            for mutation, outcome in zip(mutations, outcomes, strict=True)
            if mutation.package == package
        ]
        sys.stdout.write(f"{package:15} {own.count('killed'):7} {len(own):4}\n")
    for mutation, outcome in zip(mutations, outcomes, strict=True):
        if mutation.survives and outcome == "survived":
            sys.stdout.write(f"survives: {mutation.name} ({mutation.survives})\n")
    unexpected = [
        mutation.name
        for mutation, outcome in zip(mutations, outcomes, strict=True)
        if outcome != ("survived" if mutation.survives else "killed")
    ]
    for name in unexpected:
        sys.stdout.write(f"unexpected: {name}\n")
    killed = outcomes.count("killed")
    sys.stdout.write(f"{killed} of {len(outcomes)} killed\n")
    return 1 if unexpected or killed < LEAST_KILLED * len(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
