"""Commands that are judged harmless, run in a sandbox: whether they are.

    python tools/fuzz_shell.py [--seed 1] [--count 10000] [--show 40]

Each command is judged by several sets of rules. One that some of them allow is run with a real bash, on a copy of a project in
memory, without network, and what it did is held against what these rules forbid. Exits with 1 if anything was found.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from given.shell_fuzz import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--show", type=int, default=40, help="how many holes are shown")
    given = parser.parse_args()
    found = fuzz(given.seed, given.count)
    for hole in found.holes[: given.show]:
        sys.stdout.write(f"{hole.rules}: {hole.command!r}\n    {hole.deeds}\n")
    sys.stdout.write(
        f"seed {given.seed}: {found.tried} commands, {found.run} of them run, {len(found.holes)} holes\n"
    )
    return 1 if found.holes else 0


if __name__ == "__main__":
    sys.exit(main())
