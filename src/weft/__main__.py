"""`weft`, the command. What needs nothing is answered before anything is imported."""

import sys

from weft.version import VERSION


def main() -> int:
    if sys.argv[1:] in (["--version"], ["-v"]):
        sys.stdout.write(f"{VERSION}\n")
        return 0
    import_msgspec()
    from weft.cli.main import run_command  # noqa: PLC0415  `--version` must not pay for it

    return run_command(sys.argv[1:], alone=True)


def import_msgspec() -> None:
    """Import it without `typing_extensions`, which it tries before `typing`.

    On every Python we run on `typing` has what it wants, and the other costs a fifth of what listing sessions costs.
    Whoever needs it later finds it as always.
    """
    name = "typing_extensions"
    if name not in sys.modules:
        # None stands for: there is none.
        sys.modules[name] = None  # type: ignore[assignment]
        try:
            import msgspec  # noqa: F401, PLC0415
        finally:
            del sys.modules[name]


if __name__ == "__main__":
    sys.exit(main())
