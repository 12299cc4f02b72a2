"""`weft`, the command. What needs nothing is answered before anything is imported."""

import sys

from weft.version import VERSION


def main() -> int:
    if sys.argv[1:] in (["--version"], ["-v"]):
        sys.stdout.write(f"{VERSION}\n")
        return 0
    from weft.cli.main import run_command  # noqa: PLC0415  `--version` must not pay for it

    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
